"""What settings of the Redis ledger and of the Redis cache have in common."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from .errors import Misconfigured

Outage = Literal["fail", "at_least_once"]
"""What happens to records while a ledger is away."""

_MILLISECOND = timedelta(milliseconds=1)


def milliseconds(name: str, value: timedelta) -> int:
    """Return a duration as Redis takes it. Raises `Misconfigured` below one millisecond."""
    whole = value // _MILLISECOND
    if whole < 1:
        raise Misconfigured(f"{name} must be at least one millisecond, not {value}")
    return whole


def check_prefix(prefix: str) -> None:
    """Refuse an empty prefix, and one that would cost more memory than the rows themselves."""
    if not 0 < len(prefix.encode()) <= 64:
        raise Misconfigured(f"prefix must have 1 to 64 bytes of UTF-8, not {prefix!r}")


def check_pauses(first: timedelta, longest: timedelta) -> None:
    """Refuse pauses that do not grow. Raises `Misconfigured`."""
    if not timedelta(0) < first <= longest:
        raise Misconfigured(f"pauses must grow: first_pause={first}, longest_pause={longest}")


def check_outage(outage: str, audit: str | None) -> None:
    """Refuse a policy that is none, and an audit that is missing or would do nothing. Raises `Misconfigured`."""
    if outage not in ("fail", "at_least_once"):
        raise Misconfigured(f"outage is 'fail' or 'at_least_once', not {outage!r}")
    if outage == "fail" and audit is not None:
        raise Misconfigured(f"audit={audit!r} does nothing with outage='fail'")
    if outage == "at_least_once" and (not isinstance(audit, str) or not audit or "://" in audit):
        raise Misconfigured(f"outage='at_least_once' needs audit=, a folder on a disk of this machine, not {audit!r}")

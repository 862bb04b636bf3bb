"""What settings of the Redis ledger and of the Redis cache have in common."""

from __future__ import annotations

from datetime import timedelta

from .errors import Misconfigured

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

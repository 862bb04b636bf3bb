"""What a reply over HTTP says about the effect of its request."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from .contract import ALREADY, WRITTEN, Answer, Outcome

SHOWN_BYTES = 200
LONGEST_RETRY_AFTER_SECONDS = 3600.0

NOT_THE_RECORDS_FAULT = frozenset({401, 407, 408, 425, 429})
"""Nothing was applied, and not because of the record: no valid credentials, too slow, too early, too many."""

NOT_APPLIED = frozenset({501, 503, 505, 511})
"""The service says that it did not begin."""


class HttpReply(NamedTuple):
    """A reply that arrived whole. Names of headers are in lower case; a body longer than the bound is cut off."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    cut: bool = False
    """Whether the body was longer."""


OutcomeRule = Callable[[HttpReply], "Answer | Outcome | None"]
"""Judges a reply before the usual rule does; None leaves it to that rule."""


def judge(reply: HttpReply, rule: OutcomeRule | None, *, drops_by_key: bool) -> Answer:
    """Return the answer that a reply stands for."""
    try:
        told = rule(reply) if rule is not None else None
    except Exception as error:  # noqa: BLE001 - whatever it was, it says nothing about the records beside this one
        return Answer(Outcome.UNKNOWN, detail=f"outcome= raised {type(error).__name__}: {error}; {shown(reply)}")
    if isinstance(told, Outcome):
        return Answer(told, detail=shown(reply))
    return _usual(reply, drops_by_key=drops_by_key) if told is None else told


def _usual(reply: HttpReply, *, drops_by_key: bool) -> Answer:
    status = reply.status
    if 200 <= status < 300:
        repeated = drops_by_key and reply.headers.get("idempotent-replayed", "").lower() == "true"
        return ALREADY if repeated else WRITTEN
    if status in NOT_THE_RECORDS_FAULT or status in NOT_APPLIED:
        return Answer(Outcome.UNAVAILABLE, detail=shown(reply), retry_after_seconds=retry_after(reply))
    if status < 400 or status == 409 or status >= 500:
        # The same key is being worked on, or what the service had done by the time it failed is not told.
        return Answer(Outcome.UNKNOWN, detail=shown(reply))
    return Answer(Outcome.REJECTED, detail=shown(reply), reason="conflict" if status == 422 else "refused")


def wants_a_pause(reply: HttpReply) -> bool:
    """Tell whether the service asked for fewer requests: the rest of the batch is not sent then."""
    return reply.status in (429, 503)


def retry_after(reply: HttpReply) -> float | None:
    """Return the seconds of `Retry-After`, a number or a date, within 0 and an hour; None where there is none."""
    text = reply.headers.get("retry-after", "").strip()
    try:
        seconds = float(text) if text[:1].isdigit() else _seconds_until(text)
    except (ValueError, OverflowError):
        return None
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER_SECONDS) if math.isfinite(seconds) else None


def _seconds_until(date: str) -> float:
    then = parsedate_to_datetime(date)
    if then.tzinfo is None:
        then = then.replace(tzinfo=timezone.utc)
    return (then - datetime.now(timezone.utc)).total_seconds()


def shown(reply: HttpReply) -> str:
    """Return the status and the beginning of the body, for messages."""
    hint = "; redirects are not followed: name the final URL" if 300 <= reply.status < 400 else ""
    body = reply.body[:SHOWN_BYTES].decode(errors="replace").strip()
    return f"status {reply.status}{hint}{': ' + body if body else ''}"

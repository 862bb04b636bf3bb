"""Wait for rows in doubt, holding nothing, for as long as their leases can run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..connectors.clock import Clock
from ..connectors.errors import InDoubt
from .flush import Flushed
from .prepare import Item
from .results import AnyOutcome

_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 1.0
"""The holder may finish long before its lease ends, so the row is looked at every now and then."""

Settled = list[tuple[Item, AnyOutcome]]


def settle(
    items: Sequence[Item], flush: Callable[[Sequence[Item]], Flushed], clock: Clock
) -> tuple[Settled, Exception | None]:
    """Flush, and flush what is in doubt again, until it is settled or was asked once more after lease and grace.

    Returns what is certain, and what must be raised: `InDoubt`, or the trouble that a flush met.
    """
    flushed = flush(items)
    settled = flushed.settled
    pause, until = _FIRST_PAUSE_SECONDS, clock.monotonic() + flushed.wait_seconds
    cause, last = flushed.cause, False
    while flushed.waiting and flushed.trouble is None:
        if last:
            return settled, in_doubt(flushed.waiting, cause, "; writing them again asks once more")
        last = clock.monotonic() > until
        clock.sleep(min(pause, max(0.0, until - clock.monotonic()) + _FIRST_PAUSE_SECONDS))
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        flushed = flush(flushed.waiting)
        settled += flushed.settled
        cause = flushed.cause or cause
    return settled, flushed.trouble


def in_doubt(items: Sequence[Item], cause: Exception | None, advice: str = "") -> InDoubt:
    """Return the error for items that were asked once more after their time, some of their keys in it."""
    keys = ", ".join(list(dict.fromkeys(item.claim.digest.hex() for item in items))[:3])
    why = cause or "somebody else holds them"
    error = InDoubt(f"{len(items)} records are still in doubt, such as {keys}: {why}{advice}")
    error.__cause__ = cause
    return error

"""One round of a shard's batch through the gate, and how long its records in doubt may wait. No engine here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..connectors.errors import InDoubt
from .batching import batches
from .flush import Flushed
from .gate import Batch
from .patience import in_doubt
from .prepare import Item

Flush = Callable[[Sequence[Item]], Flushed]

LONGEST_PAUSE_SECONDS = 1.0
"""The holder of a record may finish long before its lease ends, so it is looked at every now and then."""

MARGIN_SECONDS = 0.02


def cut(flush: Flush, bounds: Batch) -> Flush:
    """Return a flush that takes any number of items, such as a savepoint holds after `batch` was made smaller."""

    def flush_all(items: Sequence[Item]) -> Flushed:
        whole = Flushed([])
        for batch in batches(items, bounds):
            done = flush(batch)
            whole.settled += done.settled
            whole.waiting += done.waiting
            whole.wait_seconds = max(whole.wait_seconds, done.wait_seconds)
            whole.trouble, whole.cause = done.trouble, done.cause or whole.cause
            if done.trouble is not None:
                break
        return whole

    return flush_all


class Doubts:
    """The records of a shard that are in doubt, by digest, each with the time when its lease and grace must be over."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until: dict[bytes, float] = {}

    def __len__(self) -> int:
        return len(self._until)

    def __repr__(self) -> str:
        return f"<Doubts {len(self)} records>"

    def note(self, flushed: Flushed, now: float) -> InDoubt | None:
        """Take over what a round that began at `now`, in monotonic seconds, left in doubt.

        Returns the error to raise where a record was asked once more after its time and is still in doubt.
        """
        before = self._until
        until = now + flushed.wait_seconds + MARGIN_SECONDS
        self._until = {digest: before.get(digest, until) for digest in (item.claim.digest for item in flushed.waiting)}
        late = [item for item in flushed.waiting if self._until[item.claim.digest] <= now]
        return in_doubt(late, flushed.cause) if late else None

    def clear(self) -> None:
        """Forget them: they are being waited for."""
        self._until = {}

    def pause_seconds(self, now: float) -> float:
        """Return how long to leave them alone."""
        first = min(self._until.values(), default=now)
        return min(max(first - now, 0.0) + MARGIN_SECONDS, LONGEST_PAUSE_SECONDS)

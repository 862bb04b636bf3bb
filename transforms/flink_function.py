"""The two functions around the hop: one finds a record's shard, one takes a shard's batches through the gate."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyflink.datastream import KeyedProcessFunction, ProcessFunction

from ..connectors.clock import Clock
from ..connectors.contract import Scope, Sink
from ..connectors.errors import Rejected
from .flink_metrics import flink_metrics
from .flink_outputs import Outputs
from .flink_round import Doubts, cut
from .flink_sink import seen_by_open
from .flink_state import Entry, ShardFilter, ShardFilters, Waiting, doubt_of, entry_of, items_of, size_of
from .gate import Gate
from .metrics import Metrics
from .numbers import shard_rule
from .patience import settle
from .prepare import Item, Preparer
from .results import Results
from .session import GateSession

END_OF_INPUT = 2**63 - 2
"""The last event time: its timer fires at the end of the input and on drain, where processing-time timers do not."""


class ShardFunction(ProcessFunction):  # type: ignore[misc]
    """Find the shard of each record, before the hop. All that only the gate needs is made behind it, batch by batch."""

    def __init__(self, gate: Gate, scope: Scope, keys: Sequence[int]) -> None:
        self._gate = gate
        self._scope = scope
        self._keys = keys
        self._refused = 0

    def open(self, runtime_context: Any) -> None:
        self._digest = Preparer(self._gate, self._scope).digest
        self._shard_of = shard_rule(self._gate.membership, len(self._keys))

    def process_element(self, value: Any, ctx: Any) -> Iterable[Entry]:
        try:
            shard = self._shard_of(value, self._digest(value))
        except Rejected:
            # A record without a key has nothing to go by: any shard refuses it.
            self._refused += 1
            shard = self._refused % len(self._keys)
        return (entry_of(self._keys[shard], value),)


class Shard:
    """What the function knows of a shard beside its state, to be made anew after every start."""

    __slots__ = ("bytes", "deadline", "doubts", "rows")

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.rows = len(entries)
        self.bytes = sum(map(size_of, entries))
        self.deadline: int | None = None
        """When the timer of the batch that gathers now fires, in milliseconds; None where it has none."""
        self.doubts = Doubts()

    def add(self, entry: Entry) -> None:
        self.rows += 1
        self.bytes += size_of(entry)

    def emptied(self) -> None:
        """Begin a new batch; records in doubt wait beside it."""
        self.rows, self.bytes, self.deadline = 0, 0, None


def waiting(shards: Mapping[int, Shard]) -> int:
    """Return how many records wait in these shards."""
    return sum(shard.rows + len(shard.doubts) for shard in shards.values())


class GateFunction(KeyedProcessFunction):  # type: ignore[misc]
    """Gather the records of a shard in state and take them through the gate.

    A batch goes when it is full, by count or by bytes, when its first record has lingered long enough, and at the end.

    Records in doubt stay in state for the next timer. There is none after the end of the input, so there they are
    waited for. If they are still in doubt when their leases have ended and they were asked once more, `InDoubt` is
    raised.
    """

    def __init__(self, gate: Gate, sink: Sink | None, outputs: Outputs, *, clock: Clock | None = None) -> None:
        self._gate = gate
        self._sink = sink
        self._outputs = outputs
        self._clock = clock

    def open(self, runtime_context: Any) -> None:
        gate = self._gate
        shards = self._shards = dict[int, Shard]()
        # Nothing that the session holds may hold this function: it closes the session when it goes.
        metrics = flink_metrics(runtime_context, gate.scope, lambda: waiting(shards))
        self._session = self.connect(runtime_context, metrics)
        # Flink does not call close() after every failure or cancel: connections go with the function at the latest.
        self._close = weakref.finalize(self, self._session.close)
        self._waiting = Waiting(runtime_context)
        self._filters = ShardFilters.of_gate(gate, runtime_context, metrics)
        self._linger_ms = int(gate.batch.linger.total_seconds() * 1000)

    def connect(self, runtime_context: Any, metrics: Metrics) -> GateSession:
        """Open the gate and its stores."""
        with seen_by_open(runtime_context):
            return GateSession(self._gate, self._sink, metrics=metrics, clock=self._clock)

    def close(self) -> None:
        if hasattr(self, "_close"):
            self._close()

    def process_element(self, value: Entry, ctx: Any) -> Iterable[Any]:
        key = value[0]
        shard = self._shards.get(key) or self._meet(key, ctx)
        shard.add(value)
        self._waiting.add(value)
        if shard.rows >= self._gate.batch.rows or shard.bytes >= self._gate.batch.bytes:
            return self._flush(key, shard, ctx, last=False)
        if shard.rows == 1 or shard.deadline is None:
            self._wake(shard, ctx, self._linger_ms)
        return ()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        key = ctx.get_current_key()
        shard = self._shards.get(key) or self._meet(key, ctx)
        last = timestamp == END_OF_INPUT
        if not last and shard.deadline is not None and timestamp < shard.deadline:
            # The batch of this timer went by count; the one that gathers now has a timer of its own.
            return ()
        return self._flush(key, shard, ctx, last=last)

    def _meet(self, key: int, ctx: Any) -> Shard:
        shard = self._shards[key] = Shard(self._waiting.load())
        ctx.timer_service().register_event_time_timer(END_OF_INPUT)
        return shard

    def _wake(self, shard: Shard, ctx: Any, in_ms: int) -> None:
        timers = ctx.timer_service()
        at = timers.current_processing_time() + in_ms
        if shard.deadline is None or at < shard.deadline:
            shard.deadline = at
            timers.register_processing_time_timer(at)

    def _flush(self, key: int, shard: Shard, ctx: Any, *, last: bool) -> Iterator[Any]:
        """Take all that waits through the gate, give out what is certain, then raise what has to be raised."""
        entries = self._waiting.load()
        shard.emptied()
        if not entries:
            return
        results = Results()
        items, results.rejected = items_of(entries, self._session.prepare)
        membership = self._filters.of(key, items[0]) if self._filters is not None and items else None
        waiting, trouble = self._settle(items, membership, shard, results, last=last)
        self._waiting.replace([doubt_of(key, item) for item in waiting])
        if self._filters is not None and membership is not None:
            self._filters.save(key, membership)
        problem = self._session.deliver(results)
        yield from self._outputs.of(results)
        error = trouble or problem
        if error is not None:
            self._close()
            raise error
        if shard.doubts:
            self._wake(shard, ctx, int(1000 * shard.doubts.pause_seconds(self._session.clock.monotonic())))

    def _settle(
        self, items: list[Item], membership: ShardFilter | None, shard: Shard, results: Results, *, last: bool
    ) -> tuple[list[Item], Exception | None]:
        """Settle what can be settled; return what waits for the next timer, and what must be raised."""
        clock, bounds = self._session.clock, self._gate.batch
        flush = cut(lambda batch: self._session.flush(batch, membership), bounds)
        if last:
            settled, trouble = settle(items, flush, clock)
            results.collect([outcome for _, outcome in settled])
            return [], trouble
        began = clock.monotonic()
        flushed = flush(items)
        results.collect([outcome for _, outcome in flushed.settled])
        trouble = flushed.trouble or shard.doubts.note(flushed, began)
        if trouble is None and len(flushed.waiting) >= bounds.rows:
            # What waits is bounded: the stream is held back until something of it is settled.
            shard.doubts.clear()
            return self._settle(flushed.waiting, membership, shard, results, last=True)
        return flushed.waiting, trouble

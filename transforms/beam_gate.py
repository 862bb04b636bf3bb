"""The gate of one Beam worker: it buffers a bundle, and every element comes out where it stood in event time."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import chain, starmap
from typing import Any, Final, Literal, get_args

import apache_beam as beam
from apache_beam.metrics import Metrics as BeamMetrics
from apache_beam.pvalue import TaggedOutput

from ..connectors.contract import Sink
from ..connectors.errors import InDoubt
from .batching import batches
from .beam_hop import Parcel, older_than, unpack
from .beam_state import LOG, SNAPSHOT, VERSION, Cell, Log, ShardFilters
from .flush import Flushed
from .gate import Gate, drop_rules, write_rules
from .metrics import LevelName, MetricName
from .patience import Settled, settle
from .prepare import Item
from .results import Duplicate, Parked, Passed, Refused, Results, Written
from .session import GateSession

log = logging.getLogger("oncesink")

NAMESPACE: Final = "oncesink"

Tag = Literal["written", "passed", "duplicates", "rejected", "parked"]
TAGS: Final[dict[type[Any], Tag]] = {
    Written: "written",
    Passed: "passed",
    Duplicate: "duplicates",
    Refused: "rejected",
    Parked: "parked",
}

Output = Any
"""A `WindowedValue`, or one in a `TaggedOutput`."""


class Counters:
    """The library's counts and levels as Beam counters and gauges, in the namespace `oncesink`."""

    def __init__(self) -> None:
        self._counters = {name: BeamMetrics.counter(NAMESPACE, name) for name in get_args(MetricName)}
        self._gauges = {name: BeamMetrics.gauge(NAMESPACE, name) for name in get_args(LevelName)}

    def count(self, name: MetricName, by: int = 1) -> None:
        if by:
            self._counters[name].inc(by)

    def level(self, name: LevelName, value: int) -> None:
        self._gauges[name].set(value)


class OpenGate:
    """A gate with its stores open, bundle after bundle. Belongs to one thread."""

    def __init__(self, gate: Gate, sink: Sink | None) -> None:
        counters = Counters()
        self.filters = ShardFilters.of(gate, counters)
        self._bounds = gate.batch
        self._main = Passed if sink is None else Written
        self._session = GateSession(gate, sink, metrics=counters)
        retention = gate.ledger.retention if gate.ledger is not None else None
        self._retention_micros = None if retention is None else retention // timedelta(microseconds=1)
        self.begin()

    def begin(self) -> None:
        """Start a bundle: what an earlier one left behind, because it failed, comes again."""
        self._items: list[Item] = []
        self._bytes = 0
        self._refused: Settled = []
        self._waiting: list[Item] = []
        self._problem: Exception | None = None
        if self.filters is not None:
            self.filters.begin()

    def make_room(self, items: Sequence[Item]) -> Iterable[Output]:
        """Return what came out, if the buffer had to be flushed because these would make it too large."""
        rows, size = len(self._items) + len(items), self._bytes + _size(items)
        return self.flush() if self._items and (rows > self._bounds.rows or size > self._bounds.bytes) else ()

    def take(self, items: Sequence[Item]) -> Iterable[Output]:
        """Buffer items; return what came out, if they filled a batch."""
        self._items += items
        self._bytes += _size(items)
        if self._retention_micros is not None:
            oldest = int(time.time() * 1e6) - self._retention_micros
            self._session.metrics.count("older_than_retention", older_than(items, oldest))
        return self.flush() if len(self._items) >= self._bounds.rows else ()

    def refuse(self, refused: Sequence[tuple[Item, Refused]]) -> None:
        """Keep what was refused before the hop until its batch is finished."""
        self._refused += refused

    def flush(self) -> Iterable[Output]:
        """Take the buffer through the gate; what is in doubt waits for the bundle's end. Raises a store's trouble."""
        items, self._items, self._bytes = self._items, [], 0
        flushed = self._ask(items)
        self._waiting += flushed.waiting
        out = self._emit(flushed.settled)
        if flushed.trouble is not None:
            raise flushed.trouble
        if self.filters is not None:
            self.filters.through()
        return out

    def end(self) -> Iterable[Output]:
        """Flush what is left, wait for what is in doubt, holding nothing, and only then raise what must be raised."""
        out = [self.flush()]
        for batch in batches(self._waiting, self._bounds):
            settled, trouble = settle(batch, self._ask, self._session.clock)
            out.append(self._emit(settled))
            if trouble is not None and not isinstance(trouble, InDoubt):
                raise trouble
            self._problem = self._problem or trouble
        if self._problem is not None:
            raise self._problem
        return chain.from_iterable(out)

    def close(self) -> None:
        """Give every connection back. Safe to repeat."""
        self._session.close()

    def _ask(self, items: Sequence[Item]) -> Flushed:
        return self._session.flush(items, self.filters)

    def _emit(self, settled: Settled) -> Iterable[Output]:
        """Deliver outcomes, and return them as outputs, each at its element's place, made when they are asked for."""
        settled += self._refused
        self._refused = []
        results = Results()
        results.collect([outcome for _, outcome in settled])
        self._problem = self._session.deliver(results) or self._problem
        return starmap(self._output, settled)

    def _output(self, item: Item, outcome: Any) -> Output:
        kind = type(outcome)
        windowed = item.context.with_value(outcome.record if kind is Passed else outcome)
        return windowed if kind is self._main else TaggedOutput(TAGS[kind], windowed)


class GateFn(beam.DoFn):
    """The gate over what `ShardFn` made: a stateful DoFn whose main output is `written`, or `passed` without a sink.

    The others are tagged `duplicates`, `rejected` and `parked`. A batch goes through when it is full, and what is
    left in `finish_bundle`; nothing is held beyond it. When that raises, nothing of the bundle is committed: the
    replay finds its own writes and reports them as replayed. Connections live from `setup` to `teardown`, and not
    longer than a bundle that fails.
    """

    def __init__(self, gate: Gate, sink: Sink | None = None) -> None:
        super().__init__()
        if sink is None:
            drop_rules(gate)
        else:
            write_rules(gate, sink)
        self._gate = gate
        self._sink = sink
        self._live: OpenGate | None = None
        self._close: weakref.finalize[..., GateFn] | None = None

    def setup(self) -> None:
        """Open the stores."""
        self._live = OpenGate(self._gate, self._sink)
        # Not every runner calls `teardown` when a bundle failed.
        self._close = weakref.finalize(self, self._live.close)

    def start_bundle(self) -> None:
        """Begin anew, and open the stores again if a failed bundle closed them."""
        if self._live is None:
            self.setup()
        self._gated().begin()

    def process(
        self,
        element: Parcel,
        version: Cell = beam.DoFn.StateParam(VERSION),  # noqa: B008
        snapshot: Cell = beam.DoFn.StateParam(SNAPSHOT),  # noqa: B008
        added: Log = beam.DoFn.StateParam(LOG),  # noqa: B008
    ) -> Iterable[Output]:
        """Note the records in their shard's filter, buffer them, and return what came out of the gate."""
        live = self._gated()
        try:
            items, refused = unpack(element[1])
            live.refuse(refused)
            out = live.make_room(items)
            if live.filters is not None and items:
                live.filters.note(element[0], items, version, snapshot, added)
            return chain(out, live.take(items))
        except Exception as error:
            self._abandon(error)
            raise

    def finish_bundle(self) -> Iterable[Output]:
        """Return the outcome of everything that is still here, or raise."""
        try:
            return self._gated().end()
        except Exception as error:
            self._abandon(error)
            raise

    def teardown(self) -> None:
        """Give every connection back."""
        if self._close is not None:
            self._close()
        self._live = self._close = None

    def _gated(self) -> OpenGate:
        assert self._live is not None, "Beam calls setup first"
        return self._live

    def _abandon(self, error: Exception) -> None:
        """Close what a failed bundle holds; that must not hide why it failed."""
        try:
            self.teardown()
        except Exception:
            log.warning("closing after %r failed too", error, exc_info=True)


def _size(items: Sequence[Item]) -> int:
    return sum([item.size for item in items])

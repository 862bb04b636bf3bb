"""One gate with one sink, driven through any number of schedules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import Any

from ...connectors.contract import Sink, SinkKind
from ...connectors.errors import Misconfigured
from ...connectors.memory import memory_store
from ...connectors.memory_sinks import MemorySink, MemoryTable
from ..gate import Gate, drop_scope, write_scope
from ..prepare import Item, Preparer
from .cells import Kind
from .choices import Choices
from .engine import Engine
from .failover import FailOver
from .oracle import Allowed, Oracle, Verdict
from .process import Process, Sessions, Upkeep
from .schedule import DoesNotEnd, Schedule
from .source import Delivery, MakeRecord, deliveries, make_record
from .stepped import SteppedCache, SteppedLedger, WhimsicalFilter
from .stepped_sink import SteppedSink
from .world import World


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """What is simulated. `effects` returns the target's content, `reset` empties it before each schedule.

    `loses_rows`: the ledger is one that a fail-over may set back, as Redis.
    """

    gate: Gate
    sink: Sink | None
    record: MakeRecord = make_record
    effects: Callable[[], Iterable[Any]] | None = None
    reset: Callable[[], object] | None = None
    poison: bool = False
    loses_rows: bool = False


class Simulator:
    """Runs schedules of one subject. Ledger, cache and filter of its gate are replaced by the simulation's own."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self.kind = _kind(subject)
        self.world = World(self.kind, grace_seconds=subject.gate.grace_seconds)
        self.schedules = 0
        if subject.gate.observe:
            raise Misconfigured("observe=True promises nothing that could be simulated")
        ledger = SteppedLedger(self.world)
        self._inner = _on(ledger, subject.sink)
        self._sink = None if self._inner is None else SteppedSink(self.world, self._inner, self._applied)
        outside = self._inner is not None and self._inner.kind is not SinkKind.TRANSACTIONAL
        plain = replace(
            subject.gate,
            ledger=ledger,
            cache=None,
            membership=None,
            rejected="output",
            parked="output" if outside else "raise",
        )
        cached = replace(plain, cache=SteppedCache(self.world))
        self._sessions = tuple(Sessions(self.world, gate, self._sink) for gate in (cached, plain))
        self._filter = WhimsicalFilter(self.world)
        self._upkeep = Upkeep(self.world, plain, self._sink)
        scope = drop_scope(plain) if self._inner is None else write_scope(plain, self._inner)
        self._prepare = Preparer(plain, scope)
        self._items: dict[Delivery, Item] = {}
        self._target, self._reset = _target(self.world, self._inner, subject)
        self._windows: Counter[bytes] = Counter()
        self._times: Counter[bytes] = Counter()

    def run(self, choices: Choices, story: list[str] | None = None) -> Verdict:
        """Run one schedule. `story`, where given, takes its steps in words."""
        self.schedules += 1
        world = self.world
        world.begin(choices, story)
        self._reset()
        self._windows.clear()
        self._times.clear()
        sent = deliveries(choices, poison=self._subject.poison and self._inner is not None)
        items = [self._item(each) for each in sent]
        cached = choices.pick(4) > 0
        sessions = self._sessions[0 if cached else 1]
        filtered = choices.pick(2) == 1

        def open_process(number: int) -> Process:
            return Process(number, sessions[number], self._filter if filtered else None)

        engine = Engine(world, items, open_process, keyed=choices.pick(2) == 1)
        redis = FailOver(world, ledger=self._subject.loses_rows, cache=cached)
        upkeep = self._upkeep if self._upkeep.possible else None
        schedule = Schedule(world, engine, lease_seconds=self._subject.gate.lease_seconds, redis=redis, upkeep=upkeep)
        try:
            schedule.run()
        except DoesNotEnd as error:
            return _stuck(str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, it broke a promise
            return _stuck(f"the gate raised {error!r}")
        return self._judge(sent, items, engine, redis)

    def trace(self) -> int:
        """Return a number that stands for the steps of the last schedule."""
        return int.from_bytes(blake2b(self.world.trace, digest_size=8).digest(), "big")

    def _judge(self, sent: Sequence[Delivery], items: Sequence[Item], engine: Engine, redis: FailOver) -> Verdict:
        keys = {item.claim.digest: item.context.key for item in items}
        windows = Counter({keys[digest]: count for digest, count in self._windows.items()})
        excused = {keys[digest] for digest in redis.touched}
        allowed = Allowed(windows, excused, {keys[digest] for digest in self.world.late_finishes})
        oracle = Oracle(sent, [item.record for item in items], allowed, drops=self._inner is None)
        return oracle.judge(engine.commits, self._target())

    def _item(self, delivery: Delivery) -> Item:
        known = self._items.get(delivery)
        if known is None:
            prepared = self._prepare(self._subject.record(delivery))
            if not isinstance(prepared, Item):
                raise Misconfigured(f"the gate refuses the record of {delivery}: {prepared}")
            known = self._items[delivery] = prepared._replace(context=delivery)
            self.world.names[known.claim.digest] = f"k{delivery.key}"
        return known

    def _applied(self, digests: Sequence[bytes]) -> None:
        """Note effects; a second one while the row is open is the window that `on_replay="write"` leaves."""
        for digest in digests:
            self._times[digest] += 1
            row = self.world.store.rows.get(digest)
            if self._times[digest] > 1 and self._subject.gate.on_replay == "write" and row and not row.finished:
                self._windows[digest] += 1


def _kind(subject: Subject) -> Kind:
    sink = subject.sink
    if subject.loses_rows:
        return Kind.REDIS
    if sink is None:
        return Kind.DROP
    if sink.kind is SinkKind.EXTERNAL:
        return {"write": Kind.WRITE, "probe": Kind.PROBE, "park": Kind.PARK}[str(subject.gate.on_replay)]
    return Kind.TRANSACTIONAL if sink.kind is SinkKind.TRANSACTIONAL else Kind.DROPS_BY_KEY


def _on(ledger: SteppedLedger, sink: Sink | None) -> Sink | None:
    """Put a table onto the simulation's ledger."""
    if sink is None or sink.kind is not SinkKind.TRANSACTIONAL:
        return sink
    if not isinstance(sink, MemoryTable):
        raise Misconfigured(f"{sink.target} commits with its own database: simulate its gate with a MemoryTable")
    return replace(sink, ledger=ledger)  # type: ignore[arg-type]


def _target(
    world: World, sink: Sink | None, subject: Subject
) -> tuple[Callable[[], Iterable[Any]], Callable[[], object]]:
    """Return how to read the target, and how to empty it."""
    if sink is None:
        return tuple, tuple
    if isinstance(sink, MemoryTable):
        name = sink.name
        return lambda: [each.record for each in world.store.effects.get(name, ())], tuple
    if isinstance(sink, MemorySink):
        return lambda: [each.record for each in sink.effects], partial(_empty, sink)
    if subject.effects is None or subject.reset is None:
        raise Misconfigured(f"{sink.target}: give effects=, which returns the records in it, and reset=, to empty it")
    return subject.effects, subject.reset


def _empty(sink: MemorySink) -> None:
    sink.effects.clear()
    memory_store("").known.get(sink.name, {}).clear()


def _stuck(why: str) -> Verdict:
    verdict = Verdict()
    verdict.blame("stuck", 1, why)
    return verdict

"""A writer over memory stores that all go by one clock, with faults and events that a test puts into its calls."""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from oncesink.connectors.clock import ManualClock
from oncesink.connectors.contract import SinkKind
from oncesink.connectors.faults import Call, Crash, Fault, Faults, Part
from oncesink.connectors.faulty import FaultyCache, FaultyLedger, FaultySink
from oncesink.connectors.memory import Effect, MemoryCache, MemoryLedger, MemoryStore, memory_store
from oncesink.connectors.memory_sinks import MemorySink, MemoryTable
from oncesink.transforms import Counts, Fields, Gate, OnceWriter, Results, SourcePosition
from oncesink.transforms.retry import Immediately

Kind = Literal["transactional", "drops_by_key", "external"]
KINDS: tuple[Kind, ...] = ("transactional", "drops_by_key", "external")
ATTEMPTS = 3
LEASE_SECONDS, GRACE_SECONDS, TIMEOUT_SECONDS = 30.0, 10.0, 10.0

Record = dict[str, Any]
Event = Fault | Callable[[], object] | None
"""What happens to a call: a fault, or something that goes on elsewhere just before it; None: nothing."""

_names = itertools.count()


def record(key: str, at: int | None = 0, **fields: Any) -> Record:
    """Return a record of a key, delivered from an offset."""
    return {"id": key, "offset": at, **fields}


def refuses_bad(record: Any) -> str | None:
    """Refuse what is marked as bad."""
    return "it is bad" if record.get("bad") else None


@dataclass
class Scene:
    """One set of stores. `events` come off the queue of (part, verb), one a call."""

    kind: Kind
    settings: dict[str, Any] = field(default_factory=dict)
    sink_settings: dict[str, Any] = field(default_factory=dict)
    make_sink: Callable[[str], Any] | None = None
    """Makes another sink than the usual memory sink of this kind, given the name of the stores."""
    clock: ManualClock = field(default_factory=ManualClock)
    attempts: int = ATTEMPTS

    def __post_init__(self) -> None:
        self.name = f"scene {next(_names)}"
        self.store.clock = memory_store("").clock = self.clock
        self.counts = Counts()
        self.faults = Faults(self._choose, on_hang=lambda: self.clock.sleep(TIMEOUT_SECONDS))
        self._events: dict[tuple[Part, str], deque[Event]] = defaultdict(deque)
        self.ledger = FaultyLedger(MemoryLedger(self.name), self.faults)
        self.cache = FaultyCache(MemoryCache(self.name), self.faults)
        self.sink = FaultySink(self.make_sink(self.name) if self.make_sink else self._usual_sink(), self.faults)
        self._writer: OnceWriter | None = None

    def _usual_sink(self) -> Any:
        options = {"refuses": refuses_bad, **self.sink_settings}
        if self.kind == "transactional":
            return MemoryTable(MemoryLedger(self.name), self.name, **options)
        return MemorySink(self.name, drops_by_key=self.kind == "drops_by_key", **options)

    @property
    def gate(self) -> Gate:
        """Return the gate, with the settings that its kind of sink needs where none are given."""
        usual: dict[str, Any] = {
            "rejected": "output",
            "ledger": self.ledger,
            "occurrence": SourcePosition("s", "offset"),
        }
        if self.sink.kind is SinkKind.EXTERNAL:
            usual |= {"on_replay": "probe", "parked": "output"}
        return Gate(**{"scope": "orders", "key": Fields("id"), **usual, **self.settings})

    def writer(self) -> OnceWriter:
        """Open one more writer on these stores."""
        return OnceWriter(
            self.gate, self.sink, metrics=self.counts, clock=self.clock, attempts=Immediately(self.attempts)
        )

    def write(self, *records: Any) -> Results:
        """Write with the scene's own writer."""
        if self._writer is None:
            self._writer = self.writer()
        return self._writer.write(records)

    def dies(self, *records: Any) -> None:
        """Let a writer of its own die at the crash that its events hold."""
        try:
            self.writer().write(records)
        except Crash:
            return
        raise AssertionError("it did not die")

    def on(self, part: Part, verb: str, *events: Event) -> Scene:
        """Let the next calls of a verb meet these events, one each."""
        self._events[part, verb].extend(events)
        return self

    def _choose(self, call: Call) -> Fault | None:
        queue = self._events[call.part, call.verb]
        event = queue.popleft() if queue else None
        if callable(event) and not isinstance(event, Fault):
            event()
            return None
        return event

    @property
    def store(self) -> MemoryStore:
        """Return what is behind the ledger and the cache."""
        return memory_store(self.name)

    @property
    def effects(self) -> list[Effect]:
        """Return what the outside world has seen."""
        return (self.store if self.kind == "transactional" else memory_store("")).effects.get(self.name, [])

    @property
    def written_keys(self) -> list[str]:
        """Return the key of every effect, in order."""
        return [effect.record["id"] for effect in self.effects]

    @property
    def open_rows(self) -> int:
        """Return how many rows are claimed and not finished."""
        return sum(not row.finished for row in self.store.rows.values())

    def calls(self, part: Part) -> list[str]:
        """Return the verbs that were called, without the opening."""
        return [verb for verb in self.faults.verbs(part) if verb != "open"]


def keys(outcomes: list[Any]) -> list[str]:
    """Return the keys of outcomes, in order."""
    return [outcome.record["id"] for outcome in outcomes]


def places(outcomes: list[Any]) -> list[tuple[str, int]]:
    """Return key and offset of outcomes, sorted."""
    return sorted((outcome.record["id"], outcome.record["offset"]) for outcome in outcomes)

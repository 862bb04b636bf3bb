"""Sinks in this process's memory: verified fakes that keep every effect, in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from .contract import ALREADY, WRITTEN, Answer, LedgerSession, Outcome, Scope, SinkKind, Write
from .errors import Misconfigured
from .memory import Effect, MemoryLedger, MemoryLedgerSession, memory_store

_TURNS = threading.Lock()


@dataclass(frozen=True, slots=True)
class MemoryTable:
    """A transactional sink on a memory ledger. `refuses` tells of a record why it can never be written, or None."""

    ledger: MemoryLedger
    name: str = "table"
    refuses: Callable[[Any], str | None] | None = field(default=None, kw_only=True)

    kind = SinkKind.TRANSACTIONAL
    atomic = True
    can_probe = False
    remembers = None
    tells_occurrence = False
    timeout = timedelta(seconds=10)

    @property
    def target(self) -> str:
        return f"memory table {self.name}"

    @property
    def effects(self) -> Sequence[Effect]:
        return self.ledger.store.effects.get(self.name, ())

    def open(self, scope: Scope, ledger: LedgerSession | None) -> _TableSession:
        session = getattr(ledger, "inner", ledger)
        if not isinstance(session, MemoryLedgerSession):
            raise Misconfigured(f"{self.target} needs its own ledger, not {ledger!r}")
        return _TableSession(self, session)


class _TableSession:
    store_id: bytes | None = None

    def __init__(self, table: MemoryTable, ledger: MemoryLedgerSession) -> None:
        self._table = table
        self._ledger = ledger

    def write(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer]:
        answers = []
        for each in writes:
            why = self._table.refuses(each.record) if self._table.refuses else None
            answers.append(WRITTEN if why is None else Answer(Outcome.REJECTED, detail=why))
            if why is None:
                effect = Effect(each.digest, each.occurrence, each.record)
                self._ledger.pending_effects.append((self._table.name, effect))
        return answers

    def probe(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer | None]:
        raise Misconfigured("a transactional sink leaves nothing to probe")

    def close(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True, slots=True)
class MemorySink:
    """A sink that keeps every effect. `drops_by_key`: it answers ALREADY to a second write of a key."""

    name: str = "sink"
    drops_by_key: bool = field(default=False, kw_only=True)
    refuses: Callable[[Any], str | None] | None = field(default=None, kw_only=True)
    remembers: timedelta | None = field(default=None, kw_only=True)
    timeout: timedelta = field(default=timedelta(seconds=10), kw_only=True)

    atomic = False
    can_probe = True
    tells_occurrence = False

    @property
    def kind(self) -> SinkKind:
        return SinkKind.DROPS_BY_KEY if self.drops_by_key else SinkKind.EXTERNAL

    @property
    def target(self) -> str:
        return f"memory sink {self.name}"

    @property
    def effects(self) -> list[Effect]:
        return memory_store("").effects.setdefault(self.name, [])

    def open(self, scope: Scope, ledger: LedgerSession | None) -> _SinkSession:
        return _SinkSession(self, None if ledger is not None else memory_store("").register(scope))


class _SinkSession:
    def __init__(self, sink: MemorySink, store_id: bytes | None) -> None:
        self._sink = sink
        self._effects = sink.effects
        self._known = memory_store("").known.setdefault(sink.name, {})
        self.store_id = store_id

    def write(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer]:
        if not self._sink.drops_by_key and self._sink.refuses is None:
            self._effects.extend([Effect(each.digest, each.occurrence, each.record) for each in writes])
            return [WRITTEN] * len(writes)
        # Sessions may be of several threads, and between the look at a key and its effect nobody may come.
        with _TURNS:
            return [self._one(each) for each in writes]

    def _one(self, write: Write) -> Answer:
        now = memory_store("").clock.monotonic()
        if self._sink.drops_by_key and self._remembers(write.digest, now):
            return ALREADY
        why = self._sink.refuses(write.record) if self._sink.refuses else None
        if why is not None:
            return Answer(Outcome.REJECTED, detail=why)
        self._known[write.digest] = now
        self._effects.append(Effect(write.digest, write.occurrence, write.record))
        return WRITTEN

    def _remembers(self, digest: bytes, now: float) -> bool:
        since = self._known.get(digest)
        limit = self._sink.remembers
        return since is not None and (limit is None or now - since <= limit.total_seconds())

    def probe(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer | None]:
        there = {effect.digest for effect in self._effects}
        return [ALREADY if each.digest in there else None for each in writes]

    def close(self) -> None:
        """Nothing is held."""

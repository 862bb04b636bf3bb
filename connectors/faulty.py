"""Wrappers that let a script of faults break the calls of any ledger, cache or sink.

They are recipes like what they wrap; `inner` is what is behind: a table that shares its ledger's transaction asks the
session for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from .cache_times import TTLRule
from .contract import (
    Answer,
    Cache,
    CacheSession,
    Claim,
    Entry,
    Finish,
    Ledger,
    LedgerSession,
    Row,
    Scope,
    Sink,
    SinkSession,
    Take,
    TimedByRecord,
    Write,
)
from .errors import Misconfigured
from .faults import NOT_APPLIED, Faults
from .sinks_in_front import SinkInFront, SinkSessionInFront
from .upkeep import Forgets, ListsOpen, OpenCount, OpenPage


@dataclass(frozen=True, slots=True)
class FaultyLedger:
    """A ledger whose calls meet a script: `open`, the verbs, and `commit`.

    Verbs: `claim`, `read`, `take`, `finish`, `release`; `open_rows`, `count_open` and `forget` where it has them.
    """

    inner: Ledger
    faults: Faults

    @property
    def retention(self) -> timedelta:
        """Return that of the ledger behind."""
        return self.inner.retention

    @property
    def shared(self) -> bool:
        """Return that of the ledger behind."""
        return self.inner.shared

    def open(self, scope: Scope) -> FaultyLedgerSession:
        """Open the ledger behind."""
        session = self.faults.run("ledger", "open", lambda: self.inner.open(scope))
        return FaultyLedgerSession(session, self.faults)


class FaultyLedgerSession:
    """An open ledger behind a script."""

    def __init__(self, inner: LedgerSession, faults: Faults) -> None:
        self.inner = inner
        self._faults = faults

    @property
    def ledger_id(self) -> bytes:
        """Return that of the session behind."""
        return self.inner.ledger_id

    def claim(self, claims: Sequence[Claim], *, owner: bytes, lease_seconds: float | None) -> Mapping[bytes, Row]:
        """Claim, or meet a fault."""
        return self._faults.run(
            "ledger", "claim", lambda: self.inner.claim(claims, owner=owner, lease_seconds=lease_seconds)
        )

    def read(self, digests: Sequence[bytes]) -> Mapping[bytes, Row]:
        """Read, or meet a fault."""
        return self._faults.run("ledger", "read", lambda: self.inner.read(digests))

    def take(self, takes: Sequence[Take], *, owner: bytes, lease_seconds: float) -> set[bytes]:
        """Take, or meet a fault."""
        return self._faults.run(
            "ledger", "take", lambda: self.inner.take(takes, owner=owner, lease_seconds=lease_seconds)
        )

    def finish(self, finishes: Sequence[Finish], *, owner: bytes) -> set[bytes]:
        """Finish, or meet a fault."""
        return self._faults.run("ledger", "finish", lambda: self.inner.finish(finishes, owner=owner))

    def release(self, digests: Sequence[bytes], *, owner: bytes) -> None:
        """Release, or meet a fault."""
        self._faults.run("ledger", "release", lambda: self.inner.release(digests, owner=owner))

    def open_rows(
        self, *, older_than_seconds: float, limit: int, after: object | None = None, skip: int = 0
    ) -> OpenPage:
        """List, or meet a fault."""
        inner = self._lister()
        return self._faults.run(
            "ledger",
            "open_rows",
            lambda: inner.open_rows(older_than_seconds=older_than_seconds, limit=limit, after=after, skip=skip),
        )

    def count_open(self, *, older_than_seconds: float) -> OpenCount:
        """Count, or meet a fault."""
        inner = self._lister()
        return self._faults.run("ledger", "count_open", lambda: inner.count_open(older_than_seconds=older_than_seconds))

    def forget(self, digests: Sequence[bytes]) -> set[bytes]:
        """Forget, or meet a fault."""
        inner = self.inner
        if not isinstance(inner, Forgets):
            raise Misconfigured(f"{inner!r} cannot forget a key")
        return self._faults.run("ledger", "forget", lambda: inner.forget(digests))

    def _lister(self) -> ListsOpen:
        if not isinstance(self.inner, ListsOpen):
            raise Misconfigured(f"{self.inner!r} cannot list its open rows")
        return self.inner

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run a unit; the commit may meet a fault, before it (the unit is rolled back) or after it."""
        with self.inner.transaction():
            yield
            fault = self._faults.meet("ledger", "commit")
            if fault in NOT_APPLIED:
                self._faults.strike(fault, "ledger", "commit")
        self._faults.strike(fault, "ledger", "commit")

    def close(self) -> None:
        """Close the session behind."""
        self.inner.close()


@dataclass(frozen=True, slots=True)
class FaultyCache:
    """A cache whose calls meet a script: `open`, `get` and `put`."""

    inner: Cache
    faults: Faults

    @property
    def ttl(self) -> timedelta:
        """Return that of the cache behind."""
        return self.inner.ttl

    @property
    def ttl_by(self) -> TTLRule | None:
        """Return that of the cache behind."""
        return self.inner.ttl_by if isinstance(self.inner, TimedByRecord) else None

    def open(self, ledger_id: bytes) -> FaultyCacheSession:
        """Open the cache behind."""
        session = self.faults.run("cache", "open", lambda: self.inner.open(ledger_id))
        return FaultyCacheSession(session, self.faults)


class FaultyCacheSession:
    """An open cache behind a script."""

    def __init__(self, inner: CacheSession, faults: Faults) -> None:
        self.inner = inner
        self._faults = faults

    def get(self, digests: Sequence[bytes]) -> Mapping[bytes, Entry]:
        """Get, or meet a fault."""
        return self._faults.run("cache", "get", lambda: self.inner.get(digests))

    def put(self, entries: Mapping[bytes, Entry]) -> None:
        """Put, or meet a fault."""
        self._faults.run("cache", "put", lambda: self.inner.put(entries))

    def close(self) -> None:
        """Close the session behind."""
        self.inner.close()


@dataclass(frozen=True, slots=True)
class FaultySink(SinkInFront):
    """A sink whose calls meet a script: `open`, `write` and `probe`."""

    inner: Sink
    faults: Faults

    def open(self, scope: Scope, ledger: LedgerSession | None) -> FaultySinkSession:
        """Open the sink behind, on the ledger's own session where a wrapper is given."""
        own = ledger.inner if isinstance(ledger, FaultyLedgerSession) else ledger
        session = self.faults.run("sink", "open", lambda: self.inner.open(scope, own))
        return FaultySinkSession(session, self.faults)


class FaultySinkSession(SinkSessionInFront):
    """An open sink behind a script."""

    def __init__(self, inner: SinkSession, faults: Faults) -> None:
        super().__init__(inner)
        self._faults = faults

    def write(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer]:
        """Write, or meet a fault."""
        return self._faults.run("sink", "write", lambda: self.inner.write(writes, timeout_seconds=timeout_seconds))

    def probe(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer | None]:
        """Probe, or meet a fault."""
        return self._faults.run("sink", "probe", lambda: self.inner.probe(writes, timeout_seconds=timeout_seconds))

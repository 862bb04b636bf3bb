"""Ledger and cache in this process's memory: verified fakes for tests and simulations.

They pass the contract suites of the real ones. What is stored belongs to a name, so that every recipe of one name,
pickled or not, sees the same store; `forget_all()` empties them. Two open transactions that want the same row: the
second one is `Unavailable`, as after a lock wait time-out.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from .cache_times import TTLRule, check_rule
from .clock import Clock, SystemClock
from .contract import Claim, Entry, Finish, Row, Scope, Take
from .errors import Misconfigured, Unavailable
from .scopes import encode, must_replace
from .upkeep import OpenCount, OpenPage
from .wanted import check_durations


class Effect(NamedTuple):
    """One applied write, as a memory sink or table keeps it."""

    digest: bytes
    occurrence: bytes | None
    record: Any


class _Stored(NamedTuple):
    finished: bool
    owner: bytes
    claim: Claim
    result: bytes | None
    lease_until: float | None
    since: float
    scope: tuple[str, int] = ("", 1)
    """Name and generation."""


class MemoryStore:
    """What is behind one name. `clock` is the store's own clock; set it to rule over leases."""

    def __init__(self) -> None:
        self.clock: Clock = SystemClock()
        self.rows: dict[bytes, _Stored] = {}
        self.locked: set[bytes] = set()
        self.effects: dict[str, list[Effect]] = {}
        self.known: dict[str, dict[bytes, float]] = {}
        self.entries: dict[bytes, tuple[Entry, float]] = {}
        self.scopes: dict[tuple[str, str], tuple[Scope, bytes]] = {}

    def register(self, scope: Scope) -> bytes:
        """Compare a scope with what is stored under its name and use, store it, return its ledger id."""
        place = (scope.name, scope.use.value)
        if place not in self.scopes:
            self.scopes[place] = (scope, secrets.token_bytes(16))
        stored, ledger_id = self.scopes[place]
        must_replace(scope, stored.generation, encode(stored.meaning))
        self.scopes[place] = (scope, ledger_id)
        return ledger_id


_STORES: dict[str, MemoryStore] = {}


def memory_store(name: str) -> MemoryStore:
    """Return what is behind a name, empty at first."""
    return _STORES.setdefault(name, MemoryStore())


def forget_all() -> None:
    """Empty every memory store of this process."""
    _STORES.clear()


@dataclass(frozen=True, slots=True)
class MemoryLedger:
    """A ledger in memory. `Delivery:` as any ledger's, while the process lives. `Parallelism:` one process."""

    name: str = "default"
    retention: timedelta = field(default=timedelta(days=7), kw_only=True)

    def __post_init__(self) -> None:
        check_durations(self)

    @property
    def shared(self) -> bool:
        return False

    @property
    def store(self) -> MemoryStore:
        return memory_store(self.name)

    def open(self, scope: Scope) -> MemoryLedgerSession:
        return MemoryLedgerSession(self.store, self.store.register(scope), scope)


class MemoryLedgerSession:
    """An open memory ledger. Inside a transaction its rows and effects are its own until the commit."""

    def __init__(self, store: MemoryStore, ledger_id: bytes, scope: Scope) -> None:
        self._store = store
        self._ledger_id = ledger_id
        self._scope = (scope.name, scope.generation)
        self._pending: dict[bytes, _Stored] | None = None
        self.pending_effects: list[tuple[str, Effect]] = []

    @property
    def ledger_id(self) -> bytes:
        return self._ledger_id

    def claim(self, claims: Sequence[Claim], *, owner: bytes, lease_seconds: float | None) -> Mapping[bytes, Row]:
        now = self._store.clock.monotonic()
        self._refuse_locked([each.digest for each in claims])
        until = None if lease_seconds is None else now + lease_seconds
        inserted = 0
        for each in claims:
            if self._seen(each.digest) is None:
                inserted += 1
                self._put(each.digest, _Stored(lease_seconds is None, owner, each, None, until, now, self._scope))
        return {} if inserted == len(claims) else self.read([each.digest for each in claims])

    def read(self, digests: Sequence[bytes]) -> Mapping[bytes, Row]:
        now = self._store.clock.monotonic()
        found = ((digest, self._seen(digest)) for digest in digests)
        return {digest: _row(digest, stored, now) for digest, stored in found if stored is not None}

    def take(self, takes: Sequence[Take], *, owner: bytes, lease_seconds: float) -> set[bytes]:
        now = self._store.clock.monotonic()
        taken = set()
        for digest, row, claim in takes:
            stored = self._seen(digest)
            if stored is None or stored.finished:
                continue
            if row is not None and (stored.owner, stored.lease_until) == (row.owner, row.lease_until):
                stored = stored._replace(owner=owner, lease_until=now + lease_seconds)
            if stored.owner != owner:
                continue
            self._put(digest, stored._replace(claim=claim or stored.claim))
            taken.add(digest)
        return taken

    def finish(self, finishes: Sequence[Finish], *, owner: bytes) -> set[bytes]:
        now = self._store.clock.monotonic()
        late = set()
        for claim, result in finishes:
            stored = self._seen(claim.digest)
            if stored is None:
                self._put(claim.digest, _Stored(True, owner, claim, result, None, now, self._scope))
            elif stored.owner != owner:
                late.add(claim.digest)
            elif not stored.finished:
                self._put(claim.digest, stored._replace(finished=True, result=result, lease_until=None, since=now))
        return late

    def release(self, digests: Sequence[bytes], *, owner: bytes) -> None:
        for digest in digests:
            stored = self._seen(digest)
            if stored is not None and stored.owner == owner and not stored.finished:
                del self._store.rows[digest]

    def open_rows(
        self, *, older_than_seconds: float, limit: int, after: object | None = None, skip: int = 0
    ) -> OpenPage:
        now = self._store.clock.monotonic()
        overdue = [
            (stored.lease_until, digest, stored)
            for digest, stored in self._overdue(older_than_seconds)
            if stored.scope == self._scope and (not isinstance(after, tuple) or (stored.lease_until, digest) > after)
        ]
        page = sorted(overdue)[skip : skip + limit]
        rows = [_row(digest, stored, now)._replace(payload=stored.claim.payload) for _, digest, stored in page]
        return OpenPage(rows, page[-1][:2] if len(page) == limit else None)

    def count_open(self, *, older_than_seconds: float) -> OpenCount:
        name, generation = self._scope
        found = [stored.scope[1] for _, stored in self._overdue(older_than_seconds) if stored.scope[0] == name]
        return OpenCount(sum(each == generation for each in found), sum(each < generation for each in found))

    def _overdue(self, seconds: float) -> list[tuple[bytes, _Stored]]:
        limit = self._store.clock.monotonic() - seconds
        rows = self._store.rows.items()
        return [each for each in rows if each[1].lease_until is not None and each[1].lease_until < limit]

    def forget(self, digests: Sequence[bytes]) -> set[bytes]:
        return {digest for digest in digests if self._store.rows.pop(digest, None) is not None}

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if self._pending is not None:
            raise Misconfigured("a transaction is open already: transactions do not nest")
        self._pending, self.pending_effects = {}, []
        try:
            yield
            self._store.rows.update(self._pending)
            for name, effect in self.pending_effects:
                self._store.effects.setdefault(name, []).append(effect)
        finally:
            self._store.locked -= set(self._pending)
            self._pending, self.pending_effects = None, []

    def close(self) -> None:
        """Nothing is held."""

    def _seen(self, digest: bytes) -> _Stored | None:
        own = self._pending.get(digest) if self._pending else None
        return own or self._store.rows.get(digest)

    def _put(self, digest: bytes, stored: _Stored) -> None:
        if self._pending is None:
            self._store.rows[digest] = stored
        else:
            self._pending[digest] = stored
            self._store.locked.add(digest)

    def _refuse_locked(self, digests: Sequence[bytes]) -> None:
        foreign = self._store.locked - set(self._pending or ())
        if not foreign.isdisjoint(digests):
            raise Unavailable("a row is locked by another transaction")


@dataclass(frozen=True, slots=True)
class MemoryCache:
    """A cache in memory that forgets by the clock of the ledger's store of the same name."""

    name: str = "default"
    ttl: timedelta = field(default=timedelta(minutes=10), kw_only=True)
    ttl_by: TTLRule | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_durations(self)
        check_rule(self.ttl_by)

    def open(self, ledger_id: bytes) -> _CacheSession:
        return _CacheSession(memory_store(self.name), ledger_id, self.ttl.total_seconds())


class _CacheSession:
    def __init__(self, store: MemoryStore, ledger_id: bytes, ttl_seconds: float) -> None:
        self._store = store
        self._prefix = ledger_id
        self._ttl_seconds = ttl_seconds

    def get(self, digests: Sequence[bytes]) -> Mapping[bytes, Entry]:
        now = self._store.clock.monotonic()
        found = ((digest, self._store.entries.get(self._prefix + digest)) for digest in digests)
        return {digest: held[0] for digest, held in found if held is not None and held[1] > now}

    def put(self, entries: Mapping[bytes, Entry]) -> None:
        now = self._store.clock.monotonic()
        for digest, entry in entries.items():
            until = now + self._ttl_seconds - entry.age_seconds
            self._store.entries[self._prefix + digest] = (entry._replace(age_seconds=0.0), until)

    def forget(self, digests: Sequence[bytes]) -> set[bytes]:
        return {digest for digest in digests if self._store.entries.pop(self._prefix + digest, None) is not None}

    def close(self) -> None:
        """Nothing is held."""


def _row(digest: bytes, stored: _Stored, now: float) -> Row:
    left = 0.0 if stored.lease_until is None else stored.lease_until - now
    _, occurrence, payload_hash, _ = stored.claim
    return Row(
        digest,
        stored.finished,
        occurrence,
        stored.owner,
        payload_hash,
        stored.result,
        stored.lease_until,
        left,
        now - stored.since,
    )

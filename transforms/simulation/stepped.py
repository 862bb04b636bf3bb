"""Ledger, cache and filter whose every call is a point of a schedule."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

from ...connectors.contract import (
    Claim,
    Entry,
    Finish,
    Row,
    Scope,
    Take,
)
from ...connectors.errors import OutcomeUnknown, Unavailable
from ...connectors.memory import MemoryLedgerSession
from ...connectors.upkeep import OpenCount, OpenPage
from .cells import Step
from .world import (
    CLAIM,
    COMMIT,
    FINISH,
    GET,
    INSERT,
    LIST,
    PUT,
    READ,
    RELEASE,
    TAKE,
    World,
)


class SteppedLedger:
    """A ledger in the world's store. `SinkKind.TRANSACTIONAL` sinks find it behind the wrapper of their own."""

    retention = timedelta(days=7)
    shared = True

    def __init__(self, world: World) -> None:
        self.world = world
        self._ledger_id = secrets.token_bytes(16)

    @property
    def store(self) -> Any:
        return self.world.store

    def open(self, scope: Scope) -> SteppedSession:
        return SteppedSession(self.world, MemoryLedgerSession(self.world.store, self._ledger_id, scope))


class SteppedSession:
    """An open ledger; a unit whose commit is lost has been committed."""

    def __init__(self, world: World, inner: MemoryLedgerSession) -> None:
        self.inner = inner
        self._world = world
        self._unit: list[bytes] = []

    @property
    def ledger_id(self) -> bytes:
        return self.inner.ledger_id

    def claim(self, claims: Sequence[Claim], *, owner: bytes, lease_seconds: float | None) -> Mapping[bytes, Row]:
        world = self._world
        me = world.current

        def apply() -> Mapping[bytes, Row]:
            rows = self.inner.claim(claims, owner=owner, lease_seconds=lease_seconds)
            mine = [each for each in digests if rows[each].owner == owner] if rows else digests
            me.reached(mine, Step.CLAIMED)
            return rows

        digests = [each.digest for each in claims]
        if me.inside:
            self._unit = digests
        return world.call("ledger", INSERT if me.inside else CLAIM, digests, apply)

    def read(self, digests: Sequence[bytes]) -> Mapping[bytes, Row]:
        return self._world.call("ledger", READ, digests, lambda: self.inner.read(digests))

    def take(self, takes: Sequence[Take], *, owner: bytes, lease_seconds: float) -> set[bytes]:
        me = self._world.current

        def apply() -> set[bytes]:
            taken = self.inner.take(takes, owner=owner, lease_seconds=lease_seconds)
            me.reached(list(taken), Step.CLAIMED)
            return taken

        return self._world.call("ledger", TAKE, [each.digest for each in takes], apply)

    def finish(self, finishes: Sequence[Finish], *, owner: bytes) -> set[bytes]:
        me = self._world.current
        digests = [each.claim.digest for each in finishes]

        def apply() -> set[bytes]:
            late = self.inner.finish(finishes, owner=owner)
            me.reached([each for each in digests if each not in late], Step.FINISHED)
            self._world.late_finishes |= late
            return late

        return self._world.call("ledger", FINISH, digests, apply)

    def release(self, digests: Sequence[bytes], *, owner: bytes) -> None:
        me = self._world.current

        def apply() -> None:
            self.inner.release(digests, owner=owner)
            me.reached(digests, Step.CACHE_ASKED if me.steps else Step.ARRIVED)

        self._world.call("ledger", RELEASE, digests, apply)

    def open_rows(
        self, *, older_than_seconds: float, limit: int, after: object | None = None, skip: int = 0
    ) -> OpenPage:
        look = partial(self.inner.open_rows, older_than_seconds=older_than_seconds, limit=limit, after=after, skip=skip)
        return self._world.call("ledger", LIST, (), look)

    def count_open(self, *, older_than_seconds: float) -> OpenCount:
        return self.inner.count_open(older_than_seconds=older_than_seconds)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        world = self._world
        me = world.current
        if "ledger" in me.cut_off:
            raise Unavailable("ledger cannot be reached")
        with self.inner.transaction():
            me.inside = True
            try:
                yield
                if world.point(COMMIT):
                    raise Unavailable("the transaction was rolled back")
            finally:
                me.inside = False
        me.reached(self._unit, Step.FINISHED)
        world.tell(f"{me.name}: commit of {world.name(self._unit)}")
        if world.point(COMMIT + 1):
            world.lose(me, COMMIT, self._unit)
            raise OutcomeUnknown("the reply to the commit was lost")

    def close(self) -> None:
        self.inner.close()


class SteppedCache:
    """A cache in the world's store. Its trouble is always `Unavailable`, whether the call was applied or not."""

    ttl = timedelta(minutes=10)

    def __init__(self, world: World) -> None:
        self._world = world

    def open(self, ledger_id: bytes) -> SteppedCache:
        return self

    def get(self, digests: Sequence[bytes]) -> Mapping[bytes, Entry]:
        world = self._world
        me = world.current

        def apply() -> Mapping[bytes, Entry]:
            me.reached(digests, Step.CACHE_ASKED)
            entries = world.store.entries
            return {digest: entries[digest][0] for digest in digests if digest in entries}

        found: Mapping[bytes, Entry] = self._call(GET, digests, apply)
        return found

    def put(self, entries: Mapping[bytes, Entry]) -> None:
        world = self._world
        me = world.current

        def apply() -> None:
            me.reached(list(entries), Step.CACHE_FILLED)
            for digest, entry in entries.items():
                world.store.entries[digest] = (entry._replace(age_seconds=0.0), 0.0)

        self._call(PUT, list(entries), apply)

    def _call(self, code: int, digests: Sequence[bytes], apply: Callable[[], Any]) -> Any:
        try:
            return self._world.call("cache", code, digests, apply)
        except OutcomeUnknown as error:
            raise Unavailable(str(error)) from error

    def close(self) -> None:
        """Nothing is held."""


class _Answers(list[bool]):
    def tolist(self) -> list[bool]:
        return self


class WhimsicalFilter:
    """Answers as it likes: a filter may never decide, so no answer of it may break anything."""

    def __init__(self, world: World) -> None:
        self._world = world

    def query(self, keys: Any) -> Any:
        world = self._world
        world.current.reached(keys.digests, Step.FILTER_ASKED)
        whim = world.choices.pick(16)
        return _Answers([bool(whim >> (at & 3) & 1) for at in range(len(keys))])

    def add(self, keys: Any) -> None:
        self._world.current.reached(keys.digests, Step.FILTER_FILLED)

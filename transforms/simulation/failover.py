"""What a fail-over of Redis takes away."""

from __future__ import annotations

from typing import Any

from .world import World


class FailOver:
    """The part of the world's store that a fail-over may lose: the cache, and the rows where Redis is the ledger."""

    def __init__(self, world: World, *, ledger: bool, cache: bool) -> None:
        self.used = ledger or cache
        self._world = world
        self._ledger = ledger
        self._copy = (dict(world.store.rows), dict(world.store.entries))
        self.touched: set[bytes] = set()
        """Keys whose row a fail-over took away or set back: there the promise ends."""

    def copy(self) -> None:
        """Let the replica catch up."""
        self._copy = (dict(self._world.store.rows), dict(self._world.store.entries))

    def lose(self) -> None:
        """Start empty."""
        self._world.tell("FAULT Redis loses everything")
        self._set({}, {})

    def fall_back(self) -> None:
        """Go on with what the replica has."""
        self._world.tell("FAULT Redis fails over to an old copy")
        rows, entries = self._copy
        self._set(dict(rows), dict(entries))

    def _set(self, rows: dict[bytes, Any], entries: dict[bytes, Any]) -> None:
        store = self._world.store
        self._world.faults += 1
        store.entries = entries
        if self._ledger:
            before = store.rows
            self.touched |= {each for each in {*before, *rows} if before.get(each) != rows.get(each)}
            store.rows = rows

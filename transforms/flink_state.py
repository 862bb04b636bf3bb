"""What a shard keeps in Flink's keyed state: the records that wait, and the membership filter.

All of it is PICKLED_BYTE_ARRAY: the one type that is quick in both execution modes. Entries are plain tuples of bytes
and numbers beside the record, so that a savepoint does not depend on where a class lives. A type cannot be shared
with the client, so each is made when the function opens.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from pyflink.common import Types
from pyflink.datastream.state import ListStateDescriptor, ValueStateDescriptor

from ..connectors.contract import Claim
from .membership import FilterState, Keys, MembershipRecipe
from .metrics import Metrics
from .prepare import Item
from .results import Refused

log = logging.getLogger("oncesink")

Entry = tuple[Any, ...]
"""(key, record, digest, occurrence, payload hash, size) as they arrived; (key, record, reason, detail) if refused."""

KEY, RECORD, SIZE = 0, 1, 5
_REFUSED_FIELDS = 4

_VERSION_BYTES = 8
"""A version is drawn, not counted: after a restore two histories would count to the same number."""


def entry_of(key: int, prepared: Item | Refused) -> Entry:
    """Return what travels to the shard, and waits there."""
    if type(prepared) is Item:
        return (key, prepared.record, *prepared.claim, prepared.size)
    return (key, *prepared)


def size_of(entry: Entry) -> int:
    """Return the size of a record in bytes, 0 where it is not known."""
    return 0 if len(entry) == _REFUSED_FIELDS else int(entry[SIZE])


def parse(entry: Entry) -> Item | Refused:
    """Return what `entry_of` took. An item's context is its entry."""
    if len(entry) == _REFUSED_FIELDS:
        return Refused(*entry[RECORD:])
    _, record, digest, occurrence, payload_hash, size = entry
    return Item(record, Claim(digest, occurrence, payload_hash), size, entry)


class Waiting:
    """The entries of the current key that have not gone through the gate."""

    def __init__(self, context: Any) -> None:
        self._state = context.get_list_state(ListStateDescriptor("oncesink-waiting", Types.PICKLED_BYTE_ARRAY()))

    def add(self, entry: Entry) -> None:
        self._state.add(entry)

    def load(self) -> list[Entry]:
        """Return them in the order in which they came."""
        # With `python.state.cache-size` at its default, what a bundle added is read back without a call to Java.
        return list(self._state.get() or ())

    def replace(self, entries: list[Entry]) -> None:
        if entries:
            self._state.update(entries)
        else:
            self._state.clear()


class ShardFilters:
    """The filters of the shards that came by here, decoded, each with the version of the state that it mirrors."""

    def __init__(self, recipe: MembershipRecipe, context: Any, metrics: Metrics) -> None:
        self._recipe = recipe
        self._metrics = metrics
        self._snapshot = context.get_state(ValueStateDescriptor("oncesink-filter", Types.PICKLED_BYTE_ARRAY()))
        self._log = context.get_list_state(ListStateDescriptor("oncesink-filter-log", Types.PICKLED_BYTE_ARRAY()))
        self._version = context.get_state(ValueStateDescriptor("oncesink-filter-version", Types.PICKLED_BYTE_ARRAY()))
        self._live: dict[int, tuple[bytes | None, FilterState]] = {}

    def of(self, key: int) -> ShardFilter:
        """Return the filter of the current key, for one flush."""
        version = self._version.value()
        known = self._live.get(key)
        if known is None or known[0] != version:
            known = self._live[key] = (version, self._load())
        return ShardFilter(known[1])

    def save(self, key: int, used: ShardFilter) -> None:
        """Bring into the state what a flush added: one append, or now and then a new snapshot."""
        live = used.live
        if not used.added and not live.due:
            return
        if live.due:
            self._snapshot.update(live.compact())
            self._log.clear()
        else:
            self._log.add(b"".join(used.added))
        version = os.urandom(_VERSION_BYTES)
        self._version.update(version)
        self._live[key] = (version, live)

    def _load(self) -> FilterState:
        live = FilterState(self._recipe, snapshot=self._snapshot.value(), log=self._log.get() or ())
        for reason in live.put_aside:
            self._metrics.count("filter_damaged")
            log.warning("part of a filter in state was put aside, its keys cost a look at the ledger: %s", reason)
        return live


class ShardFilter:
    """A filter on its way through one flush: it remembers what the flush added."""

    __slots__ = ("added", "live")

    def __init__(self, live: FilterState) -> None:
        self.live = live
        self.added: list[bytes] = []

    def query(self, keys: Keys) -> Any:
        return self.live.filter.query(keys)

    def add(self, keys: Keys) -> None:
        entries = self.live.record(keys)
        if entries:
            self.added.append(entries)

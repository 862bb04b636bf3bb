"""What a shard keeps in Flink's keyed state: the records that wait, and the membership filter.

All of it is PICKLED_BYTE_ARRAY: the one type that is quick in both execution modes. Entries are plain tuples of bytes
and numbers beside the record, so that a savepoint does not depend on where a class lives. A type cannot be shared
with the client, so each is made when the function opens.

A record is pickled once, before the hop, and read once, when its batch goes: on the way Flink pickles an entry up to
four times more, which costs little for bytes and much for a record.
"""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Sequence
from functools import partial
from typing import Any

from pyflink.common import Types
from pyflink.datastream.state import ListStateDescriptor, ValueStateDescriptor

from ..connectors.contract import Claim
from .cold_start import ColdStart
from .filter_watch import FilterWatch
from .gate import Gate
from .keys import Stamped
from .membership import FilterState, Keys, MembershipRecipe
from .metrics import Metrics
from .numbers import ShardRule, of_one_shard, shard_rule
from .prepare import Item, Preparer
from .results import Refused

log = logging.getLogger("oncesink")

Entry = tuple[Any, ...]
"""(key, pickled record), with a stamp as third where it has one: as it arrived. (key, record, digest, occurrence,
payload hash, size): in doubt, as it was asked for."""

_PAYLOAD, _STAMP, _SIZE = 1, 2, 5
_IN_DOUBT_FIELDS = 6
_PICKLE = 5
_CLAIM_FIELDS = 3
"""What is stored of a record for redrive is made anew where it is claimed."""

_VERSION_BYTES = 8
"""A version is drawn, not counted: after a restore two histories would count to the same number."""


def entry_of(key: int, record: Any) -> Entry:
    """Return what travels to the shard, and waits there until it is prepared."""
    if type(record) is Stamped:
        return key, pickle.dumps(record.record, _PICKLE), record.occurrence
    return key, pickle.dumps(record, _PICKLE)


def doubt_of(key: int, item: Item) -> Entry:
    """Return what waits in doubt: it is asked for again under the digest and occurrence that it had."""
    return (key, item.record, *item.claim[:_CLAIM_FIELDS], item.size)


def size_of(entry: Entry) -> int:
    """Return about how long a record is, in bytes."""
    return int(entry[_SIZE]) if len(entry) == _IN_DOUBT_FIELDS else len(entry[_PAYLOAD])


def items_of(entries: Sequence[Entry], prepare: Preparer) -> tuple[list[Item], list[Refused]]:
    """Return the items of entries, and what is refused; what has just arrived is prepared in one batch."""
    items: list[Item] = []
    arrived: list[Any] = []
    for entry in entries:
        if len(entry) == _IN_DOUBT_FIELDS:
            _, record, digest, occurrence, payload_hash, size = entry
            items.append(Item(record, Claim(digest, occurrence, payload_hash), size))
        else:
            record = pickle.loads(entry[_PAYLOAD])  # noqa: S301 - written by `entry_of`
            arrived.append(Stamped(entry[_STAMP], record) if len(entry) > _STAMP else record)
    prepared = prepare.batch(arrived)
    # What is in doubt came before whatever has just arrived.
    items += [each for each in prepared if type(each) is Item]
    refused = [each for each in prepared if type(each) is Refused] if len(items) < len(entries) else []
    return items, refused


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

    def __init__(
        self,
        recipe: MembershipRecipe,
        context: Any,
        metrics: Metrics,
        *,
        cold: ColdStart | None = None,
        shard_of: ShardRule | None = None,
    ) -> None:
        self._recipe = recipe
        self._metrics = metrics
        self._cold = cold
        self._shard_of = shard_of
        self._watch = FilterWatch(metrics)
        self._snapshot = context.get_state(ValueStateDescriptor("oncesink-filter", Types.PICKLED_BYTE_ARRAY()))
        self._log = context.get_list_state(ListStateDescriptor("oncesink-filter-log", Types.PICKLED_BYTE_ARRAY()))
        self._version = context.get_state(ValueStateDescriptor("oncesink-filter-version", Types.PICKLED_BYTE_ARRAY()))
        self._live: dict[int, tuple[bytes | None, FilterState]] = {}

    @classmethod
    def of_gate(cls, gate: Gate, context: Any, metrics: Metrics) -> ShardFilters | None:
        """Return the filters of a gate that has some."""
        own = gate.membership
        if not isinstance(own, MembershipRecipe):
            return None
        cold, rule = ColdStart.of(gate, metrics), shard_rule(own, gate.shards)
        return cls(of_one_shard(own, gate.shards), context, metrics, cold=cold, shard_of=rule)

    def of(self, key: int, item: Item) -> ShardFilter:
        """Return the filter of the current key, for one flush; the item is any of this key."""
        version = self._version.value()
        known = self._live.get(key)
        if known is None or known[0] != version:
            known = self._live[key] = (version, self._load(item))
        return ShardFilter(known[1])

    def save(self, key: int, used: ShardFilter) -> None:
        """Bring into the state what a flush added: one append, or now and then a new snapshot."""
        live = used.live
        self._watch.look(known.filter for _, known in self._live.values())
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

    def _load(self, item: Item) -> FilterState:
        start = None
        if self._cold is not None and self._shard_of is not None:
            start = partial(self._cold.snapshot, self._shard_of(item.record, item.claim.digest))
        live = FilterState(self._recipe, snapshot=self._snapshot.value(), log=self._log.get() or (), start=start)
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

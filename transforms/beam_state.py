"""Membership filters in Beam's keyed state: one a shard, decoded once and kept while it is current.

State can be read and written in `process` only, so log entries are appended there, before the writes they stand
for: one for each record, since asking for one key costs more than some bytes of log. Batches are asked and added
all at once.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
from apache_beam.coders import BytesCoder
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec

from .cold_start import ColdStart
from .filter_watch import FilterWatch
from .gate import Gate
from .membership import FilterState, Keys, MembershipFilter, MembershipRecipe, NumericRecipe
from .metrics import Metrics
from .numbers import keys_of, of_one_shard
from .prepare import Item
from .shards import shards_of

log = logging.getLogger("oncesink")

VERSION: Final = ReadModifyWriteStateSpec("version", BytesCoder())
"""Random bytes, drawn by each bundle that changes a filter: a worker that holds them holds that filter.

A counter would not do, since after a roll-back two histories count to the same number."""
SNAPSHOT: Final = ReadModifyWriteStateSpec("snapshot", BytesCoder())
LOG: Final = BagStateSpec("log", BytesCoder())

_VERSION_BYTES = 8


class Cell(Protocol):
    """What Beam gives for `VERSION` and `SNAPSHOT`."""

    def read(self) -> bytes | None: ...

    def write(self, value: bytes) -> None: ...


class Log(Protocol):
    """What Beam gives for `LOG`."""

    def read(self) -> Iterable[bytes]: ...

    def add(self, value: bytes) -> None: ...

    def clear(self) -> None: ...


class _Shard:
    """One shard's filter in memory, with the version of the state that it mirrors."""

    __slots__ = ("changed", "log_bytes", "pending", "state", "version")

    def __init__(self, state: FilterState, version: bytes | None, log_bytes: int) -> None:
        self.state = state
        self.version = version
        self.log_bytes = log_bytes
        self.changed = False
        """Whether this bundle changed the state."""
        self.pending: list[bytes] = []
        """Log entries of records that have not gone through the gate, so that memory does not know them."""

    @property
    def due(self) -> bool:
        return self.log_bytes >= self.state.filter.snapshot_bytes or self.state.due


class ShardFilters:
    """The filters of the shards that this worker has seen; each key is asked of its own shard's."""

    def __init__(self, recipe: MembershipRecipe, shards: int, metrics: Metrics, cold: ColdStart | None = None) -> None:
        self._recipe = of_one_shard(recipe, shards)
        self._shards = shards
        self._metrics = metrics
        self._cold = cold
        self._watch = FilterWatch(metrics)
        self._held: dict[int, _Shard] = {}
        self._current: dict[int, _Shard] = {}

    @classmethod
    def of(cls, gate: Gate, metrics: Metrics) -> ShardFilters | None:
        """Return the filters of a gate that has some."""
        own = gate.membership
        if not isinstance(own, MembershipRecipe):
            return None
        return cls(own, gate.shards, metrics, ColdStart.of(gate, metrics))

    def begin(self) -> None:
        """Trust nothing that is held in memory until its version was compared: a bundle starts."""
        for shard in self._current.values():
            shard.changed = False
            shard.pending.clear()
        self._current.clear()

    def note(self, number: int, items: Sequence[Item], version: Cell, snapshot: Cell, added: Log) -> None:
        """Put keys into the state of their shard's filter; memory gets them when the gate is through with them."""
        shard = self._current.get(number)
        if shard is None:
            shard = self._open(number, version, snapshot, added)
        entry = shard.state.filter.entries(keys_of(items, self._recipe))
        added.add(entry)
        shard.pending.append(entry)
        shard.log_bytes += len(entry)
        if not shard.changed:
            self._change(shard, version)
        if shard.log_bytes >= shard.state.filter.snapshot_bytes:
            self._compact(shard, snapshot, added)

    def through(self) -> None:
        """Forget which keys have not gone through the gate: all have."""
        for shard in self._current.values():
            shard.pending.clear()
        self._watch.look(shard.state.filter for shard in self._held.values())

    def query(self, keys: Keys) -> npt.NDArray[np.bool_]:
        """Return one truth value a key, in order; False: certainly never seen."""
        answers = np.ones(len(keys), dtype=np.bool_)
        for live, positions in self._by_filter(keys):
            answers[positions] = live.query(keys.take(positions))
        return answers

    def add(self, keys: Keys) -> None:
        """Add keys to the filters in memory; the state has them."""
        for live, positions in self._by_filter(keys):
            live.add(keys.take(positions))

    def _by_filter(self, keys: Keys) -> Iterator[tuple[MembershipFilter, npt.NDArray[np.intp]]]:
        if isinstance(self._recipe, NumericRecipe):
            shards = keys.integers % self._shards
        else:
            _ = keys.fingerprints  # hashed once, before the keys are taken apart
            shards = shards_of(keys.digests, self._shards).astype(np.int64)
        order = np.argsort(shards, kind="stable")
        numbers, starts = np.unique(shards[order], return_index=True)
        for number, positions in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
            yield self._current[number].state.filter, positions

    def _open(self, number: int, version: Cell, snapshot: Cell, added: Log) -> _Shard:
        stored = version.read()
        shard = self._held.get(number)
        if shard is None or shard.version != stored:
            shard = self._held[number] = self._load(number, stored, snapshot, added)
        self._current[number] = shard
        if shard.due:
            self._change(shard, version)
            self._compact(shard, snapshot, added)
        return shard

    def _load(self, number: int, stored: bytes | None, snapshot: Cell, added: Log) -> _Shard:
        chunks = list(added.read())
        start = None if self._cold is None else partial(self._cold.snapshot, number)
        state = FilterState(self._recipe, snapshot=snapshot.read(), log=chunks, start=start)
        for reason in state.put_aside:
            self._metrics.count("filter_damaged")
            log.warning("part of a filter in state was put aside, its keys cost a look at the ledger: %s", reason)
        return _Shard(state, stored, sum(map(len, chunks)))

    def _change(self, shard: _Shard, version: Cell) -> None:
        shard.version = os.urandom(_VERSION_BYTES)
        shard.changed = True
        version.write(shard.version)

    def _compact(self, shard: _Shard, snapshot: Cell, added: Log) -> None:
        snapshot.write(shard.state.compact())
        added.clear()
        pending = b"".join(shard.pending)
        if pending:
            added.add(pending)
        # What is pending is not counted: it may be more than a small filter, which would be compacted for every record.
        shard.log_bytes = 0

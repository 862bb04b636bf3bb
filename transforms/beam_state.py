"""Membership filters in Beam's keyed state: one a shard, decoded once and kept while it is current.

State can be read and written in `process` only, so a fingerprint is appended there, before the write it stands for.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
from apache_beam.coders import BytesCoder
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec

from .gate import Gate
from .membership import FilterState, Keys, MembershipRecipe
from .metrics import Metrics

VERSION: Final = ReadModifyWriteStateSpec("version", BytesCoder())
"""Random bytes, drawn by each bundle that changes a filter: who holds them in memory holds the filter."""
SNAPSHOT: Final = ReadModifyWriteStateSpec("snapshot", BytesCoder())
LOG: Final = BagStateSpec("log", BytesCoder())

_VERSION_BYTES = 16


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
    """One shard's filter in memory."""

    __slots__ = ("changed", "state", "version")

    def __init__(self, state: FilterState, version: bytes | None) -> None:
        self.state = state
        self.version = version
        self.changed = False
        """Whether this bundle changed it."""


class ShardFilters:
    """The filters of the shards that this worker has seen, and, as the gate's membership, what they said of a batch.

    A key enters its filter before the gate asks, so the answer is kept: `query` is positive for all but the digests that were
    new when `record` saw them.
    """

    def __init__(self, recipe: MembershipRecipe, metrics: Metrics) -> None:
        self._recipe = recipe
        self._metrics = metrics
        self._held: dict[int, _Shard] = {}
        self._current: dict[int, _Shard] = {}
        self._new: set[bytes] = set()

    @classmethod
    def of(cls, gate: Gate, metrics: Metrics) -> ShardFilters | None:
        """Return the filters of a gate that has some."""
        return None if gate.membership is None else cls(gate.membership, metrics)

    def begin(self) -> None:
        """Trust nothing that is held in memory until its version was compared: a bundle starts."""
        self._current.clear()
        self._new.clear()
        for shard in self._held.values():
            shard.changed = False

    def record(self, number: int, digest: bytes, version: Cell, snapshot: Cell, log: Log) -> None:
        """Add a key to its shard's filter, in memory and in state."""
        shard = self._current.get(number) or self._open(number, version, snapshot, log)
        entry = shard.state.record(Keys((digest,)))
        if not entry:
            return
        self._new.add(digest)
        log.add(entry)
        if not shard.changed:
            self._change(shard, version)
        if shard.state.due:
            self._compact(shard, version, snapshot, log)

    def query(self, keys: Keys) -> npt.NDArray[np.bool_]:
        """Return one truth value a key, in order; False: it was new when it came."""
        new = self._new
        return np.fromiter((digest not in new for digest in keys.digests), dtype=np.bool_, count=len(keys))

    def add(self, keys: Keys) -> None:
        """Do nothing: `record` has added them."""

    def forget_batch(self) -> None:
        """Drop what was said of a batch that went through the gate: from now on its keys are known."""
        self._new.clear()

    def _open(self, number: int, version: Cell, snapshot: Cell, log: Log) -> _Shard:
        stored = version.read()
        shard = self._held.get(number)
        if shard is None or shard.version != stored:
            shard = self._load(stored, snapshot, log)
            self._held[number] = shard
        self._current[number] = shard
        if shard.state.due:
            self._compact(shard, version, snapshot, log)
        return shard

    def _load(self, stored: bytes | None, snapshot: Cell, log: Log) -> _Shard:
        state = FilterState(self._recipe, snapshot=snapshot.read(), log=log.read())
        self._metrics.count("filter_damaged", len(state.put_aside))
        return _Shard(state, stored)

    def _change(self, shard: _Shard, version: Cell) -> None:
        shard.version = os.urandom(_VERSION_BYTES)
        shard.changed = True
        version.write(shard.version)

    def _compact(self, shard: _Shard, version: Cell, snapshot: Cell, log: Log) -> None:
        snapshot.write(shard.state.compact())
        log.clear()
        if not shard.changed:
            self._change(shard, version)

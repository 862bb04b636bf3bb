"""What every membership filter promises, and what its errors say.

A filter is a hint. "Certainly never added" is true of all that the filter has not forgotten; where it is not, a claim
finds a row. "Perhaps" costs a look at the ledger. Neither decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from ...connectors.errors import Misconfigured
from ..metrics import Metrics
from .hashing import Keys


class FilterUnusable(Misconfigured):
    """A filter cannot be made or loaded; nothing was changed."""


class FilterDamaged(FilterUnusable):
    """What should be a filter, or its log, is truncated, altered, foreign, or written by a newer release."""


class FilterMismatch(FilterUnusable):
    """A sound filter that was made for other settings."""


class FilterTooLarge(FilterUnusable):
    """A filter does not fit into the memory that this process may still take; nothing was allocated."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Occupancy:
    """How full a filter is. Keys and rate are estimates from its set bits, so repeats do not count."""

    capacity_keys: int
    estimated_keys: float
    estimated_error_rate: float
    set_bits: int
    bits: int
    generations: int = 1
    window_seconds: float | None = None
    """How far back keys are remembered, at the least; None where none was forgotten."""

    @property
    def fill(self) -> float:
        """Return the share of bits that are set."""
        return self.set_bits / self.bits

    @property
    def used(self) -> float:
        """Return the share of the capacity that is used up; above 1 the asked error rate no longer holds."""
        return self.estimated_keys / self.capacity_keys


def together(each: Sequence[Occupancy], *, window_seconds: float) -> Occupancy:
    """Return how full several filters are that are all asked, and what their keys cost together."""
    return Occupancy(
        capacity_keys=sum(one.capacity_keys for one in each),
        estimated_keys=sum(one.estimated_keys for one in each),
        estimated_error_rate=1 - prod(1 - one.estimated_error_rate for one in each),
        set_bits=sum(one.set_bits for one in each),
        bits=sum(one.bits for one in each),
        generations=len(each),
        window_seconds=window_seconds,
    )


@runtime_checkable
class MembershipFilter(Protocol):
    """A live filter. It belongs to one thread: nothing in it is locked.

    `entry_bytes` is the length of one log entry, `snapshot_bytes` the length of what `to_bytes` returns. `revision` is
    0 at first, and changes whenever the filter was rearranged in a way that its log does not tell: a snapshot is due
    then.
    """

    @property
    def entry_bytes(self) -> int: ...

    @property
    def snapshot_bytes(self) -> int: ...

    @property
    def revision(self) -> int: ...

    def query(self, keys: Keys) -> npt.NDArray[np.bool_]:
        """Return one truth value a key, in order. False: certainly never added, or forgotten. True: perhaps added."""
        ...

    def add(self, keys: Keys) -> None:
        """Add all keys. Adding a key again changes nothing."""
        ...

    def record(self, keys: Keys) -> bytes:
        """Add all keys and return the log entries of those that the filter did not know, in order.

        The keys of one call are distinct, else one of them may get two entries. `replay` of the entries on any filter
        of this kind, of any size, makes it know these keys.
        """
        ...

    def entries(self, keys: Keys) -> bytes:
        """Return a log entry for each key, known or not, and add nothing."""
        ...

    def replay(self, entries: bytes) -> None:
        """Add what `record` returned, any number of calls joined. Raises `FilterDamaged`, and then adds nothing."""
        ...

    def occupancy(self) -> Occupancy:
        """Return how full the filter is. Reads all of it: about a millisecond for each 2 MiB."""
        ...

    def to_bytes(self) -> bytes:
        """Return the filter as its recipe loads it. The same calls leave equal bytes, on every machine."""
        ...


@runtime_checkable
class MembershipRecipe(Protocol):
    """The settings of a filter: a value, equal by content, picklable. Workers make the live filter from it.

    `description` names kind and settings and stays the same between releases. `memory_bytes` is for one live filter.
    """

    @property
    def description(self) -> str: ...

    @property
    def memory_bytes(self) -> int: ...

    def create(self) -> MembershipFilter:
        """Return an empty filter. Raises `FilterTooLarge` before it allocates."""
        ...

    def load(self, snapshot: bytes) -> MembershipFilter:
        """Return the filter that `to_bytes` wrote. Raises `FilterDamaged`, `FilterMismatch` or `FilterTooLarge`."""
        ...


@runtime_checkable
class NumericRecipe(MembershipRecipe, Protocol):
    """The settings of a filter over numbers: each record bears an id, and `Keys.integers` hands it to the filter."""

    def number_of(self, record: Any) -> int:
        """Return the record's id. Raises `Rejected`: such a record does not enter the gate."""
        ...

    def for_shards(self, shards: int) -> NumericRecipe:
        """Return the recipe of one shard's filter, where a record goes to shard `id % shards`."""
        ...


@runtime_checkable
class SharedFilter(Protocol):
    """An open filter that several jobs share. It belongs to one thread, and raises nothing for a server's trouble.

    Where the filter is lost or cannot be reached nothing is known: every key is perhaps added, and none is added.
    """

    def query(self, keys: Keys) -> npt.NDArray[np.bool_]: ...

    def add(self, keys: Keys) -> None: ...

    def close(self) -> None:
        """Give the connection back. Safe to repeat."""
        ...


@runtime_checkable
class SharedRecipe(Protocol):
    """The settings of a filter that lives outside of the job: opened once a worker, kept in no engine's state."""

    @property
    def description(self) -> str: ...

    @property
    def memory_bytes(self) -> int: ...

    def open(self, metrics: Metrics) -> SharedFilter:
        """Connect. Raises `Misconfigured`; a server that is away does not hinder it."""
        ...


AnyRecipe = MembershipRecipe | SharedRecipe
"""What a gate takes as `membership=`."""

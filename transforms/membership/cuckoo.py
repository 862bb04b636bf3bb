"""A cuckoo filter that forgets keys when they are old: its settings, and the live filter."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from math import ceil
from typing import Final

import numpy as np
import numpy.typing as npt

from .contract import FilterDamaged, FilterMismatch, FilterUnusable, Occupancy
from .cuckoo_snapshot import ENTRY, ENTRY_TAG, HEADER, Header, read, write
from .hashing import Fingerprints, Keys
from .memory import require_memory
from .nests import AGES, LOAD, MARKS, SLOTS, Nests

KEPT_SLICES: Final = AGES - 2
"""A key stays for so many whole slices beside the one in which it came; one age is always free."""

SHORTEST: Final = timedelta(minutes=1)
HIGHEST_BUCKETS: Final = 1 << 31


@dataclass(frozen=True, kw_only=True, slots=True)
class Cuckoo:
    """Settings of a filter that knows a key for `window` after it was last added, and a sixth of it longer at the most.

    `capacity` is how many different keys come within such a time. It takes 16.9 bits a key, and one in a thousand
    absent keys for known. Beyond its capacity keys that find no place are forgotten.
    """

    capacity: int
    window: timedelta
    clock: Callable[[], float] = field(default=time.time, repr=False, compare=False)
    """Seconds since 1970; what is stored is judged by other workers."""

    def __post_init__(self) -> None:
        if type(self.capacity) is not int or self.capacity < 1:
            raise FilterUnusable(f"capacity={self.capacity!r} must be a whole number of keys, at least 1")
        if self.window < SHORTEST:
            raise FilterUnusable(f"window={self.window} must be at least {SHORTEST}")
        if self.buckets > HIGHEST_BUCKETS:
            raise FilterUnusable(f"capacity={self.capacity} is too much for one filter: use more shards")

    def __str__(self) -> str:
        return self.description

    @property
    def description(self) -> str:
        return f"cuckoo(capacity={self.capacity}, window={self.window.total_seconds():g}s)"

    @property
    def buckets(self) -> int:
        return ceil(self.capacity / (SLOTS * LOAD))

    @property
    def memory_bytes(self) -> int:
        return self.buckets * SLOTS * 2

    @property
    def slice_micros(self) -> int:
        """Return how long keys get the same age."""
        return self.window // timedelta(microseconds=1) // KEPT_SLICES

    def create(self) -> CuckooFilter:
        require_memory(self.memory_bytes, purpose=str(self))
        return CuckooFilter(self, np.zeros(self.buckets * SLOTS, dtype="<u2"), 0)

    def load(self, snapshot: bytes) -> CuckooFilter:
        header, body = read(snapshot)
        if (header.capacity, header.slice_micros) != (self.capacity, self.slice_micros):
            window = timedelta(microseconds=header.slice_micros * KEPT_SLICES)
            made = f"capacity={header.capacity}, window={window.total_seconds():g}s"
            raise FilterMismatch(f"the stored filter was made for {made}, and {self} is asked for: rebuild it")
        require_memory(self.memory_bytes, purpose=str(self))
        return CuckooFilter(self, np.frombuffer(body, dtype="<u2").copy(), header.slice_number)


class CuckooFilter:
    """A live cuckoo filter, made by `Cuckoo.create` or `Cuckoo.load`. Not locked: it belongs to one thread."""

    __slots__ = ("_nests", "_now", "forgotten", "recipe")

    def __init__(self, recipe: Cuckoo, slots: npt.NDArray[np.uint16], slice_number: int) -> None:
        self.recipe = recipe
        self._nests = Nests(slots)
        self._now = slice_number
        self.forgotten = 0
        """Keys that found no place since the filter was made or loaded."""
        self._forget()

    def __repr__(self) -> str:
        return f"<CuckooFilter {self.recipe}, {self.occupancy().used:.1%} used, {self.forgotten} forgotten>"

    @property
    def entry_bytes(self) -> int:
        return ENTRY.itemsize

    @property
    def revision(self) -> int:
        return 0

    @property
    def snapshot_bytes(self) -> int:
        return HEADER.size + self._nests.slots.nbytes

    def query(self, keys: Keys) -> npt.NDArray[np.bool_]:
        self._forget()
        nests = self._nests
        buckets, marks = nests.places(keys.fingerprints[:, 0])
        answer = nests.holds(buckets, marks)
        answer |= nests.holds(nests.other(buckets, marks), marks)
        return answer

    def add(self, keys: Keys) -> None:
        self._forget()
        fingerprints = keys.fingerprints[:, 0]
        self._put(fingerprints, np.full(len(fingerprints), self._now, dtype=np.int64))

    def record(self, keys: Keys) -> bytes:
        """Do what every filter does; a known key gets an entry once a slice, since it is known for longer then."""
        self._forget()
        fingerprints = keys.fingerprints[:, 0]
        changed = self._put(fingerprints, np.full(len(fingerprints), self._now, dtype=np.int64))
        return self._entries(fingerprints[changed])

    def entries(self, keys: Keys) -> bytes:
        return self._entries(keys.fingerprints[:, 0])

    def replay(self, entries: bytes) -> None:
        if len(entries) % ENTRY.itemsize:
            raise FilterDamaged(f"a log of {len(entries)} bytes is no whole number of {ENTRY.itemsize}-byte entries")
        found = np.frombuffer(entries, dtype=ENTRY)
        if (found["tag"] != ENTRY_TAG).any():
            raise FilterDamaged("a log that does not hold times: it was written for another kind of filter")
        self._forget()
        slices = found["seconds"].astype(np.int64) * 1_000_000 // self.recipe.slice_micros
        # A clock that was ahead must not make keys immortal.
        slices = np.minimum(slices, self._now)
        alive = slices >= self._now - KEPT_SLICES
        self._put(found["fingerprint"][alive], slices[alive])

    def occupancy(self) -> Occupancy:
        self._forget()
        slots, used = len(self._nests.slots), self._nests.used()
        return Occupancy(
            capacity_keys=self.recipe.capacity,
            estimated_keys=float(used),
            estimated_error_rate=1 - (1 - 1 / MARKS) ** (2 * SLOTS * used / slots),
            set_bits=used,
            bits=slots,
            window_seconds=self.recipe.window.total_seconds(),
        )

    def to_bytes(self) -> bytes:
        self._forget()
        header = Header(
            capacity=self.recipe.capacity,
            slice_micros=self.recipe.slice_micros,
            slice_number=self._now,
            buckets=self._nests.buckets,
        )
        return write(header, self._nests.slots)

    def _forget(self) -> None:
        """Empty the slots of keys that are too old."""
        now = int(self.recipe.clock() * 1_000_000) // self.recipe.slice_micros
        if now <= self._now:
            return
        if now - self._now > KEPT_SLICES:
            self._nests.slots[:] = 0
        else:
            for each in range(self._now + 1, now + 1):
                self._nests.clear((each - KEPT_SLICES - 1) % AGES)
        self._now = now

    def _put(self, fingerprints: Fingerprints, slices: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Add keys that came in these slices; tell which of them changed the filter."""
        nests, ages = self._nests, slices % AGES
        buckets, marks = nests.places(fingerprints)
        changed = np.ones(len(fingerprints), dtype=np.bool_)
        known = np.zeros(len(fingerprints), dtype=np.bool_)
        for each in (buckets, nests.other(buckets, marks)):
            slots = nests.find(each, marks)
            there = (slots >= 0).nonzero()[0]
            held = nests.slots.take(slots[there])
            older = self._slices_old(held % AGES) > self._slices_old(ages[there])
            nests.slots[slots[there[older]]] = held[older] // AGES * AGES + ages[there[older]].astype(np.uint16)
            changed[there] = older
            known[there] = True
        fresh = (~known).nonzero()[0]
        if len(fresh):
            _, first = np.unique(buckets[fresh] * (MARKS + 1) + marks[fresh].view(np.int64), return_index=True)
            new = fresh[np.sort(first)]
            self.forgotten += nests.settle(buckets[new], marks[new], ages[new].view(np.uint64))
        return changed

    def _slices_old(self, ages: npt.NDArray[np.int64] | npt.NDArray[np.uint16]) -> npt.NDArray[np.int64]:
        return (self._now - ages.astype(np.int64)) % AGES

    def _entries(self, fingerprints: Fingerprints) -> bytes:
        entries = np.empty(len(fingerprints), dtype=ENTRY)
        entries["tag"] = ENTRY_TAG
        entries["seconds"] = int(self.recipe.clock())
        entries["fingerprint"] = fingerprints
        return entries.tobytes()

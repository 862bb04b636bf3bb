"""Where a key stands in a cuckoo filter: layout 1. Stored filters depend on every number here.

A bucket is four slots of 16 bits, one word. A slot holds 13 bits of the key, never all zero, and 3 bits that tell
when it came; an empty one is zero. The upper half of a fingerprint chooses the first bucket, the lower half the 13
bits, and these tell the second bucket from the first and the first from the second, for any number of buckets. (From
"Cuckoo Filter: Practically Better Than Bloom" by B. Fan, D. Andersen, M. Kaminsky and M. Mitzenmacher, CoNEXT 2014.)
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from .blocks import MIX
from .hashing import Fingerprints

LAYOUT: Final = 1
SLOTS: Final = 4
AGE_BITS: Final = 3
AGES: Final = 1 << AGE_BITS
MARKS: Final = (1 << 16 - AGE_BITS) - 1
"""How many different marks of a key there are."""

LOAD: Final = 0.95
"""Beyond it the last keys find no slot, however much is moved."""

ROUNDS: Final = 300
"""How often keys are moved before one is given up."""

HALF: Final = np.uint64(32)
LOWER: Final = np.uint64(0xFFFF_FFFF)
LANES: Final = np.uint64(0x0001_0001_0001_0001)
MARK_BITS: Final = np.uint64(0xFFF8_FFF8_FFF8_FFF8)
HIGH_BITS: Final = np.uint64(0x8000_8000_8000_8000)

Buckets = npt.NDArray[np.int64]
Marks = npt.NDArray[np.uint64]
Slots = npt.NDArray[np.uint16]
Truths = npt.NDArray[np.bool_]


class Nests:
    """The slots of a filter of `buckets` buckets."""

    __slots__ = ("_bucket_words", "buckets", "slots")

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self._bucket_words = slots.view("<u8")
        self.buckets = len(self._bucket_words)

    def places(self, fingerprints: Fingerprints) -> tuple[Buckets, Marks]:
        """Return the first bucket and the mark of each key."""
        first = ((fingerprints >> HALF) * np.uint64(self.buckets)) >> HALF
        marks = ((fingerprints & LOWER) * np.uint64(MARKS) >> HALF) + np.uint64(1)
        return first.view(np.int64), marks

    def other(self, buckets: Buckets, marks: Marks) -> Buckets:
        """Return the other bucket of each key."""
        mixed = (marks * np.uint64(MIX) >> HALF) * np.uint64(self.buckets) >> HALF
        other = mixed.view(np.int64) - buckets
        other[other < 0] += self.buckets
        return other

    def holds(self, buckets: Buckets, marks: Marks) -> Truths:
        """Tell whether a key's mark is in this bucket: four slots are looked at in one word."""
        found = self._bucket_words.take(buckets)
        found ^= marks * (LANES << np.uint64(AGE_BITS))
        found &= MARK_BITS
        # A 16-bit part is zero where borrowing from it reaches its highest bit (Hacker's Delight, section 6-1).
        answer: Truths = ((found - LANES) & ~found & HIGH_BITS) != 0
        return answer

    def find(self, buckets: Buckets, marks: Marks) -> npt.NDArray[np.int64]:
        """Return the slot of each key in this bucket, -1 where it is not there."""
        return self._first(self.slots.reshape(-1, SLOTS).take(buckets, axis=0) >> AGE_BITS == marks[:, None], buckets)

    def empty(self, buckets: Buckets) -> npt.NDArray[np.int64]:
        """Return the first empty slot of each bucket, -1 where it is full."""
        return self._first(self.slots.reshape(-1, SLOTS).take(buckets, axis=0) == 0, buckets)

    def clear(self, age: int) -> None:
        """Empty all slots of an age."""
        self.slots[(self.slots & (AGES - 1)) == age] = 0

    def used(self) -> int:
        """Return how many slots are taken."""
        return int(np.count_nonzero(self.slots))

    def settle(self, buckets: Buckets, marks: Marks, ages: npt.NDArray[np.uint64]) -> int:
        """Give each key a slot, moving others; return how many keys found none, old ones or new."""
        values = (marks << np.uint64(AGE_BITS) | ages).astype(np.uint16)
        for turn in range(ROUNDS):
            if not len(values):
                return 0
            buckets, values = self._move(*self._fill(buckets, values), turn)
        return len(values)

    def _fill(self, buckets: Buckets, values: Slots) -> tuple[Buckets, Slots]:
        """Put what fits into empty slots of either bucket; return the rest."""
        for _ in range(2):
            slots = self.empty(buckets)
            there = slots >= 0
            self.slots[slots[there]] = values[there]
            # Where several want one slot the last one has it.
            kept = ~there | (self.slots.take(slots, mode="clip") != values)
            values = values[kept]
            buckets = self._other_of(buckets[kept], values)
        return buckets, values

    def _move(self, buckets: Buckets, values: Slots, turn: int) -> tuple[Buckets, Slots]:
        """Let each take another's slot; return those that were driven out, and where they go."""
        if not len(values):
            return buckets, values
        # No chance is in it: the same calls leave the same bytes.
        slots = buckets * SLOTS + ((values >> AGE_BITS).astype(np.int64) + turn) % SLOTS
        driven_out = self.slots.take(slots)
        self.slots[slots] = values
        won = self.slots.take(slots) == values
        next_buckets = np.where(won, self._other_of(buckets, driven_out), self._other_of(buckets, values))
        next_values = np.where(won, driven_out, values)
        rest = next_values != 0
        return next_buckets[rest], next_values[rest]

    def _other_of(self, buckets: Buckets, values: Slots) -> Buckets:
        return self.other(buckets, (values >> AGE_BITS).astype(np.uint64))

    @staticmethod
    def _first(found: Truths, buckets: Buckets) -> npt.NDArray[np.int64]:
        slots: npt.NDArray[np.int64] = buckets * SLOTS + found.argmax(axis=1)
        slots[~found.any(axis=1)] = -1
        return slots

"""Where the bits of a key are: layout 1 of the split-block Bloom filter. Stored filters depend on every number here.

A block is 512 bits, one cache line, split into eight words of 64. The upper half of a 64-bit fingerprint chooses a
block and a first word in it. Multiplied by an odd constant, the fingerprint chooses one to three other words of the
block, and for each word one of 4,096 patterns of three bits. Three bits at once make a query a few numpy operations on
whole batches, with one read of the filter for each word. (Blocks and tables of patterns are from the paper that
`sizing` names, blocks split into words from Apache Parquet and Impala.)
"""

from __future__ import annotations

from functools import cache
from itertools import combinations
from typing import Final

import numpy as np
import numpy.typing as npt

from .hashing import Fingerprints

LAYOUT: Final = 1
WORD_BITS: Final = 64
WORDS_PER_BLOCK: Final = 8
BLOCK_BITS: Final = WORD_BITS * WORDS_PER_BLOCK
BLOCK_BYTES: Final = BLOCK_BITS // 8
BITS_PER_PROBE: Final = 3
PROBES: Final = (2, 3, 4)
PATTERNS: Final = 4096
HIGHEST_BLOCKS: Final = 1 << 27
"""Beyond 8 GiB the 32 bits that choose a block would spread keys unevenly."""

MIX: Final = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio (Knuth, The Art of Computer Programming 3, section 6.4)."""

HALF: Final = 32
FIRST_SHIFT: Final = HALF - 3
"""A product of halves is shifted so far that the block is left, followed by three bits for a word."""

CHOICES: Final = 32
CHOICE_SHIFT: Final = 59
PATTERN_SHIFTS: Final = (47, 35, 23, 11)

U_MIX: Final = np.uint64(MIX)
U_HALF: Final = np.uint64(HALF)
U_FIRST_SHIFT: Final = np.uint64(FIRST_SHIFT)
U_CHOICE_SHIFT: Final = np.uint64(CHOICE_SHIFT)
U_PATTERN: Final = np.uint64(PATTERNS - 1)

Positions = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


class SplitBlocks:
    """The addressing of a filter of `blocks` blocks, with `probes` words a key."""

    __slots__ = ("_blocks", "_offsets", "_patterns", "_shifts", "blocks", "probes")

    def __init__(self, *, blocks: int, probes: int) -> None:
        self.blocks = blocks
        self.probes = probes
        self._blocks = np.uint64(blocks)
        self._offsets = np.array(offsets(probes), dtype=np.uint64).T.copy()
        self._patterns = np.array(patterns(), dtype=np.uint64)
        self._shifts = np.array(PATTERN_SHIFTS[:probes], dtype=np.uint64).reshape(-1, 1)

    def locate(self, fingerprints: Fingerprints) -> tuple[Positions, Words]:
        """Return the words that a batch looks at and the bits it wants there: both (probes, fingerprints)."""
        mixed = fingerprints * U_MIX
        pattern = mixed >> self._shifts
        pattern &= U_PATTERN
        mixed >>= U_CHOICE_SHIFT
        first = fingerprints >> U_HALF
        first *= self._blocks
        first >>= U_FIRST_SHIFT
        # numpy indexes with signed integers: seen as such, nothing is converted.
        position = self._offsets.take(mixed.view(np.int64), axis=1)
        position ^= first
        return position.view(np.int64), self._patterns.take(pattern.view(np.int64))

    def locate_one(self, fingerprint: int) -> list[tuple[int, int]]:
        """Return (word, bits) for each probe: what `locate` returns, without numpy's cost of a call."""
        mixed = fingerprint * MIX & 0xFFFF_FFFF_FFFF_FFFF
        first = (fingerprint >> HALF) * self.blocks >> FIRST_SHIFT
        words = offsets(self.probes)[mixed >> CHOICE_SHIFT]
        known = patterns()
        return [
            (first ^ word, known[mixed >> shift & PATTERNS - 1])
            for word, shift in zip(words, PATTERN_SHIFTS, strict=False)
        ]


@cache
def patterns() -> tuple[int, ...]:
    """Return the patterns as words."""
    return tuple(sum(1 << bit for bit in bits) for bits in pattern_bits())


def pattern_bits() -> list[tuple[int, ...]]:
    """Return the patterns: of all 41,664 ways to set three of 64 bits, in lexicographic order, about every tenth."""
    return _spread(list(combinations(range(WORD_BITS), BITS_PER_PROBE)), PATTERNS)


@cache
def offsets(probes: int) -> tuple[tuple[int, ...], ...]:
    """Return what turns the first word into all words of a key, by exclusive or: a row a choice."""
    others = list(combinations(range(1, WORDS_PER_BLOCK), probes - 1))
    return tuple((0, *each) for each in _spread(others, CHOICES))


def new_words(blocks: int) -> Words:
    """Return clear words for so many blocks, each block in one cache line."""
    room = np.zeros((blocks + 1) * WORDS_PER_BLOCK, dtype="<u8")
    skip = -room.ctypes.data % BLOCK_BYTES // room.itemsize
    return room[skip : skip + blocks * WORDS_PER_BLOCK]


def _spread(items: list[tuple[int, ...]], count: int) -> list[tuple[int, ...]]:
    """Return `count` of the items at equal distances, some more than once where there are fewer."""
    return [items[number * len(items) // count] for number in range(count)]

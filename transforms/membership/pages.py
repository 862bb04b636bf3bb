"""Bits by index, in pages: layout 1 of the bitmap. Bit i of a page is bit i % 8 of its byte i // 8.

Pages are taken when they are first written, and there are never more than so many: then those with the lowest indexes
go, and whatever lies below them counts as set.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

LAYOUT: Final = 1
PAGE_SHIFT: Final = 18
PAGE_IDS: Final = 1 << PAGE_SHIFT
PAGE_BYTES: Final = PAGE_IDS // 8

EXTRA_PAGES: Final = 2
"""One of zeros stands for all pages that are not there, one of ones for all that were given up."""

DIRECTORY_PAGES: Final = 1 << 16
"""Pages that lie within so many of each other are found by a table, others by search."""

_LAST: Final = np.iinfo(np.int64).max

Indexes = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_BITS: Final = (1 << np.arange(8)).astype(np.uint8)


class Pages:
    """Bits that are set by index. `floor` is the first page number that was never given up."""

    __slots__ = ("_bits", "_directory", "_first", "_free", "_numbers", "_starts", "_zeros", "floor", "most")

    def __init__(self, *, most: int) -> None:
        self.most = most
        self.floor = 0
        # The system gives memory when a page is first written.
        self._bits: Bytes = np.zeros((most + EXTRA_PAGES) * PAGE_BYTES, dtype=np.uint8)
        self._zeros = most * PAGE_BYTES
        self._bits[self._zeros + PAGE_BYTES :] = 0xFF
        self._free = list(range(most - 1, -1, -1))
        self._numbers: Indexes = np.zeros(0, dtype=np.int64)
        self._starts: Indexes = np.zeros(0, dtype=np.int64)
        self._index()

    @classmethod
    def of(cls, numbers: Indexes, bits: memoryview, *, most: int, floor: int) -> Pages:
        """Return pages as they were stored: their numbers, ascending, and their bits one after the other."""
        pages = cls(most=most)
        pages.floor = floor
        pages._take(numbers)
        for at, start in enumerate(pages._starts.tolist()):
            page = np.frombuffer(bits[at * PAGE_BYTES : (at + 1) * PAGE_BYTES], dtype=np.uint8)
            pages._bits[start : start + PAGE_BYTES] = page
        return pages

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def numbers(self) -> Indexes:
        """Return the numbers of the pages there are, ascending."""
        return self._numbers

    def query(self, indexes: Indexes) -> npt.NDArray[np.bool_]:
        """Return one truth value an index: whether its bit is set, or was given up."""
        found = self._bits.take(self._bytes(indexes, self._starts_of(indexes >> PAGE_SHIFT)), mode="clip")
        found &= _BITS.take(indexes & 7)
        answer: npt.NDArray[np.bool_] = found != 0
        return answer

    def add(self, indexes: Indexes) -> None:
        """Set bits; those below the floor count as set."""
        pages = indexes >> PAGE_SHIFT
        starts = self._starts_of(pages)
        missing = starts == self._zeros
        if missing.any():
            self._take(np.unique(pages[missing]))
            starts = self._starts_of(pages)
            kept = starts != self._zeros
            indexes, starts = indexes[kept], starts[kept]
        at, bits = self._bytes(indexes, starts), _BITS.take(indexes & 7)
        found = self._bits.take(at, mode="clip")
        found |= bits
        self._bits[at] = found
        # Where several share a byte the last one has won.
        lost = ((self._bits.take(at, mode="clip") & bits) == 0).nonzero()[0]
        if len(lost):
            np.bitwise_or.at(self._bits, at[lost], bits[lost])

    def set_bits(self) -> int:
        """Return how many bits are set. Reads all pages."""
        return sum(int.from_bytes(page, "little").bit_count() for page in self.stored())

    def stored(self) -> list[memoryview]:
        """Return the bits of each page, in the order of their numbers."""
        view = self._bits.data
        return [view[start : start + PAGE_BYTES] for start in self._starts.tolist()]

    @staticmethod
    def _bytes(indexes: Indexes, starts: Indexes) -> Indexes:
        at = indexes >> 3
        at &= PAGE_BYTES - 1
        at += starts
        return at

    def _starts_of(self, pages: Indexes) -> Indexes:
        """Return where each page begins, be it one of the extra pages."""
        if self._directory is not None:
            found: Indexes = self._directory.take(pages - self._first, mode="clip")
            return found
        places = np.append(self._numbers, _LAST).searchsorted(pages)
        there = np.append(self._numbers, -1).take(places) == pages
        starts = np.where(there, np.append(self._starts, 0).take(places), self._zeros)
        starts[pages < self.floor] = self._zeros + PAGE_BYTES
        return starts

    def _index(self) -> None:
        """Make the table of where each page begins; what lies before and behind it gets an extra page."""
        below = self._zeros + (PAGE_BYTES if self.floor else 0)
        lowest = self.floor or (int(self._numbers[0]) if len(self) else 0)
        highest = int(self._numbers[-1]) if len(self) else lowest
        self._first = lowest - 1
        self._directory: Indexes | None = None
        if highest - lowest < DIRECTORY_PAGES:
            self._directory = np.full(highest - lowest + 3, self._zeros, dtype=np.int64)
            self._directory[0] = below
            self._directory[self._numbers - self._first] = self._starts

    def _take(self, numbers: Indexes) -> None:
        """Take pages with these numbers, which are not there; give up the lowest of all where they are too many."""
        numbers = numbers[numbers >= self.floor]
        wanted = np.union1d(self._numbers, numbers)
        if len(wanted) > self.most:
            self.floor = int(wanted[-self.most - 1]) + 1
            self._drop(self.floor)
            wanted = wanted[-self.most :]
        starts = dict(zip(self._numbers.tolist(), self._starts.tolist(), strict=True))
        held = [starts[number] if number in starts else self._free.pop() * PAGE_BYTES for number in wanted.tolist()]
        self._numbers = wanted
        self._starts = np.array(held, dtype=np.int64)
        self._index()

    def _drop(self, floor: int) -> None:
        """Clear and give back the pages below a number."""
        dropped = int(self._numbers.searchsorted(floor))
        for start in self._starts[:dropped].tolist():
            self._bits[start : start + PAGE_BYTES] = 0
            self._free.append(start // PAGE_BYTES)
        self._numbers, self._starts = self._numbers[dropped:], self._starts[dropped:]

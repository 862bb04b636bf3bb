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

_NO_PAGE: Final = np.iinfo(np.int64).max
"""Stands behind the last page, so that a look for one that is not there ends somewhere."""

Indexes = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_BITS: Final = (1 << np.arange(8)).astype(np.uint8)


class Pages:
    """Bits that are set by index. `floor` is the first page number that was never given up."""

    __slots__ = ("_bits", "_free", "_numbers", "_starts", "floor", "most")

    def __init__(self, *, most: int) -> None:
        self.most = most
        self.floor = 0
        # The system gives memory when a page is first written.
        self._bits: Bytes = np.zeros(most * PAGE_BYTES, dtype=np.uint8)
        self._free = list(range(most - 1, -1, -1))
        self._numbers: Indexes = np.array([_NO_PAGE], dtype=np.int64)
        self._starts: Indexes = np.zeros(1, dtype=np.int64)

    @classmethod
    def of(cls, numbers: Indexes, bits: memoryview, *, most: int, floor: int) -> Pages:
        """Return pages as they were stored: their numbers, ascending, and their bits one after the other."""
        pages = cls(most=most)
        pages._take(numbers)
        for at, start in enumerate(pages._starts[:-1].tolist()):
            page = np.frombuffer(bits[at * PAGE_BYTES : (at + 1) * PAGE_BYTES], dtype=np.uint8)
            pages._bits[start : start + PAGE_BYTES] = page
        pages.floor = floor
        return pages

    def __len__(self) -> int:
        return len(self._numbers) - 1

    @property
    def numbers(self) -> Indexes:
        """Return the numbers of the pages there are, ascending."""
        return self._numbers[:-1]

    def query(self, indexes: Indexes) -> npt.NDArray[np.bool_]:
        """Return one truth value an index: whether its bit is set, or was given up."""
        pages = indexes >> PAGE_SHIFT
        places = self._numbers.searchsorted(pages)
        found = self._bits.take(self._bytes(indexes, places))
        found &= _BITS.take(indexes & 7)
        answer: npt.NDArray[np.bool_] = found != 0
        answer &= self._numbers.take(places) == pages
        if self.floor or (len(pages) and pages.min() < 0):
            answer |= pages < self.floor
        return answer

    def add(self, indexes: Indexes) -> None:
        """Set bits; those below the floor count as set."""
        pages = indexes >> PAGE_SHIFT
        missing = self._numbers.take(self._numbers.searchsorted(pages)) != pages
        if missing.any():
            self._take(np.setdiff1d(pages[missing], self.numbers))
        if self.floor or (len(pages) and pages.min() < 0):
            indexes = indexes[pages >= self.floor]
        places = self._numbers.searchsorted(indexes >> PAGE_SHIFT)
        np.bitwise_or.at(self._bits, self._bytes(indexes, places), _BITS.take(indexes & 7))

    def set_bits(self) -> int:
        """Return how many bits are set. Reads all pages."""
        return sum(int.from_bytes(page, "little").bit_count() for page in self.stored())

    def stored(self) -> list[memoryview]:
        """Return the bits of each page, in the order of their numbers."""
        view = self._bits.data
        return [view[start : start + PAGE_BYTES] for start in self._starts[:-1].tolist()]

    def _bytes(self, indexes: Indexes, places: npt.NDArray[np.intp]) -> Indexes:
        at = indexes >> 3
        at &= PAGE_BYTES - 1
        at += self._starts.take(places)
        return at

    def _take(self, numbers: Indexes) -> None:
        """Take pages with these numbers, which are not there; give up the lowest of all where they are too many."""
        numbers = numbers[numbers >= self.floor]
        wanted = np.union1d(self.numbers, numbers)
        if len(wanted) > self.most:
            self.floor = int(wanted[-self.most - 1]) + 1
            self._drop(self.floor)
            wanted = wanted[-self.most :]
        starts = dict(zip(self._numbers.tolist(), self._starts.tolist(), strict=True))
        held = [starts[number] if number in starts else self._free.pop() * PAGE_BYTES for number in wanted.tolist()]
        self._numbers = np.append(wanted, _NO_PAGE)
        self._starts = np.array([*held, 0], dtype=np.int64)

    def _drop(self, floor: int) -> None:
        """Clear and give back the pages below a number."""
        dropped = int(self.numbers.searchsorted(floor))
        for start in self._starts[:dropped].tolist():
            self._bits[start : start + PAGE_BYTES] = 0
            self._free.append(start // PAGE_BYTES)
        self._numbers, self._starts = self._numbers[dropped:], self._starts[dropped:]

"""The stored form of a bitmap: a header of 64 bytes, the numbers of its pages, then the pages. All little-endian.

    0  what all stored filters have, see `sealed`
   16  base          i64, the lowest id
   24  shards        u64
   32  most          u64, pages there may be
   40  floor         i64, number of the first page that was never given up
   48  pages         u64, pages there are
   56  zeros         8 bytes
   64  numbers       i64 each, ascending
       pages         32 KiB each

A log entry is a tag of two bytes, then the id (i64): a log of another kind of filter is found out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from struct import Struct
from typing import Final

import numpy as np

from .contract import FilterDamaged
from .pages import LAYOUT, PAGE_BYTES, Indexes
from .sealed import check_crc, check_length, check_origin, seal

MAGIC: Final = b"\x89oncebm\n"
VERSION: Final = 1
HEADER: Final = Struct("<8sHBBIqQQqQ8x")
NUMBER_BYTES: Final = 8

ENTRY: Final = np.dtype([("tag", "<u2"), ("id", "<i8")])
ENTRY_TAG: Final = 0xB171


@dataclass(frozen=True, kw_only=True, slots=True)
class Header:
    """What a stored bitmap says of itself, in the order in which it is stored."""

    base: int
    shards: int
    most: int
    floor: int
    pages: int


def write(header: Header, numbers: Indexes, pages: Sequence[memoryview]) -> bytes:
    """Return the stored form."""
    packed = HEADER.pack(MAGIC, VERSION, LAYOUT, 0, 0, *astuple(header))
    return seal(packed, numbers.astype("<i8").tobytes(), *pages)


def read(stored: bytes) -> tuple[Header, Indexes, memoryview]:
    """Return the header, the numbers of the pages and their bits. Raises `FilterDamaged`, saying what is wrong."""
    check_origin(stored, kind="bitmap", magic=MAGIC, version=VERSION, header_bytes=HEADER.size)
    _, _, layout, _, _, base, shards, most, floor, pages = HEADER.unpack_from(stored)
    check_length(stored, HEADER.size + pages * (NUMBER_BYTES + PAGE_BYTES))
    check_crc(stored)
    if layout != LAYOUT:
        raise FilterDamaged(f"layout {layout} is not known here: written by a newer release?")
    numbers = np.frombuffer(stored, dtype="<i8", count=pages, offset=HEADER.size).astype(np.int64)
    if pages > most or (np.diff(numbers) <= 0).any() or (numbers < floor).any():
        raise FilterDamaged("damaged: its pages are not in order")
    bits = memoryview(stored)[HEADER.size + pages * NUMBER_BYTES :]
    return Header(base=base, shards=shards, most=most, floor=floor, pages=pages), numbers, bits

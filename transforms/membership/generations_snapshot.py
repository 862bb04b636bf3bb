"""The stored form of generations: a header of 32 bytes, 32 bytes for each, then their own stored forms, oldest first.

0  what all stored filters have, see `sealed`; the free byte is how many generations there are
16  first capacity  u64, keys
24  zeros           8 bytes
32  number          u64, from 0
born            f64, seconds since 1970
capacity        u64, keys
length          u64, bytes
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from .contract import FilterDamaged
from .sealed import check_crc, check_length, check_origin, seal

MAGIC: Final = b"\x89oncegn\n"
VERSION: Final = 1
LAYOUT: Final = 1
HEADER: Final = Struct("<8sHBBIQ8x")
PART: Final = Struct("<QdQQ")


class Part(NamedTuple):
    """One generation, as it is stored."""

    number: int
    born: float
    capacity: int
    snapshot: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """What stored generations say of themselves."""

    first_capacity: int
    parts: Sequence[Part]


def snapshot_bytes(lengths: Iterable[int]) -> int:
    """Return the length of the stored form of generations with stored forms of these lengths."""
    return HEADER.size + sum(PART.size + length for length in lengths)


def is_stored(stored: bytes) -> bool:
    """Tell whether these are generations, and not one filter."""
    return stored[: len(MAGIC)] == MAGIC


def write(stored: Stored) -> bytes:
    """Return the stored form."""
    header = HEADER.pack(MAGIC, VERSION, LAYOUT, len(stored.parts), 0, stored.first_capacity)
    rows = b"".join(PART.pack(each.number, each.born, each.capacity, len(each.snapshot)) for each in stored.parts)
    return seal(header, rows, *(each.snapshot for each in stored.parts))


def read(stored: bytes) -> Stored:
    """Return the generations. Raises `FilterDamaged`, saying what is wrong."""
    check_origin(stored, kind="row of generations", magic=MAGIC, version=VERSION, header_bytes=HEADER.size)
    _, _, layout, count, _, first_capacity = HEADER.unpack_from(stored)
    begin = HEADER.size + count * PART.size
    if len(stored) < begin:
        raise FilterDamaged(f"truncated: {len(stored)} bytes, and {count} generations take more than {begin}")
    rows = [PART.unpack_from(stored, HEADER.size + at * PART.size) for at in range(count)]
    check_length(stored, begin + sum(length for *_, length in rows))
    check_crc(stored)
    if layout != LAYOUT or count == 0:
        raise FilterDamaged(f"layout {layout} with {count} generations is not known here: written by a newer release?")
    parts = []
    for number, born, capacity, length in rows:
        parts.append(Part(number, born, capacity, stored[begin : begin + length]))
        begin += length
    return Stored(first_capacity=first_capacity, parts=parts)

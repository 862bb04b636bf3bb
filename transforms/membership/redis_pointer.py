"""What a shared filter in Redis is made of: one key that names its generations, and one key of bits for each.

`<prefix>:f:<name>` is the pointer: a header of 40 bytes and 48 bytes for each generation, oldest first. All
little-endian.

    0  what all stored filters have, see `sealed`; the free byte is how many generations there are
   16  first capacity  u64, keys
   24  error rate      f64
   32  zeros           8 bytes
   40  id              8 random bytes
       number          u64, from 0
       born            f64, seconds since 1970
       capacity        u64, keys
       blocks          u64
       probes          u64

`<prefix>:f:<name>:<id in hex>` are the bits, as the words of a Bloom filter in memory (layout 1). A generation is
there when the pointer names it and its bits are as long as they should be.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from .blocks import BLOCK_BYTES, LAYOUT, PROBES
from .contract import FilterDamaged
from .sealed import check_crc, check_length, check_origin, seal
from .sizing import shape

MAGIC: Final = b"\x89oncerp\n"
VERSION: Final = 1
HEADER: Final = Struct("<8sHBBIQd8x")
GENERATION: Final = Struct("<8sQdQQQ")


class SharedGeneration(NamedTuple):
    """One generation of a shared filter. `born` is when it began, in seconds since 1970."""

    id: bytes
    number: int
    born: float
    capacity: int
    blocks: int
    probes: int

    @property
    def size_bytes(self) -> int:
        """Return the length of its bits."""
        return self.blocks * BLOCK_BYTES

    def key(self, pointer_key: bytes) -> bytes:
        """Return the name of the key of its bits."""
        return pointer_key + b":" + self.id.hex().encode()


@dataclass(frozen=True, kw_only=True, slots=True)
class Pointer:
    """The generations of a shared filter, oldest first, and what the filter was made for."""

    first_capacity: int
    error_rate: float
    generations: tuple[SharedGeneration, ...]

    @property
    def newest(self) -> SharedGeneration:
        return self.generations[-1]

    def pack(self) -> bytes:
        """Return the stored form."""
        many = len(self.generations)
        header = HEADER.pack(MAGIC, VERSION, LAYOUT, many, 0, self.first_capacity, self.error_rate)
        return seal(header, b"".join(GENERATION.pack(*each) for each in self.generations))


def parse_pointer(stored: bytes) -> Pointer:
    """Return what `pack` wrote. Raises `FilterDamaged`, saying what is wrong."""
    check_origin(stored, kind="shared filter", magic=MAGIC, version=VERSION, header_bytes=HEADER.size)
    _, _, layout, count, _, first_capacity, error_rate = HEADER.unpack_from(stored)
    check_length(stored, HEADER.size + count * GENERATION.size)
    check_crc(stored)
    found = tuple(SharedGeneration(*fields) for fields in GENERATION.iter_unpack(stored[HEADER.size :]))
    if layout != LAYOUT or not found or any(each.probes not in PROBES or each.blocks < 1 for each in found):
        raise FilterDamaged(f"layout {layout} with {count} generations is not known here: written by a newer release?")
    return Pointer(first_capacity=first_capacity, error_rate=error_rate, generations=found)


def new_generation(capacity: int, error_rate: float, *, number: int, born: float) -> SharedGeneration:
    """Return a generation that nobody has yet."""
    made = shape(error_rate)
    return SharedGeneration(secrets.token_bytes(8), number, born, capacity, made.blocks(capacity), made.probes)

"""The stored form of a Bloom filter: a header of 64 bytes, then its words. All little-endian.

    0  magic         8 bytes
    8  version       u16, of this form
   10  layout        u8, of the bits
   11  probes        u8
   12  crc32         u32, over all other bytes
   16  capacity      u64, keys
   24  error rate    f64
   32  blocks        u64
   40  set bits      u64; from it the number of keys is estimated
   48  zeros         16 bytes

What is stored depends on the settings and on the set of keys only, not on the order in which they came.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from struct import Struct
from typing import Final

import numpy as np

from .blocks import BLOCK_BYTES, LAYOUT, PROBES, Words
from .contract import FilterDamaged
from .sealed import check_crc, check_length, check_origin, seal

MAGIC: Final = b"\x89oncebf\n"
VERSION: Final = 1
HEADER: Final = Struct("<8sHBBIQdQQ16x")


@dataclass(frozen=True, kw_only=True, slots=True)
class Header:
    """What a stored filter says of itself, in the order in which it is stored."""

    probes: int
    capacity: int
    error_rate: float
    blocks: int
    set_bits: int


def write(header: Header, words: Words) -> bytes:
    """Return the stored form."""
    probes, *rest = (getattr(header, field.name) for field in fields(header))
    return seal(HEADER.pack(MAGIC, VERSION, LAYOUT, probes, 0, *rest), words.view(np.uint8).data)


def read(stored: bytes) -> tuple[Header, memoryview]:
    """Return the header and the bytes of the words, not copied. Raises `FilterDamaged`, saying what is wrong."""
    check_origin(stored, kind="Bloom filter", magic=MAGIC, version=VERSION, header_bytes=HEADER.size)
    _, _, layout, probes, _, *rest = HEADER.unpack_from(stored)
    header = Header(probes=probes, capacity=rest[0], error_rate=rest[1], blocks=rest[2], set_bits=rest[3])
    check_length(stored, HEADER.size + header.blocks * BLOCK_BYTES)
    check_crc(stored)
    if layout != LAYOUT or probes not in PROBES:
        raise FilterDamaged(f"layout {layout} with {probes} probes is not known here: written by a newer release?")
    if header.blocks == 0:
        raise FilterDamaged("damaged: it has no blocks")
    return header, memoryview(stored)[HEADER.size :]

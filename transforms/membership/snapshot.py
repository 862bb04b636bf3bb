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
from zlib import crc32

import numpy as np

from .blocks import BLOCK_BYTES, LAYOUT, PROBES, Words
from .contract import FilterDamaged

MAGIC: Final = b"\x89oncebf\n"
VERSION: Final = 1
HEADER: Final = Struct("<8sHBBIQdQQ16x")
CRC_AT: Final = slice(12, 16)


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
    body = words.view(np.uint8).data
    blank = HEADER.pack(MAGIC, VERSION, LAYOUT, probes, 0, *rest)
    return b"".join((HEADER.pack(MAGIC, VERSION, LAYOUT, probes, crc32(body, crc32(blank)), *rest), body))


def read(stored: bytes) -> tuple[Header, memoryview]:
    """Return the header and the bytes of the words, not copied. Raises `FilterDamaged`, saying what is wrong."""
    if len(stored) < HEADER.size:
        raise FilterDamaged(f"truncated: {len(stored)} bytes, and the header of a filter alone has {HEADER.size}")
    magic, version, layout, probes, crc, *rest = HEADER.unpack_from(stored)
    _check_origin(magic, version)
    header = Header(probes=probes, capacity=rest[0], error_rate=rest[1], blocks=rest[2], set_bits=rest[3])
    expected = HEADER.size + header.blocks * BLOCK_BYTES
    if len(stored) != expected:
        raise FilterDamaged(f"truncated or damaged: {len(stored)} bytes, and its header announces {expected}")
    view = memoryview(stored)
    if crc32(view[HEADER.size :], crc32(_without_crc(view))) != crc:
        raise FilterDamaged("damaged: the checksum does not fit the content")
    if layout != LAYOUT or probes not in PROBES:
        raise FilterDamaged(f"layout {layout} with {probes} probes is not known here: written by a newer release?")
    if header.blocks == 0:
        raise FilterDamaged("damaged: it has no blocks")
    return header, view[HEADER.size :]


def _check_origin(magic: bytes, version: int) -> None:
    if magic != MAGIC:
        raise FilterDamaged(f"not a Bloom filter of oncesink: it begins with {magic!r} and not with {MAGIC!r}")
    if version != VERSION:
        raise FilterDamaged(f"format version {version}, and this release reads {VERSION}: upgrade, or rebuild it")


def _without_crc(stored: memoryview) -> bytes:
    header = bytearray(stored[: HEADER.size])
    header[CRC_AT] = bytes(4)
    return bytes(header)

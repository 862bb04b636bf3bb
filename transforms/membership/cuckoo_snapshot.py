"""The stored form of a cuckoo filter: a header of 64 bytes, then its slots. All little-endian.

    0  what all stored filters have, see `sealed`
   16  capacity      u64, keys
   24  slice         u64, microseconds: how long keys get the same age
   32  slice number  u64, when it was stored, counted from 1970
   40  buckets       u64, of four slots of 16 bits
   48  zeros         16 bytes

The age of a slot is the number of the slice in which its key came, modulo 8. A log entry is a tag of two bytes, the
time in seconds since 1970 (u32) and the fingerprint (u64): a log of another kind of filter is found out.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from struct import Struct
from typing import Final

import numpy as np
import numpy.typing as npt

from .contract import FilterDamaged
from .nests import LAYOUT, SLOTS
from .sealed import check_crc, check_length, check_origin, seal

MAGIC: Final = b"\x89oncecu\n"
VERSION: Final = 1
HEADER: Final = Struct("<8sHBBIQQQQ16x")
SLOT_BYTES: Final = 2

ENTRY: Final = np.dtype([("tag", "<u2"), ("seconds", "<u4"), ("fingerprint", "<u8")])
ENTRY_TAG: Final = 0xC0C0


@dataclass(frozen=True, kw_only=True, slots=True)
class Header:
    """What a stored cuckoo filter says of itself, in the order in which it is stored."""

    capacity: int
    slice_micros: int
    slice_number: int
    buckets: int


def write(header: Header, slots: npt.NDArray[np.uint16]) -> bytes:
    """Return the stored form."""
    packed = HEADER.pack(MAGIC, VERSION, LAYOUT, 0, 0, *astuple(header))
    return seal(packed, slots.view(np.uint8).data)


def read(stored: bytes) -> tuple[Header, memoryview]:
    """Return the header and the bytes of the slots. Raises `FilterDamaged`, saying what is wrong."""
    check_origin(stored, kind="cuckoo filter", magic=MAGIC, version=VERSION, header_bytes=HEADER.size)
    _, _, layout, _, _, capacity, slice_micros, slice_number, buckets = HEADER.unpack_from(stored)
    check_length(stored, HEADER.size + buckets * SLOTS * SLOT_BYTES)
    check_crc(stored)
    if layout != LAYOUT or buckets == 0:
        raise FilterDamaged(f"layout {layout} of {buckets} buckets is not known here: written by a newer release?")
    header = Header(capacity=capacity, slice_micros=slice_micros, slice_number=slice_number, buckets=buckets)
    return header, memoryview(stored)[HEADER.size :]

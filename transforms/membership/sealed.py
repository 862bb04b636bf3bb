"""What all stored filters have in common: a header that begins with a magic, a version and a checksum.

    0  magic     8 bytes, one a kind
    8  version   u16, of the kind's form
   10  layout    u8, of the content
   11  free      u8, the kind's own
   12  crc32     u32, over all other bytes

The rest of the header and what follows it are the kind's own. All little-endian.
"""

from __future__ import annotations

from struct import Struct
from typing import Final
from zlib import crc32

from .contract import FilterDamaged

PREAMBLE: Final = Struct("<8sHBBI")
CRC_AT: Final = slice(12, 16)

Buffer = bytes | memoryview


def seal(header: bytes, *body: Buffer) -> bytes:
    """Return header and body as one, with the checksum put into the header, where zeros are."""
    crc = 0
    for part in (header, *body):
        crc = crc32(part, crc)
    sealed = bytearray(header)
    sealed[CRC_AT] = crc.to_bytes(4, "little")
    return b"".join((sealed, *body))


def check_origin(stored: bytes, *, kind: str, magic: bytes, version: int, header_bytes: int) -> None:
    """Refuse what is too short for a header, foreign, or of another version. Raises `FilterDamaged`."""
    if len(stored) < header_bytes:
        raise FilterDamaged(f"truncated: {len(stored)} bytes, and the header of a filter alone has {header_bytes}")
    found, its_version, *_ = PREAMBLE.unpack_from(stored)
    if found != magic:
        raise FilterDamaged(f"not a {kind} of oncesink: it begins with {found!r} and not with {magic!r}")
    if its_version != version:
        raise FilterDamaged(f"format version {its_version}, and this release reads {version}: upgrade, or rebuild it")


def check_length(stored: bytes, expected: int) -> None:
    """Refuse what is not as long as its header says. Raises `FilterDamaged`."""
    if len(stored) != expected:
        raise FilterDamaged(f"truncated or damaged: {len(stored)} bytes, and its header announces {expected}")


def check_crc(stored: bytes) -> None:
    """Refuse what was altered. Raises `FilterDamaged`."""
    view = memoryview(stored)
    preamble = bytearray(view[: PREAMBLE.size])
    expected = int.from_bytes(preamble[CRC_AT], "little")
    preamble[CRC_AT] = bytes(4)
    if crc32(view[PREAMBLE.size :], crc32(preamble)) != expected:
        raise FilterDamaged("damaged: the checksum does not fit the content")

"""How a claim and a result stand in a Redis value. Frozen: a change needs a new version byte in all that hold them.

| bytes | what |
|---|---|
| 1 | flags: 1 = there is an occurrence, 2 = there is a payload hash |
| 1 | length of the occurrence, 0 to 255 |
| n | occurrence |
| 0 or 16 | payload hash |
| 0 or 4 | nothing where there is no result, else its length, big-endian |
| m | result |

The last two rows are the *tail*; an open ledger row has none. `None` and `b""` differ in all three.
"""

from __future__ import annotations

CACHE_VERSION = b"\x01"
LEDGER_VERSION = b"\x01"

OCCURRENCE_BYTES = 255
HASH_BYTES = 16
LENGTH_BYTES = 4

_HEADS = [[bytes((flags, length)) for length in range(256)] for flags in range(4)]


class Damaged(ValueError):
    """A value that this version did not write, or not wholly."""


def pack_claim(occurrence: bytes | None, payload_hash: bytes | None) -> bytes:
    """Return the value's part up to the tail. Raises `ValueError` for what does not fit."""
    if occurrence is not None and len(occurrence) > OCCURRENCE_BYTES:
        raise ValueError(f"an occurrence has at most {OCCURRENCE_BYTES} bytes, not {len(occurrence)}")
    if payload_hash is None:
        return _HEADS[0][0] if occurrence is None else _HEADS[1][len(occurrence)] + occurrence
    if len(payload_hash) != HASH_BYTES:
        raise ValueError(f"a payload hash has {HASH_BYTES} bytes, not {len(payload_hash)}")
    if occurrence is None:
        return _HEADS[2][0] + payload_hash
    return _HEADS[3][len(occurrence)] + occurrence + payload_hash


def pack_tail(result: bytes | None) -> bytes:
    """Return the part that a finished row or a cache entry ends with."""
    return b"" if result is None else len(result).to_bytes(LENGTH_BYTES, "big") + result


def unpack(value: bytes, start: int) -> tuple[bytes | None, bytes | None, bytes | None]:
    """Return occurrence, payload hash and result of a value whose claim begins at `start`. Raises `Damaged`."""
    if len(value) < start + 2:
        raise Damaged("too short")
    flags, at = value[start], start + 2 + value[start + 1]
    if flags > 3:
        raise Damaged(f"unknown flags {flags}")
    occurrence = value[start + 2 : at] if flags & 1 else None
    end = at + HASH_BYTES if flags & 2 else at
    payload_hash = value[at:end] if flags & 2 else None
    if len(value) == end:
        return occurrence, payload_hash, None
    result_at = end + LENGTH_BYTES
    if len(value) < result_at or len(value) != result_at + int.from_bytes(value[end:result_at], "big"):
        raise Damaged("length does not fit")
    return occurrence, payload_hash, value[result_at:]

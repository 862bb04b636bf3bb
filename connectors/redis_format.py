"""How a claim and a result stand in a Redis value. Frozen: a change needs a new version byte in all that hold them.

| bytes | what |
|---|---|
| 1 | flags: 1 = there is an occurrence, 2 = there is a payload hash, 4 = there is a payload |
| 1 | length of the occurrence, 0 to 255 |
| n | occurrence |
| 0 or 16 | payload hash |
| 0 or 4 | where there is a payload, its length, big-endian |
| k | payload |
| 0 or 4 | nothing where there is no result, else its length, big-endian |
| m | result |

The last two rows are the *tail*; an open ledger row has none. `None` and `b""` differ in all of them. Versions of the
library that know no payloads refuse flag 4; values without one are the same for both.
"""

from __future__ import annotations

from typing import NamedTuple

CACHE_VERSION = b"\x01"
LEDGER_VERSION = b"\x01"

OCCURRENCE_BYTES = 255
HASH_BYTES = 16
LENGTH_BYTES = 4

_HEADS = [[bytes((flags, length)) for length in range(256)] for flags in range(4)]


class Damaged(ValueError):
    """A value that this version did not write, or not wholly."""


_PAYLOAD = 4


def pack_payload(claim: bytes, payload: bytes | None) -> bytes:
    """Return what `pack_claim` gave, with a payload behind it."""
    if payload is None:
        return claim
    return bytes((claim[0] | _PAYLOAD,)) + claim[1:] + len(payload).to_bytes(LENGTH_BYTES, "big") + payload


def pack_claim(occurrence: bytes | None, payload_hash: bytes | None) -> bytes:
    """Return the value's part up to payload and tail. Raises `ValueError` for what does not fit."""
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


class Unpacked(NamedTuple):
    """What a value holds behind its head."""

    occurrence: bytes | None
    payload_hash: bytes | None
    result: bytes | None
    payload: bytes | None = None


def unpack(value: bytes, start: int) -> Unpacked:
    """Return what a value holds whose claim begins at `start`. Raises `Damaged`."""
    if len(value) < start + 2:
        raise Damaged("too short")
    flags, at = value[start], start + 2 + value[start + 1]
    if flags > 7:
        raise Damaged(f"unknown flags {flags}")
    occurrence = value[start + 2 : at] if flags & 1 else None
    end = at + HASH_BYTES if flags & 2 else at
    payload_hash = value[at:end] if flags & 2 else None
    payload, end = _counted(value, end) if flags & _PAYLOAD else (None, end)
    if len(value) == end:
        return Unpacked(occurrence, payload_hash, None, payload)
    result, end = _counted(value, end)
    if len(value) != end:
        raise Damaged("length does not fit")
    return Unpacked(occurrence, payload_hash, result, payload)


def _counted(value: bytes, at: int) -> tuple[bytes, int]:
    """Return the bytes whose length stands at `at`, and where they end."""
    start = at + LENGTH_BYTES
    end = start + int.from_bytes(value[at:start], "big")
    if len(value) < start or len(value) < end:
        raise Damaged("length does not fit")
    return value[start:end], end

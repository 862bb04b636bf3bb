"""The digest: what ledgers and caches store, and what is sent to a sink as idempotency key.

BLAKE2b-128 over: the format version (1 byte), then use, scope and generation, each with its length in front (4
bytes, big endian), then the key. Format 1 is frozen: changing it would make every record of every user new.
"""

from __future__ import annotations

from hashlib import blake2b

from ..connectors.contract import Scope

FORMAT = 1
DIGEST_BYTES = 16


def digest_prefix(scope: Scope) -> bytes:
    """Return what stands in front of every key of this scope."""
    parts = (scope.use.value.encode(), scope.name.encode(), str(scope.generation).encode())
    return bytes([FORMAT]) + b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def digest(prefix: bytes, key: bytes) -> bytes:
    """Return the 16 bytes that stand for a key in a scope."""
    return blake2b(prefix + key, digest_size=DIGEST_BYTES).digest()

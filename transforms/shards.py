"""Which shard a key belongs to: the same on every engine, in plain Python, and in what `rebuild` stores.

The first eight bytes of the digest, as a little-endian number, modulo the number of shards. Frozen: filters in an
engine's state and snapshots in files are found by it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .digest import DIGEST_BYTES

_WORD = 8


def shard_of(digest: bytes, shards: int) -> int:
    """Return the shard of a key. Digests are cryptographic hashes: any of their bits spread evenly."""
    return int.from_bytes(digest[:_WORD], "little") % shards


def shards_of(digests: Sequence[bytes], shards: int) -> npt.NDArray[np.uint64]:
    """Return the shard of each key."""
    return np.frombuffer(b"".join(digests), dtype="<u8")[:: DIGEST_BYTES // _WORD] % np.uint64(shards)

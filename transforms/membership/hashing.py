"""The keys of a batch as filters see them: hashed once, whatever is asked of them.

The hash is MurmurHash3 x64-128 with seed 0, little-endian. It is the same in every process and on every machine, and it
can be forged on purpose: it serves filters only, which decide nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import compress
from typing import Final

import numpy as np
import numpy.typing as npt
from mmh3 import mmh3_x64_128_digest

FINGERPRINT_BYTES: Final = 8
"""A filter uses the first half of the hash only, so that its log holds eight bytes a key."""

HASH_BYTES: Final = 16
INT64: Final = np.iinfo(np.int64)

Fingerprints = npt.NDArray[np.uint64]
Ids = Sequence[int] | npt.NDArray[np.int64]
"""An `array("q")` among them is taken as it is: whoever made it has looked at each of its numbers."""
Selection = npt.NDArray[np.bool_] | npt.NDArray[np.integer]


class Keys:
    """A batch of 16-byte digests, with the integers they stand for where keys are numeric.

    Both views are made when they are first read, and kept.
    """

    __slots__ = ("_fingerprints", "_ids", "_integers", "digests")

    def __init__(self, digests: Sequence[bytes], *, ids: Ids | None = None) -> None:
        if ids is not None and len(ids) != len(digests):
            raise ValueError(f"{len(digests)} digests and {len(ids)} ids do not belong together")
        self.digests = digests
        self._ids = ids
        self._fingerprints: Fingerprints | None = None
        self._integers: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.digests)

    def __repr__(self) -> str:
        hashed = "hashed" if self._fingerprints is not None else "not hashed"
        return f"<Keys {len(self)}, {hashed}, {'no ids' if self._ids is None else 'with ids'}>"

    @property
    def fingerprints(self) -> Fingerprints:
        """Return the hashes: a row a key, the two halves as columns."""
        if self._fingerprints is None:
            joined = b"".join(map(mmh3_x64_128_digest, self.digests))
            self._fingerprints = np.frombuffer(joined, dtype="<u8").reshape(-1, 2)
        return self._fingerprints

    @property
    def integers(self) -> npt.NDArray[np.int64]:
        """Return the keys as numbers. Raises `TypeError` or `OverflowError` that names the first key that is none."""
        if self._integers is None:
            self._integers = _as_integers(self._ids)
        return self._integers

    def take(self, selection: Selection) -> Keys:
        """Return some of the keys, by a mask or by positions; what is hashed stays hashed."""
        if selection.dtype == np.bool_:
            # compress() alone would cut to the shorter of the two in silence.
            if len(selection) != len(self):
                raise IndexError(f"a mask of {len(selection)} does not fit {len(self)} keys")
            digests = list(compress(self.digests, selection.tolist()))
        else:
            digests = [self.digests[position] for position in selection.tolist()]
        taken = Keys(digests, ids=None if self._ids is None else np.asarray(self.integers[selection]))
        if self._fingerprints is not None:
            taken._fingerprints = self._fingerprints[selection]
        return taken


def fingerprint(digest: bytes) -> int:
    """Return what a filter keeps of one key: the first column of `Keys.fingerprints`, for one digest."""
    return int.from_bytes(mmh3_x64_128_digest(digest)[:FINGERPRINT_BYTES], "little")


def unpack(raw: bytes, *, width_bytes: int = FINGERPRINT_BYTES) -> Fingerprints:
    """Return the fingerprints in a log of them, or of whole hashes. Raises `ValueError` for a part of one."""
    if width_bytes not in (FINGERPRINT_BYTES, HASH_BYTES):
        raise ValueError(f"a fingerprint has {FINGERPRINT_BYTES} bytes and a hash {HASH_BYTES}, not {width_bytes}")
    if len(raw) % width_bytes:
        raise ValueError(f"{len(raw)} bytes are no whole number of {width_bytes}-byte entries")
    return np.frombuffer(raw, dtype="<u8")[:: width_bytes // FINGERPRINT_BYTES]


def _as_integers(ids: Ids | None) -> npt.NDArray[np.int64]:
    if ids is None:
        raise TypeError("these keys have no ids: a filter over numbers needs a key recipe that gives an integer")
    if isinstance(ids, np.ndarray) and ids.dtype == np.int64:
        return ids
    if isinstance(ids, array) and ids.typecode == "q":
        return np.frombuffer(ids, dtype=np.int64)
    for position, number in enumerate(ids):
        if isinstance(number, (bool, np.bool_)) or not isinstance(number, (int, np.integer)):
            raise TypeError(f"id {position} is {number!r}, a {type(number).__name__}: it must be an integer")
        if not INT64.min <= number <= INT64.max:
            raise OverflowError(f"id {position} is {number}: it does not fit into 64 bits with a sign")
    return np.array(ids, dtype=np.int64)

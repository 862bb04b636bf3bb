"""The split-block Bloom filter: its settings, and the live filter over one array of words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
from mmh3 import mmh3_x64_128_digest

from .blocks import BLOCK_BYTES, HIGHEST_BLOCKS, Positions, SplitBlocks, Words, new_words
from .contract import FilterDamaged, FilterMismatch, FilterTooLarge, FilterUnusable, Occupancy
from .hashing import FINGERPRINT_BYTES, Fingerprints, Keys, fingerprint, unpack
from .memory import require_memory
from .sizing import HIGHEST_ERROR_RATE, LOWEST_ERROR_RATE, estimated_load, false_positive_rate, shape
from .snapshot import HEADER, Header, read, write

CHUNK_KEYS: Final = 4096
"""What is worked on at once: positions and patterns of so many keys stay in the processor's cache."""

COUNT_BYTES: Final = 1 << 20
MANY: Final = 16
"""From so many keys on numpy is faster than a loop."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bloom:
    """Settings of a Bloom filter: at `capacity` keys, `error_rate` of the absent ones are taken for known.

    The rate lies between 0.0001 and 0.1. At 0.001 a key takes 16.1 bits, 1.12 times the least possible.
    """

    capacity: int
    error_rate: float

    def __post_init__(self) -> None:
        if isinstance(self.capacity, bool) or not isinstance(self.capacity, int) or self.capacity < 1:
            raise FilterUnusable(f"capacity={self.capacity!r} must be a whole number of keys, at least 1")
        if not isinstance(self.error_rate, float) or not LOWEST_ERROR_RATE <= self.error_rate <= HIGHEST_ERROR_RATE:
            limits = f"from {LOWEST_ERROR_RATE} to {HIGHEST_ERROR_RATE}"
            raise FilterUnusable(f"error_rate={self.error_rate!r} must be a number {limits}: 0.001 is a good choice")
        if self._blocks > HIGHEST_BLOCKS:
            most = HIGHEST_BLOCKS * BLOCK_BYTES >> 20
            raise FilterTooLarge(f"{self} takes {self.memory_bytes >> 20} MiB of at most {most}: use more shards")

    def __str__(self) -> str:
        return self.description

    @property
    def description(self) -> str:
        return f"bloom(capacity={self.capacity}, error_rate={self.error_rate})"

    @property
    def memory_bytes(self) -> int:
        return self._blocks * BLOCK_BYTES

    def resized(self, capacity: int) -> Bloom:
        """Return the same filter for another number of keys."""
        return replace(self, capacity=capacity)

    def error_rate_at(self, used: float) -> float:
        """Return the error rate to expect when this share of the capacity is used."""
        found = shape(self.error_rate)
        return false_positive_rate(used * self.capacity / self._blocks, found.probes)

    def create(self) -> BloomFilter:
        require_memory(self.memory_bytes, purpose=str(self))
        layout = SplitBlocks(blocks=self._blocks, probes=shape(self.error_rate).probes)
        return BloomFilter(self, layout, new_words(layout.blocks))

    def load(self, snapshot: bytes) -> BloomFilter:
        header, body = read(snapshot)
        if (header.capacity, header.error_rate) != (self.capacity, self.error_rate):
            stored = f"capacity={header.capacity}, error_rate={header.error_rate}"
            raise FilterMismatch(f"the stored filter was made for {stored}, and {self} is asked for: rebuild it")
        require_memory(len(body), purpose=str(self))
        words = new_words(header.blocks)
        words[:] = np.frombuffer(body, dtype="<u8")
        return BloomFilter(self, SplitBlocks(blocks=header.blocks, probes=header.probes), words)

    @property
    def _blocks(self) -> int:
        return shape(self.error_rate).blocks(self.capacity)


class BloomFilter:
    """A live Bloom filter, made by `Bloom.create` or `Bloom.load`. Not locked: it belongs to one thread."""

    __slots__ = ("_layout", "_words", "recipe")

    def __init__(self, recipe: Bloom, layout: SplitBlocks, words: Words) -> None:
        self.recipe = recipe
        self._layout = layout
        self._words = words

    def __repr__(self) -> str:
        return f"<BloomFilter {self.recipe}, {self.occupancy().used:.1%} used>"

    @property
    def entry_bytes(self) -> int:
        return FINGERPRINT_BYTES

    @property
    def revision(self) -> int:
        return 0

    @property
    def snapshot_bytes(self) -> int:
        return HEADER.size + self._words.nbytes

    def query(self, keys: Keys) -> npt.NDArray[np.bool_]:
        chunks = [self._query(chunk) for chunk in _chunks(keys.fingerprints[:, 0])]
        return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)

    def add(self, keys: Keys) -> None:
        self.add_fingerprints(keys.fingerprints[:, 0])

    def add_fingerprints(self, fingerprints: Fingerprints | bytes) -> None:
        """Add keys by fingerprint: an array, one with two columns as `Keys.fingerprints`, or eight bytes each."""
        found = unpack(fingerprints) if isinstance(fingerprints, bytes) else fingerprints
        for chunk in _chunks(found[:, 0] if found.ndim == 2 else found):
            self._set(*self._layout.locate(chunk))

    def record(self, keys: Keys) -> bytes:
        if len(keys) == 1:
            return self._record_one(fingerprint(keys.digests[0]))
        fresh = keys.fingerprints[~self.query(keys), 0]
        self.add_fingerprints(fresh)
        return bytes(fresh.tobytes())

    def known(self, entries: bytes) -> npt.NDArray[np.bool_]:
        """Tell of each log entry whether its key is perhaps known. Raises `FilterDamaged`."""
        return np.concatenate([self._query(chunk) for chunk in _chunks(_unpacked(entries))])

    def entries(self, keys: Keys) -> bytes:
        if len(keys) >= MANY:
            return keys.fingerprints[:, 0].tobytes()
        return b"".join([mmh3_x64_128_digest(digest)[:FINGERPRINT_BYTES] for digest in keys.digests])

    def replay(self, entries: bytes) -> None:
        self.add_fingerprints(_unpacked(entries))

    def occupancy(self) -> Occupancy:
        bits, set_bits = self._words.size * 64, self._set_bits()
        # A filter with no clear bit is as full as one with a single clear bit: beyond that nothing can be told.
        load = estimated_load(max(bits - set_bits, 1) / bits, self._layout.probes)
        return Occupancy(
            capacity_keys=self.recipe.capacity,
            estimated_keys=load * self._layout.blocks,
            estimated_error_rate=false_positive_rate(load, self._layout.probes),
            set_bits=set_bits,
            bits=bits,
        )

    def to_bytes(self) -> bytes:
        header = Header(
            probes=self._layout.probes,
            capacity=self.recipe.capacity,
            error_rate=self.recipe.error_rate,
            blocks=self._layout.blocks,
            set_bits=self._set_bits(),
        )
        return write(header, self._words)

    def _query(self, fingerprints: Fingerprints) -> npt.NDArray[np.bool_]:
        positions, patterns = self._layout.locate(fingerprints)
        found = self._words.take(positions)
        found &= patterns
        answer: npt.NDArray[np.bool_] = (found == patterns).all(axis=0)
        return answer

    def _set(self, positions: Positions, patterns: Words) -> None:
        """Set bits. Where keys share a word the last one wins, and what the others lost is set again.

        Mostly that is little, and faster than `bitwise_or.at` for all of it.
        """
        positions, patterns = positions.reshape(-1), patterns.reshape(-1)
        found = self._words.take(positions)
        found |= patterns
        self._words[positions] = found
        lost = (self._words.take(positions) != found).nonzero()[0]
        if lost.size:
            np.bitwise_or.at(self._words, positions.take(lost), patterns.take(lost))

    def _record_one(self, one: int) -> bytes:
        """Do what `record` does for one key: engines that log a record at a time cannot wait for numpy."""
        fresh = False
        for position, pattern in self._layout.locate_one(one):
            word = self._words.item(position)
            if word & pattern != pattern:
                self._words[position] = word | pattern
                fresh = True
        return one.to_bytes(FINGERPRINT_BYTES, "little") if fresh else b""

    def _set_bits(self) -> int:
        stored = self._words.view(np.uint8).data
        pieces = (stored[at : at + COUNT_BYTES] for at in range(0, len(stored), COUNT_BYTES))
        return sum(int.from_bytes(piece, "little").bit_count() for piece in pieces)


def _unpacked(entries: bytes) -> Fingerprints:
    if len(entries) % FINGERPRINT_BYTES:
        raise FilterDamaged(f"a log of {len(entries)} bytes is no whole number of {FINGERPRINT_BYTES}-byte entries")
    return unpack(entries)


def _chunks(fingerprints: Fingerprints) -> Iterator[Fingerprints]:
    """Cut a batch into pieces, at least one."""
    for at in range(0, max(len(fingerprints), 1), CHUNK_KEYS):
        yield fingerprints[at : at + CHUNK_KEYS]

"""Where a batch stands in one generation of a shared filter: its blocks, as they are and as they are to be."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .blocks import BLOCK_BYTES, WORDS_PER_BLOCK, SplitBlocks
from .hashing import Fingerprints
from .redis_pointer import SharedGeneration

Blocks = dict[int, bytes]
"""Blocks by their number, as they were when they were read."""


class Change(NamedTuple):
    """What has to be written: block numbers of four bytes, and 64 bytes a block before and after."""

    numbers: bytes
    old: bytes
    new: bytes


class Places:
    """The bits of a batch of keys."""

    __slots__ = ("_numbers", "_patterns", "_words")

    def __init__(self, generation: SharedGeneration, fingerprints: Fingerprints) -> None:
        layout = SplitBlocks(blocks=generation.blocks, probes=generation.probes)
        positions, self._patterns = layout.locate(fingerprints)
        self._numbers: npt.NDArray[np.int64] = positions[0] // WORDS_PER_BLOCK
        self._words = positions % WORDS_PER_BLOCK

    @property
    def numbers(self) -> list[int]:
        """Return the number of each key's block."""
        found: list[int] = self._numbers.tolist()
        return found

    def known(self, joined: bytes) -> npt.NDArray[np.bool_]:
        """Tell of each key, by its block as it is stored, whether it is perhaps known."""
        blocks = np.frombuffer(joined, dtype="<u8").reshape(-1, WORDS_PER_BLOCK)
        found = blocks[np.arange(len(blocks)), self._words]
        answer: npt.NDArray[np.bool_] = ((found & self._patterns) == self._patterns).all(axis=0)
        return answer

    def change(self, held: Blocks) -> Change | None:
        """Return what setting all bits of all keys changes, None where nothing does. All blocks must be held."""
        numbers, at = np.unique(self._numbers, return_inverse=True)
        old = np.frombuffer(b"".join([held[number] for number in numbers.tolist()]), dtype="<u8")
        old = old.reshape(-1, WORDS_PER_BLOCK)
        new = old.copy()
        for words, patterns in zip(self._words, self._patterns, strict=True):
            np.bitwise_or.at(new, (at, words), patterns)
        changed = (new != old).any(axis=1)
        if not changed.any():
            return None
        return Change(packed(numbers[changed].tolist()), old[changed].tobytes(), new[changed].tobytes())


def packed(numbers: list[int]) -> bytes:
    """Return block numbers as the scripts take them."""
    return np.array(numbers, dtype="<u4").tobytes()


def blocks_of(numbers: list[int], joined: bytes) -> Blocks:
    """Return blocks by their number, cut from what was read."""
    starts = range(0, len(joined), BLOCK_BYTES)
    return {number: joined[at : at + BLOCK_BYTES] for number, at in zip(numbers, starts, strict=True)}

"""The filters of all shards, filled with any number of keys at once, in steady memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..digest import DIGEST_BYTES
from ..shards import shards_of
from .contract import MembershipFilter, MembershipRecipe
from .hashing import Keys
from .memory import require_memory

KEYS_A_SHARD = 4096
MOST_KEYS = 1 << 18
"""What is gathered before filters are touched: numpy's cost of a call is then spread over many keys."""


class Filling:
    """Filters in memory, one a shard. Raises `FilterTooLarge` where all of them together do not fit."""

    def __init__(self, recipe: MembershipRecipe, shards: int, snapshots: Sequence[bytes] = ()) -> None:
        require_memory(recipe.memory_bytes * shards, purpose=f"{shards} shards of {recipe.description}")
        self.filters: list[MembershipFilter] = (
            [recipe.load(each) for each in snapshots] if snapshots else [recipe.create() for _ in range(shards)]
        )
        self._gathered: list[bytes] = []
        self._most = min(KEYS_A_SHARD * shards, MOST_KEYS)

    def add(self, digests: Sequence[bytes]) -> None:
        """Add keys. Filters know them after the next `settle`, at the latest."""
        self._gathered += digests
        if len(self._gathered) >= self._most:
            self.settle()

    def settle(self) -> None:
        """Bring everything that was gathered into the filters."""
        digests, self._gathered = self._gathered, []
        if not digests:
            return
        shards = shards_of(digests, len(self.filters))
        order = np.argsort(shards, kind="stable")
        sorted_digests: list[bytes] = np.frombuffer(b"".join(digests), dtype=f"V{DIGEST_BYTES}")[order].tolist()
        ends = np.searchsorted(shards[order], np.arange(len(self.filters)), side="right").tolist()
        begin = 0
        for live, end in zip(self.filters, ends, strict=True):
            if end > begin:
                live.add(Keys(sorted_digests[begin:end]))
            begin = end

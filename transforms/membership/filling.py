"""The filters of all shards, filled with any number of keys at once, in steady memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..digest import DIGEST_BYTES
from ..shards import shards_of
from .contract import MembershipFilter, MembershipRecipe, NumericRecipe
from .hashing import Keys
from .memory import require_memory

KEYS_A_SHARD = 4096
MOST_KEYS = 1 << 18
"""What is gathered before filters are touched: numpy's cost of a call is then spread over many keys."""

Ids = npt.NDArray[np.int64]


class Filling:
    """Filters in memory, one a shard; `recipe` is that of one shard.

    Raises `FilterTooLarge` where all of them together do not fit.
    """

    def __init__(self, recipe: MembershipRecipe, shards: int, snapshots: Sequence[bytes] = ()) -> None:
        require_memory(recipe.memory_bytes * shards, purpose=f"{shards} shards of {recipe.description}")
        self.filters: list[MembershipFilter] = (
            [recipe.load(each) for each in snapshots] if snapshots else [recipe.create() for _ in range(shards)]
        )
        self._numeric = isinstance(recipe, NumericRecipe)
        self._digests: list[bytes] = []
        self._ids: list[int] = []
        self._most = min(KEYS_A_SHARD * shards, MOST_KEYS)

    def add(self, digests: Sequence[bytes], ids: Sequence[int] = ()) -> None:
        """Add keys, with their ids where filters are over numbers. Filters know them after the next `settle`."""
        if len(ids) != (len(digests) if self._numeric else 0):
            raise ValueError(f"{len(digests)} digests and {len(ids)} ids do not belong together")
        self._digests += digests
        self._ids += ids
        if len(self._digests) >= self._most:
            self.settle()

    def settle(self) -> None:
        """Bring everything that was gathered into the filters."""
        digests, self._digests = self._digests, []
        ids, self._ids = np.array(self._ids, dtype=np.int64), []
        if not digests:
            return
        many = len(self.filters)
        shards = ids % many if self._numeric else shards_of(digests, many).astype(np.int64)
        order = np.argsort(shards, kind="stable")
        digests = np.frombuffer(b"".join(digests), dtype=f"V{DIGEST_BYTES}")[order].tolist()
        ends = np.searchsorted(shards[order], np.arange(many), side="right").tolist()
        begin = 0
        for live, end in zip(self.filters, ends, strict=True):
            if end > begin:
                own = ids[order[begin:end]] if self._numeric else None
                live.add(Keys(digests[begin:end], ids=own))
            begin = end

"""Ids of records on their way to a filter over numbers: digests do not carry them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from .lookup import Membership
from .membership import AnyRecipe, Keys, MembershipRecipe, NumericRecipe
from .prepare import Item, bare
from .shards import shard_of


class Numbered:
    """A filter over numbers for one flush: each key gets the id that its record bears."""

    __slots__ = ("_filter", "_ids")

    def __init__(self, live: Membership, recipe: NumericRecipe, items: Sequence[Item]) -> None:
        self._filter = live
        self._ids = {item.claim.digest: recipe.number_of(item.record) for item in items}

    def query(self, keys: Keys) -> Any:
        return self._filter.query(self._with_ids(keys))

    def add(self, keys: Keys) -> None:
        self._filter.add(self._with_ids(keys))

    def _with_ids(self, keys: Keys) -> Keys:
        return Keys(keys.digests, ids=array("q", map(self._ids.__getitem__, keys.digests)))


def keys_of(items: Sequence[Item], recipe: MembershipRecipe) -> Keys:
    """Return the keys of items as their filter sees them, one for each."""
    digests = [item.claim.digest for item in items]
    if isinstance(recipe, NumericRecipe):
        return Keys(digests, ids=array("q", [recipe.number_of(item.record) for item in items]))
    return Keys(digests)


def of_one_shard(recipe: MembershipRecipe, shards: int) -> MembershipRecipe:
    """Return the recipe of each shard's filter."""
    return recipe.for_shards(shards) if isinstance(recipe, NumericRecipe) else recipe


ShardRule = Callable[[Any, bytes], int]
"""The shard of a record and its digest."""


def shard_rule(recipe: AnyRecipe | None, shards: int) -> ShardRule:
    """Return what tells the shard of a record and its digest, picklable: by its id where the filter is over numbers.

    The ids of a shard then lie close together in its filter. May raise `Rejected`, for a record without an id.
    """
    return partial(_by_id, recipe, shards) if isinstance(recipe, NumericRecipe) else partial(_by_digest, shards)


def _by_id(recipe: NumericRecipe, shards: int, record: Any, _: bytes) -> int:
    return recipe.number_of(bare(record)) % shards


def _by_digest(shards: int, _: Any, digest: bytes) -> int:
    return shard_of(digest, shards)

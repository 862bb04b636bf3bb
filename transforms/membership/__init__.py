"""Membership filters: "certainly never seen" or "perhaps". They save look-ups and never decide."""

from .bloom import Bloom, BloomFilter
from .contract import (
    FilterDamaged,
    FilterMismatch,
    FilterTooLarge,
    FilterUnusable,
    MembershipFilter,
    MembershipRecipe,
    Occupancy,
)
from .hashing import Keys, fingerprint, unpack
from .state import FilterState

__all__ = [
    "Bloom",
    "BloomFilter",
    "FilterDamaged",
    "FilterMismatch",
    "FilterState",
    "FilterTooLarge",
    "FilterUnusable",
    "Keys",
    "MembershipFilter",
    "MembershipRecipe",
    "Occupancy",
    "fingerprint",
    "unpack",
]

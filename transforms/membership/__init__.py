"""Membership filters: "certainly never seen" or "perhaps". They save look-ups and never decide."""

from .bitmap import Bitmap, BitmapFilter
from .bloom import Bloom, BloomFilter
from .contract import (
    AnyRecipe,
    FilterDamaged,
    FilterMismatch,
    FilterTooLarge,
    FilterUnusable,
    MembershipFilter,
    MembershipRecipe,
    NumericRecipe,
    Occupancy,
    SharedFilter,
    SharedRecipe,
)
from .hashing import Keys, fingerprint, unpack
from .state import FilterState
from .stored import load_filters

__all__ = [
    "AnyRecipe",
    "Bitmap",
    "BitmapFilter",
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
    "NumericRecipe",
    "Occupancy",
    "SharedFilter",
    "SharedRecipe",
    "fingerprint",
    "load_filters",
    "unpack",
]

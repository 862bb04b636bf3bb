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
from .cuckoo import Cuckoo, CuckooFilter
from .generations import Generations, GenerationsFilter
from .hashing import Keys, fingerprint, unpack
from .redis_bloom import RedisBloom
from .redis_bloom_filter import RedisBloomFilter
from .rotation import Alarm, Rotation
from .state import FilterState
from .stored import load_filters

__all__ = [
    "Alarm",
    "AnyRecipe",
    "Bitmap",
    "BitmapFilter",
    "Bloom",
    "BloomFilter",
    "Cuckoo",
    "CuckooFilter",
    "FilterDamaged",
    "FilterMismatch",
    "FilterState",
    "FilterTooLarge",
    "FilterUnusable",
    "Generations",
    "GenerationsFilter",
    "Keys",
    "MembershipFilter",
    "MembershipRecipe",
    "NumericRecipe",
    "Occupancy",
    "RedisBloom",
    "RedisBloomFilter",
    "Rotation",
    "SharedFilter",
    "SharedRecipe",
    "fingerprint",
    "load_filters",
    "unpack",
]

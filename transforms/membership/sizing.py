"""How large a filter must be: the false-positive rate of split blocks, and its inverse.

The number of keys in a block is Poisson, and full blocks err more than empty ones make good: the rate is the mean over
the load of a block (F. Putze, P. Sanders, J. Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", ACM Journal of
Experimental Algorithmics 14, 2009; first at WEA 2007). The rate of one block follows from how its words and patterns
are chosen, by inclusion and exclusion, and is exact for the average pattern.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from itertools import combinations, combinations_with_replacement
from math import ceil, comb, exp, factorial, log, prod
from typing import Final

from .blocks import BITS_PER_PROBE, BLOCK_BITS, PATTERNS, PROBES, WORDS_PER_BLOCK, pattern_bits

LOWEST_ERROR_RATE: Final = 1e-4
HIGHEST_ERROR_RATE: Final = 0.1
AIM: Final = 0.9
"""The formula gives the mean over all sets of keys; this is for one set, whose rate may lie a little higher."""

SPARE: Final = 1.15
"""Fewer probes are faster: as few as stay within this factor of the least possible size."""

STEPS: Final = 256
"""The load is a multiple of 1/256, so that it does not hang on the last bit of a machine's logarithm."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """Probes a key, and the mean load of a block at which the asked error rate is just kept."""

    probes: int
    keys_per_block: float

    def blocks(self, capacity: int) -> int:
        """Return the number of blocks for so many keys."""
        return ceil(capacity / self.keys_per_block)


@cache
def shape(error_rate: float) -> Shape:
    """Return the fastest shape that is small enough, or the smallest."""
    limit = BLOCK_BITS / (SPARE * least_bits(error_rate))
    shapes = [Shape(probes=probes, keys_per_block=_highest_load(error_rate, probes)) for probes in PROBES]
    small = (each for each in shapes if each.keys_per_block >= limit)
    return next(small, max(shapes, key=lambda each: each.keys_per_block))


def least_bits(error_rate: float) -> float:
    """Return the bits a key of the best possible Bloom filter: -ln p / (ln 2)^2."""
    return -log(error_rate) / log(2) ** 2


def false_positive_rate(load: float, probes: int) -> float:
    """Return the chance that an absent key is taken for a known one, at a mean load of `load` keys a block."""
    return sum(count * exp(-load * touched) for count, touched in _terms(probes))


def estimated_load(clear_share: float, probes: int) -> float:
    """Return the mean load of a block from the share of bits that are still clear."""
    return log(1 / clear_share) * BLOCK_BITS / (probes * BITS_PER_PROBE)


@cache
def _terms(probes: int) -> list[tuple[int, float]]:
    """Return the terms of the rate: a coefficient, and the chance that one key of the block touches given bits.

    An absent key is taken for a known one if none of the bits it asks for is clear. In a block of n keys given bits,
    so many in each of its words, stay clear with chance (1 - touched)^n; n is Poisson, and so the mean of that is
    exp(-load touched).
    """
    found: list[tuple[int, float]] = []
    for bits in combinations_with_replacement(range(BITS_PER_PROBE + 1), probes):
        orders = factorial(probes) // prod(factorial(times) for times in Counter(bits).values())
        found.append(((-1) ** sum(bits) * orders * prod(comb(BITS_PER_PROBE, each) for each in bits), _touched(bits)))
    return found


def _touched(bits: tuple[int, ...]) -> float:
    """Return the chance that one key sets any of the given bits: `bits[i]` of them in the i-th of as many words."""
    probes = len(bits)
    spared = 0.0
    for shared in range(probes + 1):
        chance = comb(WORDS_PER_BLOCK - probes, probes - shared) / comb(WORDS_PER_BLOCK, probes)
        spared += chance * sum(prod(1 - _hit(each) for each in words) for words in combinations(bits, shared))
    return 1 - spared


@cache
def _hit(bits: int) -> float:
    """Return the chance that one pattern sets at least one of `bits` bits of another pattern."""
    return sum(comb(bits, some) * _share(some) * (1 if some % 2 else -1) for some in range(1, bits + 1))


@cache
def _share(bits: int) -> float:
    """Return the share of patterns that hold `bits` given bits of a pattern: the mean over all patterns and bits."""
    held = Counter(some for pattern in pattern_bits() for some in combinations(pattern, bits))
    return sum(count * count for count in held.values()) / (held.total() * PATTERNS)


def _highest_load(error_rate: float, probes: int) -> float:
    low, high = 1, BLOCK_BITS * STEPS
    while high - low > 1:
        middle = (low + high) // 2
        if false_positive_rate(middle / STEPS, probes) <= AIM * error_rate:
            low = middle
        else:
            high = middle
    return low / STEPS

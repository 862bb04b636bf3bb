"""Shards as Flink spreads them: one LONG key a shard, chosen so that any number of subtasks gets its equal part.

Flink gives a key to a key group by its hash, and key groups to subtasks in ranges. Shard i of n gets a key of group
ceil(i * max_parallelism / n), so that the shards lie evenly in the ranges and each subtask gets n / subtasks of them,
rounded up or down. Keys that hash as they like do not: twelve strings came out as 7, 1 and 4 on three subtasks.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import count

from ..connectors.errors import Misconfigured

_ROW_HASH = 62
"""What a Java `Row` of one field adds to its field's hash: PyFlink wraps every key in such a row."""

_INT = 0xFFFFFFFF


@lru_cache
def shard_keys(shards: int, max_parallelism: int) -> tuple[int, ...]:
    """Return the key of each shard. Raises `Misconfigured` where there are more shards than key groups."""
    if shards > max_parallelism:
        raise Misconfigured(
            f"shards={shards} are more than max_parallelism={max_parallelism}, which is how many key groups there are:"
            " take fewer shards"
        )
    # Which key falls into a group must never change: state that was saved under it would not be found again.
    return tuple(_first_key_of(-(-shard * max_parallelism // shards), max_parallelism) for shard in range(shards))


def key_group(key: int, max_parallelism: int) -> int:
    """Return the key group of a LONG key, as Flink's `KeyGroupRangeAssignment` does."""
    return _murmur((_ROW_HASH + (key ^ (key >> 32))) & _INT) % max_parallelism


def _first_key_of(group: int, max_parallelism: int) -> int:
    return next(key for key in count() if key_group(key, max_parallelism) == group)


def _murmur(code: int) -> int:
    """Hash 32 bits as Flink's `MathUtils.murmurHash` does (MurmurHash3 x86-32 of one word, made non-negative)."""
    code = _rotate(code * 0xCC9E2D51 & _INT, 15) * 0x1B873593 & _INT
    code = (_rotate(code, 13) * 5 + 0xE6546B64) & _INT
    code ^= 4
    code = (code ^ code >> 16) * 0x85EBCA6B & _INT
    code = (code ^ code >> 13) * 0xC2B2AE35 & _INT
    code ^= code >> 16
    return code if code < 1 << 31 else (-code & _INT) % (1 << 31)


def _rotate(code: int, bits: int) -> int:
    return (code << bits | code >> 32 - bits) & _INT

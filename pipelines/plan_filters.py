"""What each kind of filter takes for so many keys, by the recipes' own sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from math import ceil

from oncesink.connectors.errors import Misconfigured
from oncesink.transforms.membership import (
    Bitmap,
    Bloom,
    Cuckoo,
    FilterTooLarge,
    RedisBloom,
    bitmap_snapshot,
    cuckoo_snapshot,
)
from oncesink.transforms.membership.blocks import BITS_PER_PROBE
from oncesink.transforms.membership.hashing import FINGERPRINT_BYTES
from oncesink.transforms.membership.nests import LOAD, MARKS, SLOTS
from oncesink.transforms.membership.sizing import shape
from oncesink.transforms.membership.snapshot import HEADER

MIB = 1 << 20
MOST_KEYS = 10**13
MOST_SHARDS = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """What is to be planned: `keys` are those within `retention`, which come evenly."""

    keys: int
    error_rate: float
    shards: int
    retention: timedelta
    retry_interval: timedelta

    def __post_init__(self) -> None:
        if not 1 <= self.keys <= MOST_KEYS:
            raise Misconfigured(f"keys={self.keys} must be from 1 to {MOST_KEYS}")
        if not 1 <= self.shards <= MOST_SHARDS:
            raise Misconfigured(f"shards={self.shards} must be from 1 to {MOST_SHARDS}")
        if self.shards > self.keys:
            raise Misconfigured(f"shards={self.shards} are more than keys={self.keys}: most would stay empty")
        if self.retention <= timedelta(0) or self.retry_interval <= timedelta(0):
            raise Misconfigured("retention and retry interval are longer than nothing")
        if self.retry_interval > self.retention:
            raise Misconfigured(
                f"retry_interval={self.retry_interval} is longer than retention={self.retention}: a second send would"
                " find no row, and be written again"
            )

    @property
    def keys_a_shard(self) -> int:
        return ceil(self.keys / self.shards)


@dataclass(frozen=True, kw_only=True, slots=True)
class FilterPlan:
    """One kind of filter, for all keys in so many shards; the one in Redis has no shards, and stands as one.

    `hashes` are the bits that a key sets, `log_bytes_a_shard` what state holds beside a snapshot before the two are
    joined, `reads_saved` the share of new keys for which nobody is asked.
    """

    kind: str
    for_keys: str
    note: str
    bits_a_key: float
    hashes: int
    error_rate: float
    mib_a_shard: float
    mib_in_all: float
    snapshot_bytes_a_shard: int
    log_bytes_a_shard: int
    log_bytes_a_key: int
    reads_saved: float


def _bloom(ask: Ask) -> FilterPlan:
    recipe = Bloom(capacity=ask.keys_a_shard, error_rate=ask.error_rate)
    return _filter(
        ask,
        kind="Bloom",
        for_keys="any",
        note="for more keys than planned: Generations(Bloom(...))",
        memory_bytes=recipe.memory_bytes,
        header_bytes=HEADER.size,
        hashes=shape(ask.error_rate).probes * BITS_PER_PROBE,
        error_rate=ask.error_rate,
        log_bytes_a_key=FINGERPRINT_BYTES,
    )


def _bitmap(ask: Ask) -> FilterPlan:
    recipe = Bitmap(id="id", capacity=ask.keys_a_shard)
    return _filter(
        ask,
        kind="Bitmap",
        for_keys="ids without gaps",
        note="exact; ids with gaps take as much as the gaps are wide",
        memory_bytes=recipe.memory_bytes,
        header_bytes=bitmap_snapshot.HEADER.size + bitmap_snapshot.NUMBER_BYTES * recipe.pages,
        hashes=1,
        error_rate=0.0,
        log_bytes_a_key=bitmap_snapshot.ENTRY.itemsize,
    )


def _cuckoo(ask: Ask) -> FilterPlan:
    recipe = Cuckoo(capacity=ask.keys_a_shard, window=max(ask.retention, timedelta(minutes=1)))
    return _filter(
        ask,
        kind="Cuckoo",
        for_keys="any",
        note="forgets keys after its window; its error rate is always this",
        memory_bytes=recipe.memory_bytes,
        header_bytes=cuckoo_snapshot.HEADER.size,
        hashes=1,
        error_rate=1 - (1 - 1 / MARKS) ** (2 * SLOTS * LOAD),
        log_bytes_a_key=cuckoo_snapshot.ENTRY.itemsize,
    )


def _redis_bloom(ask: Ask) -> FilterPlan | None:
    """Return the plan of the filter that jobs share, None where Redis has no value that is long enough."""
    try:
        recipe = RedisBloom("redis://plan", "plan", capacity=ask.keys, error_rate=ask.error_rate)
    except FilterTooLarge:
        return None
    alone = replace(ask, shards=1)
    bloom = _bloom(alone)
    return replace(
        bloom,
        kind="RedisBloom",
        note=f"in Redis, shared by jobs; with all its generations up to {recipe.memory_bytes / MIB:,.1f} MiB",
        snapshot_bytes_a_shard=0,
        log_bytes_a_shard=0,
        log_bytes_a_key=0,
    )


def _filter(  # noqa: PLR0913 - a row of the plan
    ask: Ask,
    *,
    kind: str,
    for_keys: str,
    note: str,
    memory_bytes: int,
    header_bytes: int,
    hashes: int,
    error_rate: float,
    log_bytes_a_key: int,
) -> FilterPlan:
    return FilterPlan(
        kind=kind,
        for_keys=for_keys,
        note=note,
        bits_a_key=memory_bytes * 8 / ask.keys_a_shard,
        hashes=hashes,
        error_rate=error_rate,
        mib_a_shard=memory_bytes / MIB,
        mib_in_all=memory_bytes * ask.shards / MIB,
        snapshot_bytes_a_shard=memory_bytes + header_bytes,
        # The log is joined with the snapshot when it is as long.
        log_bytes_a_shard=memory_bytes + header_bytes,
        log_bytes_a_key=log_bytes_a_key,
        reads_saved=1 - error_rate,
    )


KINDS: Sequence[Callable[[Ask], FilterPlan | None]] = (_bloom, _bitmap, _cuckoo, _redis_bloom)

"""`oncesink plan`: what filters of so many keys take, and what each choice of tiers costs. Figures only, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from math import ceil
from typing import Any

from oncesink.connectors.errors import Misconfigured
from oncesink.transforms.membership import Bitmap, Bloom
from oncesink.transforms.membership.blocks import BITS_PER_PROBE
from oncesink.transforms.membership.hashing import FINGERPRINT_BYTES
from oncesink.transforms.membership.sizing import least_bits, shape
from oncesink.transforms.membership.snapshot import HEADER

MIB = 1 << 20
LEDGER_ROW_BYTES = 230
CACHE_ENTRY_BYTES = 245
"""Measured with occurrences of 50 bytes: a row in MySQL with its indexes, an entry in Redis."""

TTL_MARGIN = 1.25
"""A cache entry lives a quarter longer than second sends lie apart: ten minutes become twelve and a half."""

MOST_KEYS = 10**13
MOST_SHARDS = 1 << 20
BITMAP_ENTRY_BYTES = 10


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
    """One kind of filter, for all keys in so many shards.

    `hashes` are the bits that a key sets, `log_bytes_a_shard` what state holds beside a snapshot before the two are
    joined, `reads_saved` the share of new keys for which nobody is asked.
    """

    kind: str
    for_keys: str
    bits_a_key: float
    hashes: int
    error_rate: float
    mib_a_shard: float
    mib_in_all: float
    snapshot_bytes_a_shard: int
    log_bytes_a_shard: int
    log_bytes_a_key: int
    reads_saved: float


@dataclass(frozen=True, kw_only=True, slots=True)
class TierPlan:
    """One choice of tiers. Figures of calls are keys asked for, of 1000 records of that sort.

    `soon` are second sends within the retry interval, `late` those after it.
    """

    tiers: str
    take_when: str
    filter_mib: float
    redis_mib: float
    ledger_mib: float
    redis_asked_new: float
    redis_asked_second: float
    ledger_read_new: float
    ledger_claimed_new: float
    ledger_second_soon: float
    ledger_second_late: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Everything that `oncesink plan` tells."""

    keys: int
    error_rate: float
    shards: int
    retention_seconds: float
    retry_interval_seconds: float
    cache_ttl_seconds: float
    least_possible_mib: float
    filters: tuple[FilterPlan, ...]
    tiers: tuple[TierPlan, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


def plan(ask: Ask) -> Plan:
    """Return the plan. Raises `Misconfigured` for what no filter can be made for."""
    filters = tuple(kind(ask) for kind in KINDS)
    ttl = min(ask.retry_interval * TTL_MARGIN, ask.retention)
    return Plan(
        keys=ask.keys,
        error_rate=ask.error_rate,
        shards=ask.shards,
        retention_seconds=ask.retention.total_seconds(),
        retry_interval_seconds=ask.retry_interval.total_seconds(),
        cache_ttl_seconds=ttl.total_seconds(),
        least_possible_mib=ask.keys * least_bits(ask.error_rate) / 8 / MIB,
        filters=filters,
        tiers=tuple(_tiers(ask, filters[0].mib_in_all, ask.keys * (ttl / ask.retention) * CACHE_ENTRY_BYTES / MIB)),
    )


def _bloom(ask: Ask) -> FilterPlan:
    recipe = Bloom(capacity=ask.keys_a_shard, error_rate=ask.error_rate)
    return _filter(
        ask,
        kind="Bloom",
        for_keys="any",
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
        memory_bytes=recipe.memory_bytes,
        header_bytes=64 + 8 * recipe.pages,
        hashes=1,
        error_rate=0.0,
        log_bytes_a_key=BITMAP_ENTRY_BYTES,
    )


def _filter(
    ask: Ask,
    *,
    kind: str,
    for_keys: str,
    memory_bytes: int,
    header_bytes: int,
    hashes: int,
    error_rate: float,
    log_bytes_a_key: int,
) -> FilterPlan:
    return FilterPlan(
        kind=kind,
        for_keys=for_keys,
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


KINDS: Sequence[Callable[[Ask], FilterPlan]] = (_bloom, _bitmap)


def _tiers(ask: Ask, filter_mib: float, redis_mib: float) -> list[TierPlan]:
    """Return what happens to 1000 new records and to 1000 second sends, by the order in which tiers are asked.

    A new key that the filter wrongly knows is looked up in every tier and then claimed. Without a filter a second send
    that the cache does not know is claimed, which finds its row; with one it is read.
    """
    perhaps = 1000 * ask.error_rate
    ledger_mib = ask.keys * LEDGER_ROW_BYTES / MIB
    none = {"filter_mib": 0.0, "redis_mib": 0.0, "ledger_mib": ledger_mib, "ledger_claimed_new": 1000.0}
    return [
        TierPlan(
            tiers="index",
            take_when="little traffic, or second sends are rare: nothing to size",
            **none,
            redis_asked_new=0.0,
            redis_asked_second=0.0,
            ledger_read_new=0.0,
            ledger_second_soon=1000.0,
            ledger_second_late=1000.0,
        ),
        TierPlan(
            tiers="filter + index",
            take_when="begin with this; and for long retry intervals, where Redis would have to keep much",
            **{**none, "filter_mib": filter_mib},
            redis_asked_new=0.0,
            redis_asked_second=0.0,
            ledger_read_new=perhaps,
            ledger_second_soon=1000.0,
            ledger_second_late=1000.0,
        ),
        TierPlan(
            tiers="Redis + index",
            take_when="the database is weak and second sends come soon; no filter to size or to refill",
            **{**none, "redis_mib": redis_mib},
            redis_asked_new=1000.0,
            redis_asked_second=1000.0,
            ledger_read_new=0.0,
            ledger_second_soon=0.0,
            ledger_second_late=1000.0,
        ),
        TierPlan(
            tiers="filter + Redis + index",
            take_when="many second sends soon after the first, or the filter's false positives hurt",
            **{**none, "filter_mib": filter_mib, "redis_mib": redis_mib},
            redis_asked_new=perhaps,
            redis_asked_second=1000.0,
            ledger_read_new=perhaps,
            ledger_second_soon=0.0,
            ledger_second_late=1000.0,
        ),
    ]

"""`oncesink plan`: what filters of so many keys take, and what each choice of tiers costs. Figures only, no I/O."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from oncesink.pipelines.plan_filters import KINDS, MIB, Ask, FilterPlan
from oncesink.transforms.membership.sizing import least_bits

LEDGER_ROW_BYTES = 230
CACHE_ENTRY_BYTES = 245
"""Measured with occurrences of 50 bytes: a row in MySQL with its indexes, an entry in Redis."""

TTL_MARGIN = 1.25
"""A cache entry lives a quarter longer than second sends lie apart: ten minutes become twelve and a half."""


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
    filters = tuple(found for kind in KINDS if (found := kind(ask)) is not None)
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

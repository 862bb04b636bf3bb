"""A plan as tables that a person reads."""

from __future__ import annotations

from datetime import timedelta

from oncesink.connectors.spoken import spoken
from oncesink.pipelines.plan import Plan
from rich.console import Console
from rich.table import Column, Table


def show(plan: Plan, console: Console) -> None:
    """Print both tables, and what they are about."""
    console.print(
        f"{plan.keys:,} keys within {_time(plan.retention_seconds)}, {plan.shards} shards,"
        f" error rate {plan.error_rate:g}; no Bloom filter could do with less than {_mib(plan.least_possible_mib)}"
    )
    console.print(_filters(plan))
    if all(each.kind != "RedisBloom" for each in plan.filters):
        console.print("A RedisBloom is refused: with its generations it would outgrow a value of Redis, 512 MiB.")
    console.print(_tiers(plan))
    console.print(
        f"Redis keeps an entry for {_time(plan.cache_ttl_seconds)}: second sends come within"
        f" {_time(plan.retry_interval_seconds)}, and a quarter more. The ledger's unique index always decides."
    )


def _whole(name: str) -> Column:
    """Return a column that breaks a number where the terminal is narrow, and never cuts it."""
    return Column(name, overflow="fold")


def _filters(plan: Plan) -> Table:
    names = (
        "Filter",
        "For keys",
        "Bits a key",
        "Hashes",
        "A shard",
        "In all",
        "In a shard's state",
        "Reads saved",
        "Note",
    )
    table = Table(*map(_whole, names))
    for each in plan.filters:
        state = each.snapshot_bytes_a_shard + each.log_bytes_a_shard
        table.add_row(
            each.kind,
            each.for_keys,
            f"{each.bits_a_key:.1f}",
            str(each.hashes),
            _mib(each.mib_a_shard),
            _mib(each.mib_in_all),
            f"up to {_mib(state / (1 << 20))}" if state else "none",
            f"{each.reads_saved:.4%}",
            each.note,
        )
    return table


def _tiers(plan: Plan) -> Table:
    names = ("Tiers", "Memory", "1000 new records", "1000 second sends, soon", "the same, late", "Take it when")
    table = Table(
        *map(_whole, names),
        title="What each choice asks of Redis and of the ledger",
        show_lines=True,
    )
    for each in plan.tiers:
        memory = [f"filter {_mib(each.filter_mib)}"] * (each.filter_mib > 0)
        memory += [f"Redis {_mib(each.redis_mib)}"] * (each.redis_mib > 0)
        table.add_row(
            each.tiers,
            "\n".join([*memory, f"rows {_mib(each.ledger_mib)}"]),
            _calls(each.redis_asked_new, each.ledger_read_new, each.ledger_claimed_new),
            _calls(each.redis_asked_second, each.ledger_second_soon, 0),
            _calls(each.redis_asked_second, each.ledger_second_late, 0),
            each.take_when,
        )
    return table


def _calls(redis: float, ledger: float, claims: float) -> str:
    found = [f"{redis:g} asked of Redis"] * (redis > 0)
    found += [f"{ledger:g} asked of the ledger"] * (ledger > 0)
    found += [f"{claims:g} rows inserted"] * (claims > 0)
    return "\n".join(found)


def _mib(value: float) -> str:
    if value >= 10 * 1024:
        return f"{value / 1024:,.1f} GiB"
    return f"{value:,.1f} MiB" if value >= 0.1 else f"{value * 1024:,.1f} KiB"


def _time(seconds: float) -> str:
    return spoken(timedelta(seconds=seconds))

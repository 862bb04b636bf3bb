"""A setting of the wrong kind is refused by name when the recipe is made, and told what it should be."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from oncesink.connectors import (
    CallableSink,
    HttpSink,
    JsonLinesSink,
    KafkaSink,
    LRUCache,
    MemoryCache,
    MemoryLedger,
    Misconfigured,
    MySQLLedger,
    MySQLTable,
    MySQLTimeouts,
    RedisCache,
    RedisLedger,
    RedisSink,
    SQLiteLedger,
    SQLiteTable,
)
from oncesink.transforms import Batch, Fields, Gate

DAY = timedelta(days=1)
LEDGER = MemoryLedger()
FILE = SQLiteLedger("once.db", retention=DAY)
URL = "mysql://u@h/d"


def table(**settings: Any) -> MySQLTable:
    given: dict[str, Any] = {"unique": ("id",)} | settings
    return MySQLTable(URL, "t", **given)


def gate(**settings: Any) -> Gate:
    given: dict[str, Any] = {"scope": "s", "key": Fields("id"), "occurrence": None} | settings
    return Gate(**given)


WRONG: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (lambda **given: MySQLLedger(URL, **given), {"retention": 7}, "retention is a duration.*timedelta.* not 7"),
    (lambda **given: MySQLLedger(URL, **given), {"retention": None}, "retention is a duration"),
    (lambda **given: SQLiteLedger("f.db", **given), {"retention": "7d"}, "retention is a duration.*'7d'"),
    (lambda **given: SQLiteLedger("f.db", **given), {"retention": DAY, "busy": 3}, "busy is a duration"),
    (lambda **given: RedisLedger("redis://h", **given), {"retention": 7.5}, "retention is a duration"),
    (lambda **given: RedisCache("redis://h", **given), {"ttl": 60}, "ttl is a duration"),
    (lambda **given: RedisCache("redis://h", **given), {"ttl": DAY, "first_pause": 1}, "first_pause is a duration"),
    (LRUCache, {"ttl": 60, "entries": 5}, "ttl is a duration"),
    (MemoryCache, {"ttl": 60}, "ttl is a duration"),
    (MemoryLedger, {"retention": 7}, "retention is a duration"),
    (MySQLTimeouts, {"lock": 5}, "lock is a duration"),
    (lambda **given: JsonLinesSink("f", **given), {"timeout": 5}, "timeout is a duration"),
    (lambda **given: HttpSink("https://h/{id}", **given), {"timeout": 5}, "timeout is a duration"),
    (lambda **given: KafkaSink("h:9092", "t", **given), {"timeout": 5}, "timeout is a duration"),
    (
        lambda **given: RedisSink("redis://h", key="k:{id}", remembers=None, **given),
        {"timeout": 5},
        "timeout is a duration",
    ),
    (lambda **given: CallableSink(print, name="n", **given), {"timeout": 5}, "timeout is a duration"),
    (lambda **given: CallableSink.each(print, name="n", **given), {"record_timeout": 5}, "timeout is a duration"),
    (lambda **given: CallableSink(name="n", **given), {"write": "send"}, "a function of a list of writes, not 'send'"),
    (table, {"columns": ["id", "amount"]}, r"columns= is a field.* not \['id', 'amount'\]"),
    (table, {"columns": {"id": 7}}, "columns= is a field"),
    (table, {"columns": {}}, "columns= is a field"),
    (table, {"columns": {"id": ()}}, "columns= is a field"),
    (table, {"unique": "id"}, "unique= is a tuple of columns.* not 'id'"),
    (table, {"unique": ["id"]}, "unique= is a tuple"),
    (table, {"columns": {"id": "id"}, "optional": "id"}, "optional= is a tuple"),
    (lambda **given: SQLiteTable(FILE, "t", **given), {"columns": "id"}, "columns= is a field"),
    (lambda **given: SQLiteTable(FILE, "t", **given), {"unique": "id"}, "unique= is a tuple"),
    (gate, {"lease": 30}, "lease is a duration"),
    (gate, {"grace": "10s"}, "grace is a duration"),
    (gate, {"scope": 7}, "scope is a name"),
    (gate, {"generation": "2"}, "generation is a whole number, not '2'"),
    (gate, {"shards": 1.5}, "shards is a whole number"),
    (gate, {"batch": 1000}, r"batch is such as Batch\(rows=1000\), not 1000"),
    (gate, {"ledger": URL}, "ledger is a recipe such as MySQLLedger"),
    (gate, {"ledger": LEDGER, "cache": "redis://h"}, "cache is a recipe such as RedisCache"),
    (Batch, {"linger": 1}, "linger is a duration"),
    (Batch, {"rows": "many"}, "rows is a whole number"),
    (Batch, {"rows": None}, "rows is a whole number"),
]


@pytest.mark.parametrize(
    ("make", "settings", "told"), WRONG, ids=[f"{told} {n}" for n, (_, _, told) in enumerate(WRONG)]
)
def test_it_is_said_what_is_wanted(make: Callable[..., Any], settings: dict[str, Any], told: str) -> None:
    """`Misconfigured`, not a TypeError out of the middle of the library."""
    with pytest.raises(Misconfigured, match=told):
        make(**settings)

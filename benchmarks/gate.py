"""The gate with its three tiers against what one would write by hand, on real servers with their defaults.

The clock runs from the list of dicts to the list of outcomes: key making, claim, finish and cache fill included; the
sink is in memory. Ours takes ten times as many records as the opponents that go one record at a time; all alternate in
one run. Beside that: what share of duplicates MySQL never hears of.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from statistics import median
from typing import Any, cast

import pymysql
import redis
from oncesink.connectors.memory_sinks import MemorySink
from oncesink.connectors.mysql_ledger import MySQLLedger
from oncesink.connectors.redis_cache import RedisCache
from oncesink.connectors.schema import mysql_ddl, mysql_scopes_ddl
from oncesink.connectors.secret import Secret
from oncesink.transforms import Bloom, Counts, Fields, Gate, OnceWriter, SourcePosition

from benchmarks.handwritten import PROCESSED, Record, in_batches, one_at_a_time
from benchmarks.rows import MeasuredRow
from tests import servers

ROUNDS = 5
OURS = 40_000
THEIRS = 4_000
FILTER = Bloom(capacity=2 * OURS, error_rate=0.001)

Side = Callable[[list[Record], list[Record]], tuple[float, float]]
"""Takes new records, then the same again from another place; returns the seconds of each."""


def rows() -> list[MeasuredRow]:
    """Measure all new and all duplicates, against each opponent."""
    with servers.mysql_server() as mysql, servers.redis_server() as cache:
        sides = {
            "oncesink": lambda first, second: ours(mysql, cache, first, second),
            "hand-written": lambda first, second: by_hand(one_at_a_time, mysql, cache, first, second),
            "hand-written in batches": lambda first, second: by_hand(in_batches, mysql, cache, first, second),
            "aws-lambda-powertools": lambda first, second: powertools(cache, first, second),
        }
        rates = measure(sides)
        found = [kept_away(mysql, cache)]
    for kind in ("all new", "all duplicates"):
        mine = rates["oncesink", kind]
        for name, bar in (("hand-written", 15.0), ("hand-written in batches", None), ("aws-lambda-powertools", None)):
            found.append(compare(f"gate, {kind}, against {name}", mine, rates[name, kind], bar))
    return found


def measure(sides: dict[str, Side]) -> dict[tuple[str, str], list[float]]:
    """Run every side in turn, several times, each time with keys never seen before; return records a second."""
    rates: dict[tuple[str, str], list[float]] = {}
    for turn in range(ROUNDS):
        for name, side in sides.items():
            many = THEIRS if name in ("hand-written", "aws-lambda-powertools") else OURS
            first = records(many, f"{turn}-{name}", 0)
            second = records(many, f"{turn}-{name}", many)
            new, again = side(first, second)
            rates.setdefault((name, "all new"), []).append(many / new)
            rates.setdefault((name, "all duplicates"), []).append(many / again)
    return rates


def records(many: int, family: str, offset: int) -> list[Record]:
    """Return orders; those with another offset are second sends of the same ones."""
    return [
        {
            "order_id": f"{family}-{number:08d}",
            "customer": f"c{number % 997}",
            "amount": number * 7 % 100_000,
            "currency": "EUR",
            "topic": "orders",
            "partition": number % 8,
            "offset": offset + number,
        }
        for number in range(many)
    ]


def ours(
    mysql: servers.MySQLServer, cache: servers.RedisServer, first: list[Record], second: list[Record]
) -> tuple[float, float]:
    """Write through the gate: Bloom filter, Redis, MySQL."""
    with writer_into(mysql, cache) as writer:
        begin = time.perf_counter()
        new = writer.write(first)
        middle = time.perf_counter()
        again = writer.write(second)
        end = time.perf_counter()
    if len(new.written) != len(first) or len(again.duplicates) != len(second):
        raise RuntimeError(f"not what was to be measured: {new!r}, then {again!r}")
    return middle - begin, end - middle


def kept_away(mysql: servers.MySQLServer, cache: servers.RedisServer) -> MeasuredRow:
    """Deliver finished keys again, from another place and from the same; count digests in ledger statements."""
    first, second = records(OURS, "again", 0), records(OURS, "again", OURS)
    counts = Counts()
    with writer_into(mysql, cache, counts) as writer:
        writer.write(first)
        before = asked(counts)
        writer.write(second)
        writer.write(first)
    reached = (asked(counts) - before) / (2 * OURS)
    return MeasuredRow(
        name="duplicates that do not reach MySQL",
        ours=1 - reached,
        theirs=1.0,
        ratio=1 - reached,
        at_least=0.995,
        unit="share",
        raw={"deliveries": 2 * OURS, "reached": asked(counts) - before},
    )


def asked(counts: Counts) -> int:
    """Return how many digests were bound in statements on the ledger."""
    return counts["ledger_read"] + counts["ledger_claimed"] + counts["ledger_finished"]


@contextmanager
def writer_into(
    mysql: servers.MySQLServer,
    cache: servers.RedisServer,
    counts: Counts | None = None,
    *,
    membership: Bloom | None = FILTER,
) -> Iterator[OnceWriter]:
    """Open a writer with all three tiers on fresh tables, or without a filter."""
    database = fresh_database(mysql, [*mysql_ddl(), *mysql_scopes_ddl()])
    password = Secret.literal(servers.MYSQL_PASSWORD)
    gate = Gate(
        scope="bench",
        key=Fields("order_id"),
        occurrence=SourcePosition("bench", "topic", "partition", "offset"),
        ledger=MySQLLedger(mysql.url(database), password=password, retention=timedelta(days=7)),
        cache=RedisCache(cache.url, ttl=timedelta(hours=1)),
        membership=membership,
        on_replay="write",
    )
    with OnceWriter(gate, MemorySink(database), metrics=counts) as writer:
        yield writer


def by_hand(
    write: Callable[..., int],
    mysql: servers.MySQLServer,
    cache: servers.RedisServer,
    first: list[Record],
    second: list[Record],
) -> tuple[float, float]:
    """Write as the article does."""
    database = fresh_database(mysql, [PROCESSED])
    kept: list[Record] = []
    with closing(mysql.connect(database)) as connection, closing(redis.Redis.from_url(cache.url)) as client:
        client.ping()
        return timed(lambda some: write(some, client, connection, kept.append), first, second)


def powertools(cache: servers.RedisServer, first: list[Record], second: list[Record]) -> tuple[float, float]:
    """Write through the idempotency of aws-lambda-powertools, its store in Redis."""
    with powertools_function(cache) as apply:

        def write(some: list[Record]) -> int:
            for record in some:
                apply(order=record)
            return len(some)

        return timed(write, first, second)


@contextmanager
def powertools_function(cache: servers.RedisServer) -> Iterator[Callable[..., Any]]:
    """Give a function that the library makes idempotent by `order_id`."""
    from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function  # noqa: PLC0415
    from aws_lambda_powertools.utilities.idempotency.persistence.redis import (  # noqa: PLC0415
        RedisCachePersistenceLayer,
    )

    kept: list[Record] = []
    with closing(redis.Redis.from_url(cache.url, decode_responses=True)) as client:
        layer = RedisCachePersistenceLayer(client=cast("Any", client))
        config = IdempotencyConfig(event_key_jmespath="order_id")

        @idempotent_function(data_keyword_argument="order", persistence_store=layer, config=config)
        def apply(order: Record) -> str:
            kept.append(order)
            return "ok"

        yield apply


def timed(write: Callable[[list[Record]], int], first: list[Record], second: list[Record]) -> tuple[float, float]:
    """Return the seconds of both deliveries."""
    begin = time.perf_counter()
    write(first)
    middle = time.perf_counter()
    write(second)
    return middle - begin, time.perf_counter() - middle


def fresh_database(mysql: servers.MySQLServer, statements: list[str]) -> str:
    """Return the name of a new database with these tables."""
    database = mysql.new_database()
    connection: pymysql.Connection[Any]
    with closing(mysql.connect(database)) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        connection.commit()
    return str(database)


def compare(name: str, mine: list[float], theirs: list[float], bar: float | None) -> MeasuredRow:
    """Compare medians, in records a second."""
    raw = json.loads(json.dumps({"ours": mine, "theirs": theirs}))
    return MeasuredRow(
        name=name,
        ours=median(mine),
        theirs=median(theirs),
        ratio=median(mine) / median(theirs),
        at_least=bar,
        unit="records/s",
        raw=raw,
    )

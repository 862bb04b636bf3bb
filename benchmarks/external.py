"""Sinks outside of any database: three tiers by hand and by the gate, Redis as the ledger, and a cache that is away.

The sink is a log in a process of its own (`target.py`), the same for both sides of a row, and what is lost or there
twice is counted from its file.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from statistics import quantiles
from typing import Any

import redis
from oncesink.connectors.callable_sink import CallableSink
from oncesink.connectors.contract import Answer, Cache, Ledger, Sink, Write
from oncesink.connectors.mysql_ledger import MySQLLedger
from oncesink.connectors.redis_cache import RedisCache
from oncesink.connectors.redis_ledger import RedisLedger
from oncesink.connectors.schema import mysql_ddl, mysql_scopes_ddl
from oncesink.connectors.secret import Secret
from oncesink.transforms import Bloom, Fields, Gate, OnceWriter, SourcePosition

from benchmarks.gate import compare, fresh_database, records
from benchmarks.handwritten import PROCESSED, Record, one_at_a_time
from benchmarks.rows import MeasuredRow, at_most, none_of
from benchmarks.target import Append, Target, disconnect, target
from tests import servers

ROUNDS = 5
OURS = 40_000
THEIRS = 4_000
BATCHES = 10_000
BATCH_ROWS = 100
OFFERED_PER_SECOND = 10_000
WARM_UP = 200


def rows() -> list[MeasuredRow]:
    """Measure all three."""
    try:
        return [*by_hand_and_by_gate(), added_latency(), *cache_away()]
    finally:
        disconnect()


def by_hand_and_by_gate() -> list[MeasuredRow]:
    """Write new records into the log: through filter, Redis and MySQL, and as the article does."""
    mine, theirs, wrong = [], [], [0, 0]
    with servers.mysql_server() as mysql, servers.redis_server() as cache, log() as sink:
        for turn in range(ROUNDS):
            some, fewer = records(OURS, f"{turn}-ours", 0), records(THEIRS, f"{turn}-theirs", 0)
            tier = RedisCache(cache.url, ttl=timedelta(hours=1))
            mine.append(OURS / through_gate(some, mysql_ledger(mysql), append_to(sink), tier))
            theirs.append(THEIRS / by_hand(fewer, mysql, cache, sink))
            lost, twice = sink.tally(each["order_id"] for each in [*some, *fewer])
            wrong = [wrong[0] + lost, max(wrong[1], twice)]
    return [
        compare("external sink, three tiers, against hand-written", mine, theirs, 10.0),
        none_of("external sink: lost or twice", sum(wrong)),
    ]


def added_latency() -> MeasuredRow:
    """Offer batches at a steady rate to a gate whose ledger is Redis; measure from entry to the call of the sink."""
    called = Called()
    sink = CallableSink(called, name="memory")
    seconds, late = [], 0
    with servers.redis_server() as server:
        gate = gate_of(RedisLedger(server.url, retention=timedelta(hours=1)), None)
        with OnceWriter(gate, sink) as writer:
            begin = time.perf_counter()
            for number, batch in enumerate(batches(WARM_UP + BATCHES)):
                due = begin + number * BATCH_ROWS / OFFERED_PER_SECOND
                late += wait_until(due)
                entry = time.perf_counter()
                writer.write(batch)
                seconds.append(called.at - entry)
    measured = seconds[WARM_UP:]
    steps = quantiles(measured, n=1000)
    raw = {"batches": len(measured), "began_late": late, "p50": steps[499] * 1e3, "p99.9": steps[998] * 1e3}
    name = f"Redis as ledger: p99 of what a batch of {BATCH_ROWS} waits for its sink"
    return at_most(name, steps[989] * 1e3, 5.0, unit="ms", raw=raw)


def cache_away() -> list[MeasuredRow]:
    """Run with a Redis that is not there, and without one; new records, then second sends and replays of all."""
    rates: dict[bool, list[float]] = {True: [], False: []}
    lost = twice = 0
    with servers.mysql_server() as mysql, log() as sink:
        gone = RedisCache(f"redis://127.0.0.1:{servers.free_port()}/0", ttl=timedelta(hours=1))
        for turn in range(ROUNDS):
            for away in (True, False):
                first = records(OURS, f"{turn}-{away}", 0)
                again = records(OURS, f"{turn}-{away}", OURS)
                run = [*first, *again, *first]
                seconds = through_gate(run, mysql_ledger(mysql), append_to(sink), gone if away else None)
                rates[away].append(len(run) / seconds)
                missing, doubled = sink.tally(each["order_id"] for each in first)
                lost, twice = lost + missing, max(twice, doubled)
    return [
        compare("no Redis for the whole run, against no cache at all", rates[True], rates[False], 0.7),
        none_of("no Redis for the whole run: lost", lost),
        none_of("no Redis for the whole run: twice", twice),
    ]


class Called:
    """A sink that notes when it was called. Not pickled: it stays in this process."""

    at = 0.0

    def __call__(self, writes: Sequence[Write]) -> Sequence[Answer] | None:
        """Take a batch."""
        type(self).at = time.perf_counter()
        return None


def batches(many: int) -> Iterator[list[Record]]:
    """Yield batches of new records, made some at a time: outside of what is measured."""
    for number in range(many):
        yield records(BATCH_ROWS, f"latency-{number}", number * BATCH_ROWS)


def wait_until(due: float) -> bool:
    """Sleep until a moment; tell whether it had passed."""
    left = due - time.perf_counter()
    if left > 0:
        time.sleep(left)
    return left <= 0


@contextmanager
def log() -> Iterator[Target]:
    """Run an empty log."""
    with tempfile.TemporaryDirectory() as folder, target(Path(folder) / "log") as running:
        yield running
        disconnect()


def append_to(sink: Target) -> Sink:
    """Return the sink that writes to a log."""
    return CallableSink(Append(sink.port), name="log", timeout=timedelta(seconds=10))


def gate_of(ledger: Ledger, cache: Cache | None) -> Gate:
    """Return a gate with a filter for all records of a run."""
    return Gate(
        scope="external",
        key=Fields("order_id"),
        occurrence=SourcePosition("bench", "topic", "partition", "offset"),
        ledger=ledger,
        cache=cache,
        membership=Bloom(capacity=max(2 * OURS, BATCHES * BATCH_ROWS), error_rate=0.001),
        on_replay="write",
    )


def mysql_ledger(mysql: servers.MySQLServer) -> Ledger:
    """Return a ledger of its own, empty."""
    database = fresh_database(mysql, [*mysql_ddl(), *mysql_scopes_ddl()])
    password = Secret.literal(servers.MYSQL_PASSWORD)
    return MySQLLedger(mysql.url(database), password=password, retention=timedelta(days=7))


def through_gate(some: list[Record], ledger: Ledger, sink: Sink, cache: Cache | None) -> float:
    """Write records in batches of 1000 and return the seconds."""
    with OnceWriter(gate_of(ledger, cache), sink) as writer:
        return seconds_of(lambda: writer.write(some))


def by_hand(some: list[Record], mysql: servers.MySQLServer, cache: servers.RedisServer, sink: Target) -> float:
    """Write records as the article does, and return the seconds."""
    database = fresh_database(mysql, [PROCESSED])
    append = Append(sink.port)
    with closing(mysql.connect(database)) as connection, closing(redis.Redis.from_url(cache.url)) as client:
        client.ping()
        return seconds_of(lambda: one_at_a_time(some, client, connection, append.one))


def seconds_of(call: Callable[[], Any]) -> float:
    """Return how long a call takes."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin

"""Connections that are cut, silent, slow, or lose exactly one reply, before real servers and the real gate."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import timedelta
from typing import Any

import pytest
from oncesink.connectors import (
    HttpSink,
    MemorySink,
    MySQLLedger,
    MySQLTable,
    MySQLTimeouts,
    OnceSinkError,
    RedisCache,
    RedisLedger,
    Secret,
    forget_all,
)
from oncesink.connectors.contract import Ledger, Sink
from oncesink.connectors.faults import Fault, Faults
from oncesink.connectors.faulty import FaultySink
from oncesink.transforms import Backoff, Batch, Counts, Fields, Gate, OnceWriter, Results, SourcePosition

from tests.conftest import MySQLDatabase
from tests.faults.proxy import Proxy, Trouble
from tests.http_service import Service, http_service
from tests.servers import RedisServer

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
PATIENT = Backoff(attempts=6, timeout=20 * SECOND, wait_initial=timedelta(milliseconds=10), wait_max=SECOND / 10)
CUTS = [Trouble.CUT, Trouble.SWALLOW]
HANGS = [Trouble.HANG, Trouble.SWALLOW_AND_HANG]
LEASED: dict[str, Any] = {"lease": 3 * SECOND, "grace": SECOND / 10, "on_replay": "probe", "parked": "output"}
COUNT = 40


def orders(count: int = COUNT, *, again: int = 0) -> list[dict[str, Any]]:
    """Return orders, delivered for the first time, or once more by the producer."""
    return [{"id": number, "place": number + 10_000 * again, "amount": number * 3 % 97} for number in range(count)]


@pytest.fixture(autouse=True)
def _nothing_in_memory() -> Iterator[None]:
    yield
    forget_all()


@pytest.fixture
def mysql(mysql_database: MySQLDatabase) -> Iterator[Proxy]:
    """Stand before MariaDB."""
    with Proxy(mysql_database.server.port) as proxy:
        yield proxy


@pytest.fixture
def red(redis_server: RedisServer) -> Iterator[Proxy]:
    """Stand before Redis."""
    with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
def ledger(mysql_database: MySQLDatabase, mysql: Proxy) -> MySQLLedger:
    """Give a ledger behind the proxy, with its tables and a table of orders."""
    ledger = MySQLLedger(
        mysql_database.url.replace(f":{mysql_database.server.port}/", f":{mysql.port}/"),
        retention=DAY,
        password=Secret.literal(mysql_database.password),
        timeouts=MySQLTimeouts(connect=SECOND, statement=1.5 * SECOND, lock=SECOND),
    )
    ledger.create_tables()
    sql(mysql_database, "CREATE TABLE orders (n BIGINT AUTO_INCREMENT PRIMARY KEY, id INT, place INT, amount INT)")
    return ledger


def redis_ledger(proxy: Proxy) -> RedisLedger:
    return RedisLedger(f"redis://127.0.0.1:{proxy.port}/0", retention=DAY, connect_timeout=SECOND, call_timeout=SECOND)


def sql(database: MySQLDatabase, statement: str) -> list[tuple[Any, ...]]:
    """Run a statement past the proxy."""
    with closing(database.server.connect(database.name)) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def gate(ledger: Ledger, **settings: Any) -> Gate:
    return Gate(
        scope="orders",
        key=Fields("id"),
        occurrence=SourcePosition("shop", "place"),
        ledger=ledger,
        batch=Batch(rows=20),
        **settings,
    )


def write(gate: Gate, sink: Sink, counts: Counts, records: list[dict[str, Any]]) -> Results:
    with OnceWriter(gate, sink, metrics=counts, attempts=PATIENT) as writer:
        return writer.write(records)


def assert_once(amounts: Counter[tuple[int, int]], count: int = COUNT) -> None:
    """Nothing lost, nothing twice, nothing wrong."""
    assert amounts == Counter((each["id"], each["amount"]) for each in orders(count))


def in_table(database: MySQLDatabase) -> Counter[tuple[int, int]]:
    return Counter((row[0], row[1]) for row in sql(database, "SELECT id, amount FROM orders"))


def in_memory(sink: MemorySink) -> Counter[tuple[int, int]]:
    return Counter((effect.record["id"], effect.record["amount"]) for effect in sink.effects)


def fresh(results: Results) -> int:
    """Return how many effects were reported as caused."""
    return sum(not each.replayed for each in results.written)


class TestMySQL:
    """Claims and commits of units; claims, finishes and releases of a ledger alone."""

    @pytest.mark.parametrize("trouble", [*CUTS, Trouble.SWALLOW_AND_HANG], ids=lambda each: each.name)
    @pytest.mark.parametrize("statement", [b"INSERT IGNORE INTO", b"INTO `orders`", b"COMMIT"])
    def test_a_unit_is_committed_once(
        self, ledger: MySQLLedger, mysql: Proxy, mysql_database: MySQLDatabase, trouble: Trouble, statement: bytes
    ) -> None:
        """Whichever of its statements, or replies, is lost: it is run again, and all of it is reported as written."""
        counts = Counts()
        with OnceWriter(gate(ledger), MySQLTable(ledger, "orders"), metrics=counts, attempts=PATIENT) as writer:
            mysql.arm(trouble, match=statement, after=1)
            results = writer.write(orders())
        assert mysql.met == 1
        assert (fresh(results), len(results.duplicates)) == (COUNT, 0)
        assert counts["retries"] > 0
        assert_once(in_table(mysql_database))

    @pytest.mark.parametrize("trouble", [*CUTS, Trouble.SWALLOW_AND_HANG], ids=lambda each: each.name)
    @pytest.mark.parametrize("statement", [b"INSERT IGNORE INTO", b"UPDATE"])
    def test_a_claim_and_a_finish_are_repeated(
        self, ledger: MySQLLedger, mysql: Proxy, trouble: Trouble, statement: bytes
    ) -> None:
        """Under the same owner, so that it finds its own rows: the sink is called once."""
        sink, counts = MemorySink("outside", timeout=SECOND / 10), Counts()
        with OnceWriter(gate(ledger, **LEASED), sink, metrics=counts, attempts=PATIENT) as writer:
            mysql.arm(trouble, match=statement)
            results = writer.write(orders())
        assert mysql.met == 1
        assert fresh(results) == COUNT
        assert counts["retries"] > 0
        assert_once(in_memory(sink))

    @pytest.mark.parametrize("trouble", CUTS, ids=lambda each: each.name)
    def test_a_release_is_repeated(self, ledger: MySQLLedger, mysql: Proxy, trouble: Trouble) -> None:
        """Claims that were given back hinder nobody: the next writer need not wait for a lease."""
        sink, counts = MemorySink("outside", timeout=SECOND / 10), Counts()
        away = FaultySink(sink, Faults(lambda call: Fault.REFUSE if call.verb == "write" else None))
        with OnceWriter(gate(ledger, **LEASED), away, metrics=counts, attempts=PATIENT) as writer:
            mysql.arm(trouble, match=b"DELETE")
            with pytest.raises(OnceSinkError, match="scripted fault"):
                writer.write(orders(20))
        assert mysql.met == 1
        assert counts["released"] == 20
        results = write(gate(ledger, **LEASED), sink, counts, orders(20))
        assert (fresh(results), counts["waited"]) == (20, 0)
        assert_once(in_memory(sink), 20)


class TestRedis:
    """As the ledger, and as the cache."""

    @pytest.mark.parametrize("trouble", [*CUTS, *HANGS], ids=lambda each: each.name)
    @pytest.mark.parametrize("after", [0, 1], ids=["claim", "finish"])
    def test_a_claim_and_a_finish_are_repeated(self, red: Proxy, trouble: Trouble, after: int) -> None:
        """A claim whose reply was lost is not taken for somebody else's."""
        sink, counts = MemorySink("outside", timeout=SECOND / 10), Counts()
        write(gate(redis_ledger(red), **LEASED), sink, counts, [])
        with OnceWriter(gate(redis_ledger(red), **LEASED), sink, metrics=counts, attempts=PATIENT) as writer:
            red.arm(trouble, match=b"EVALSHA", after=after)
            results = writer.write(orders(20))
        assert red.met == 1
        assert fresh(results) == 20
        assert counts["retries"] > 0
        assert_once(in_memory(sink), 20)

    @pytest.mark.parametrize("trouble", list(Trouble), ids=lambda each: each.name)
    @pytest.mark.parametrize("after", [0, 1], ids=["look", "fill"])
    def test_trouble_of_the_cache_changes_nothing(
        self, ledger: MySQLLedger, red: Proxy, mysql_database: MySQLDatabase, trouble: Trouble, after: int
    ) -> None:
        """Neither a look nor a fill that fails: the ledger decides, and trouble is counted."""
        cache = RedisCache(f"redis://127.0.0.1:{red.port}/0", ttl=timedelta(hours=1), budget=SECOND / 5)
        table, counts = MySQLTable(ledger, "orders"), Counts()
        with OnceWriter(gate(ledger, cache=cache), table, metrics=counts, attempts=PATIENT) as writer:
            red.arm(trouble, after=after, seconds=0.05)
            assert fresh(writer.write(orders())) == COUNT
            assert red.met == 1
            assert len(writer.write(orders(again=1)).duplicates) == COUNT
        assert (counts["cache_errors"] > 0) is (trouble is not Trouble.DELAY)
        assert_once(in_table(mysql_database))


class TestHttp:
    """A service that honours idempotency keys, behind a line that does not honour anything."""

    @pytest.fixture
    def service(self) -> Iterator[Service]:
        """Run it."""
        with http_service() as service:
            service.honours_keys = True
            yield service

    @pytest.mark.parametrize("trouble", [*CUTS, *HANGS], ids=lambda each: each.name)
    def test_a_request_is_sent_again_under_its_key(
        self, ledger: MySQLLedger, service: Service, trouble: Trouble, mysql: Proxy
    ) -> None:
        """The service drops the second one."""
        del mysql
        counts = Counts()
        with Proxy(int(service.url.rpartition(":")[2])) as proxy:
            sink = HttpSink(
                f"http://127.0.0.1:{proxy.port}/orders", remembers=DAY, timeout=2 * SECOND, request_timeout=SECOND / 2
            )
            proxy.arm(trouble, match=b"POST", after=3)
            settings = {**LEASED, "lease": 5 * SECOND, "on_replay": "write"}
            results = write(gate(ledger, **settings), sink, counts, orders(20))
            assert proxy.met == 1
        assert len(results.written) == 20
        assert_once(Counter((each["id"], each["amount"]) for each in service.effects), 20)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind", ["table", "outside"])
def test_a_storm_loses_and_doubles_nothing(
    ledger: MySQLLedger, mysql: Proxy, red: Proxy, mysql_database: MySQLDatabase, kind: str, seed: int
) -> None:
    """Both lines break at random, again and again; whatever is raised is written again."""
    dice, counts = random.Random(seed), Counts()
    cache = RedisCache(
        f"redis://127.0.0.1:{red.port}/0", ttl=timedelta(hours=1), budget=SECOND / 10, first_pause=SECOND / 100
    )
    outside = MemorySink("outside", timeout=SECOND / 10)
    sink: Sink = MySQLTable(ledger, "orders") if kind == "table" else outside
    its = gate(ledger, cache=cache, **({} if kind == "table" else LEASED))
    records = [*orders(200), *orders(200, again=1)]
    dice.shuffle(records)
    told: list[Any] = []
    with OnceWriter(its, sink, metrics=counts, attempts=PATIENT) as writer:
        for at in range(0, len(records), 20):
            if dice.random() < 0.7:
                mysql.arm(dice.choice([*CUTS, *CUTS, Trouble.DELAY]), after=dice.randrange(4), seconds=0.02)
            if dice.random() < 0.5:
                red.arm(dice.choice([*CUTS, Trouble.DELAY]), seconds=0.02)
            if dice.random() < 0.2:
                mysql.cut_all()
            results = None
            while results is None:
                with suppress(OnceSinkError):
                    results = writer.write(records[at : at + 20])
            told += [*results.written, *results.duplicates]
    assert mysql.met >= 3
    assert red.met >= 1
    assert len(told) == len(records)
    assert_once(in_table(mysql_database) if kind == "table" else in_memory(outside), 200)

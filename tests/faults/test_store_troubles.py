"""Real stores that go away while a writer runs: Redis may, MySQL is waited for, and nothing is lost or doubled."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from oncesink.connectors.clock import ManualClock
from oncesink.connectors.errors import OnceSinkError, OutcomeUnknown, Unavailable
from oncesink.connectors.faults import Call, Fault, Faults
from oncesink.connectors.faulty import FaultyLedger, FaultySink
from oncesink.connectors.memory import forget_all
from oncesink.connectors.memory_sinks import MemorySink
from oncesink.connectors.mysql_ledger import MySQLLedger
from oncesink.connectors.mysql_server import MySQLTimeouts
from oncesink.connectors.mysql_table import MySQLTable
from oncesink.connectors.redis_cache import RedisCache
from oncesink.connectors.secret import Secret
from oncesink.transforms import Backoff, Batch, Bloom, Counts, Fields, Gate, OnceWriter, Results, SourcePosition
from oncesink.transforms.retry import Attempts, Immediately

from tests.conftest import MySQLDatabase
from tests.servers import MySQLServer, RedisServer

SECOND = timedelta(seconds=1)
ROWS = 10
IMPATIENT = Backoff(attempts=2, timeout=SECOND, wait_initial=timedelta(milliseconds=10))

Record = dict[str, Any]


def orders(first: int, count: int, *, at: int | None = None) -> list[Record]:
    """Return orders, each delivered from the offset of its own number, or from `at` on."""
    start = first if at is None else at
    return [{"id": f"order {first + n}", "place": start + n, "amount": first + n} for n in range(count)]


@dataclass
class Shop:
    """MySQL as ledger and table, Redis as cache, a Bloom filter, and what happens to calls."""

    database: MySQLDatabase
    redis: RedisServer
    attempts: Attempts = field(default_factory=Immediately)
    clock: ManualClock = field(default_factory=ManualClock)
    counts: Counts = field(default_factory=Counts)
    events: dict[tuple[str, str, int], Callable[[], Fault | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.faults = Faults(self._choose)
        self.ledger = MySQLLedger(
            self.database.url,
            retention=timedelta(days=1),
            password=Secret.env("SHOP_PASSWORD"),
            timeouts=MySQLTimeouts(connect=2 * SECOND, statement=5 * SECOND, lock=2 * SECOND),
        )
        self.ledger.create_tables()
        self.sql(
            "CREATE TABLE orders (number BIGINT AUTO_INCREMENT PRIMARY KEY, id VARCHAR(40), place INT, amount INT)"
        )

    def _choose(self, call: Call) -> Fault | None:
        event = self.events.get(call[:3])
        return event() if event is not None else None

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement behind the library's back."""
        with self.database.server.connect(self.database.name) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def redis_command(self, *lines: str) -> None:
        """Send commands to Redis behind the library's back."""
        with socket.create_connection(("127.0.0.1", self.redis.port), timeout=10) as connection:
            for line in lines:
                connection.sendall(f"{line}\r\n".encode())
                assert not connection.recv(256).startswith(b"-"), line

    def gate(self, **settings: Any) -> Gate:
        """Return the gate over the three tiers."""
        return Gate(
            scope="orders",
            key=Fields("id"),
            occurrence=SourcePosition("shop", "place"),
            ledger=FaultyLedger(self.ledger, self.faults),
            cache=RedisCache(
                self.redis.url, ttl=timedelta(hours=1), budget=timedelta(milliseconds=200), clock=self.clock
            ),
            membership=Bloom(capacity=10_000, error_rate=0.001),
            batch=Batch(rows=ROWS),
            **settings,
        )

    def writer(self) -> OnceWriter:
        """Open a writer into the ledger's own database."""
        sink = FaultySink(
            MySQLTable(self.ledger, "orders", columns={"id": "id", "place": "place", "amount": "amount"}), self.faults
        )
        return OnceWriter(self.gate(), sink, metrics=self.counts, attempts=self.attempts)

    def assert_once(self, count: int) -> None:
        """Every order is in the table, once, with its own content, and nothing is left open."""
        found = self.sql("SELECT id, place, amount FROM orders ORDER BY amount")
        assert found == [(each["id"], each["place"], each["amount"]) for each in orders(0, count)]
        assert self.sql("SELECT COUNT(*) FROM oncesink_ledger WHERE state <> 1 OR finished_at IS NULL") == [(0,)]


@pytest.fixture
def shop(mysql_database: MySQLDatabase, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """Open for business."""
    monkeypatch.setenv("SHOP_PASSWORD", mysql_database.password)
    yield Shop(mysql_database, redis_server)
    forget_all()


def sizes(results: Results) -> tuple[int, int, int]:
    """Return how many are new, replayed, duplicates."""
    replayed = sum(out.replayed for out in results.written)
    return len(results.written) - replayed, replayed, len(results.duplicates)


@dataclass(frozen=True)
class WhileItTries:
    """Start MySQL again before the second attempt of each call."""

    server: MySQLServer

    def __call__(self, on: Any) -> Iterator[AbstractContextManager[object]]:
        for number, attempt in enumerate(Immediately()(on)):
            if number:
                self.server.revive()
            yield attempt


def nothing(shop: Shop) -> None:
    """Let it heal by itself."""


@dataclass(frozen=True)
class Trouble:
    """What happens to Redis, and how it ends. `errors`: whether calls fail meanwhile."""

    name: str
    begins: Callable[[Shop], object]
    ends: Callable[[Shop], object] = nothing
    errors: bool = True


TROUBLES = [
    Trouble("refused", lambda shop: shop.redis.kill(), lambda shop: shop.redis.start()),
    Trouble("hanging", lambda shop: shop.redis.pause(), lambda shop: shop.redis.resume()),
    Trouble("flushed", lambda shop: shop.redis_command("FLUSHALL", "SCRIPT FLUSH"), errors=False),
    Trouble("restarted", lambda shop: shop.redis.restart(), errors=False),
    Trouble(
        "out of memory",
        lambda shop: shop.redis_command("CONFIG SET maxmemory 1"),
        lambda shop: shop.redis_command("CONFIG SET maxmemory 0"),
    ),
    Trouble(
        "read-only",
        lambda shop: shop.redis_command("REPLICAOF 127.0.0.1 1"),
        lambda shop: shop.redis_command("REPLICAOF NO ONE"),
    ),
]


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.name)
def test_redis_may_go_away_and_come_back(shop: Shop, trouble: Trouble) -> None:
    """The job goes on, exact, and the trouble is counted; when Redis is back, it is used again."""
    with shop.writer() as writer:
        assert sizes(writer.write(orders(0, 100))) == (100, 0, 0)
        assert shop.counts["cache_errors"] == 0
        trouble.begins(shop)
        started = time.monotonic()
        mixed = [*orders(100, 100), *orders(0, 60), *orders(60, 40, at=9000)]
        assert sizes(writer.write(mixed)) == (100, 60, 40)
        assert time.monotonic() - started < 4.0, "one budget a pause, not two a batch"
        assert (shop.counts["cache_errors"] > 0) is trouble.errors
        trouble.ends(shop)
        shop.clock.sleep(3600.0)
        writer.write(orders(200, 50))
        hits, read = shop.counts["cache_hits"], shop.counts["ledger_claimed"]
        assert sizes(writer.write(orders(200, 50, at=9100))) == (0, 0, 50)
        assert (shop.counts["cache_hits"] - hits, shop.counts["ledger_claimed"] - read) == (50, 0)
    shop.assert_once(250)
    assert shop.counts["retries"] == 0


@pytest.mark.parametrize("trouble", [TROUBLES[0], TROUBLES[1]], ids=lambda trouble: trouble.name)
def test_a_job_starts_without_its_redis(shop: Shop, trouble: Trouble) -> None:
    """A cache that is away when a worker starts hinders nobody."""
    trouble.begins(shop)
    with shop.writer() as writer:
        assert sizes(writer.write(orders(0, 60))) == (60, 0, 0)
        assert sizes(writer.write(orders(0, 60, at=9000))) == (0, 0, 60)
    shop.assert_once(60)


class TestMySQLKilled:
    """SIGKILL, and a start on the same data, in the middle of a run."""

    POINTS = pytest.mark.parametrize(
        "point",
        [("ledger", "claim", 3), ("sink", "write", 3), ("ledger", "commit", 3)],
        ids=["before the claim", "before the write", "before the commit"],
    )

    @POINTS
    def test_it_is_waited_for(self, shop: Shop, point: tuple[str, str, int]) -> None:
        """A server that is back within the retries costs time only; the unit runs again from its insert."""
        shop.attempts = WhileItTries(shop.database.server)
        shop.events[point] = shop.database.server.kill
        with shop.writer() as writer:
            assert sizes(writer.write(orders(0, 4 * ROWS))) == (4 * ROWS, 0, 0)
        shop.assert_once(4 * ROWS)
        assert shop.counts["retries"] > 0

    def test_a_commit_that_went_through_before_the_kill_is_recognised(self, shop: Shop) -> None:
        """Its reply is lost with the server; the rows are found, and reported as written by this call."""
        shop.attempts = WhileItTries(shop.database.server)
        shop.events["ledger", "commit", 2] = lambda: Fault.LOSE_REPLY
        shop.events["ledger", "claim", 3] = shop.database.server.kill
        with shop.writer() as writer:
            assert sizes(writer.write(orders(0, 3 * ROWS))) == (3 * ROWS, 0, 0)
        shop.assert_once(3 * ROWS)

    @POINTS
    def test_beyond_the_retries_it_is_raised_and_the_replay_completes_it(
        self, shop: Shop, point: tuple[str, str, int]
    ) -> None:
        """The error carries what is certain; an older position is read again, by another process, and all is once."""
        shop.attempts = IMPATIENT
        shop.events[point] = shop.database.server.kill
        with shop.writer() as writer, pytest.raises((Unavailable, OutcomeUnknown)) as caught:
            writer.write(orders(0, 4 * ROWS))
        certain = caught.value.results
        assert sizes(certain) == (2 * ROWS, 0, 0)
        with pytest.raises(Unavailable, match="cannot connect"):
            shop.writer()
        shop.database.server.start()
        shop.events.clear()
        with shop.writer() as writer:
            results = writer.write(orders(0, 4 * ROWS))
        assert len(results.written) == 4 * ROWS
        assert sum(out.replayed for out in results.written) >= 2 * ROWS
        shop.assert_once(4 * ROWS)

    @pytest.mark.parametrize("verb", ["claim", "finish"])
    @pytest.mark.parametrize("fault", [None, Fault.LOSE_REPLY])
    def test_a_sink_elsewhere_is_written_once(self, shop: Shop, verb: str, fault: Fault | None) -> None:
        """Between claim and finish: what was sent is found by the probe after the lease, nothing is sent twice."""
        shop.attempts = IMPATIENT
        if fault is None:
            shop.events["ledger", verb, 2] = shop.database.server.kill
        else:
            shop.events["ledger", verb, 2] = lambda: fault
            shop.events["ledger", verb, 3] = shop.database.server.kill
        outside = MemorySink("outside", timeout=timedelta(milliseconds=100))
        gate = shop.gate(on_replay="probe", parked="output", lease=2 * SECOND, grace=timedelta(milliseconds=100))
        with OnceWriter(gate, outside, metrics=shop.counts, attempts=IMPATIENT) as writer:
            with contextlib.suppress(OnceSinkError):
                writer.write(orders(0, 3 * ROWS))
            shop.database.server.revive()
            shop.events.clear()
            results = writer.write(orders(0, 3 * ROWS))
        assert len(results.written) == 3 * ROWS
        assert sorted(effect.record["amount"] for effect in outside.effects) == list(range(3 * ROWS))

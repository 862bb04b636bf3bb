"""The gate that an article about UUID + offset keys in Redis prints, beside ours, on one real Redis.

Each test plays one fault twice: the printed code (`article.py`) loses a record or does it twice, and ours does neither.
"""

from __future__ import annotations

import itertools
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis as driver
from oncesink.connectors.contract import Finish, Take
from oncesink.connectors.errors import Misconfigured
from oncesink.connectors.faults import Crash, Fault, Faults
from oncesink.connectors.faulty import FaultyLedger, FaultySink
from oncesink.connectors.memory import forget_all
from oncesink.connectors.memory_sinks import MemorySink
from oncesink.connectors.redis_cache import RedisCache
from oncesink.connectors.redis_ledger import RedisLedger
from oncesink.connectors.sqlite_ledger import SQLiteLedger
from oncesink.connectors.sqlite_table import SQLiteTable
from oncesink.transforms import (
    ByStamp,
    Fields,
    Gate,
    Header,
    OnceWriter,
    SourcePosition,
    Stamped,
    checkpoint_subtask_key,
)

from .article import (
    LOCK_SECONDS,
    PROCESSED_SECONDS,
    ArticleGate,
    Message,
    Redis,
    World,
    by_order,
    consume,
    let_pass,
    random_uuid,
)

DAY = timedelta(days=1)
MILLISECOND = timedelta(milliseconds=1)


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    """Give a client of the test's Redis; its programmer is the article's reader."""
    client = driver.Redis.from_url(redis_url)
    yield client
    client.close()
    forget_all()


@pytest.fixture
def world() -> World:
    """Give a world in which nothing happened yet."""
    return World()


class Ours:
    """Our gate with Redis as the only ledger, before a sink that would do everything twice."""

    def __init__(self, url: str, *faults: Fault | None, verb: str = "write", **settings: Any) -> None:
        self.outside = MemorySink("outside", timeout=50 * MILLISECOND)
        self._rest = list(faults)
        script = Faults(lambda call: self._rest.pop(0) if call.verb == verb and self._rest else None)
        usual: dict[str, Any] = {
            "scope": "orders",
            "key": Fields("order"),
            "occurrence": SourcePosition("test", "partition", "offset"),
            "ledger": FaultyLedger(RedisLedger(url, retention=DAY), script),
            "on_replay": "probe",
            "lease": 250 * MILLISECOND,
            "grace": 50 * MILLISECOND,
        }
        self._gate, self._sink = Gate(**{**usual, **settings}), FaultySink(self.outside, script)

    def consume(self, *messages: Any) -> None:
        """Deliver to a process of its own."""
        with OnceWriter(self._gate, self._sink) as writer, suppress(Crash):
            writer.write(messages)

    @property
    def done(self) -> list[str]:
        return [effect.record.order for effect in self.outside.effects]


def test_a_random_uuid_of_the_consumer_never_finds_a_duplicate(redis: Redis, redis_url: str, world: World) -> None:
    """The key differs on every delivery; made once, by the producer, it is an identity."""
    message = Message("A", headers=(("uuid", b"made by the producer"),))
    gate = ArticleGate(redis, world.process, random_uuid)
    consume(gate, message, message, message)
    assert world.twice == 2
    ours = Ours(redis_url, key=Header("uuid"))
    for _ in range(3):
        ours.consume(message)
    ours.consume(message._replace(offset=7))
    assert ours.done == ["A"]


def test_an_offset_alone_repeats_in_every_partition(redis: Redis, redis_url: str, world: World) -> None:
    """With a UUID that stays the same, the second partition's records are taken for those of the first."""
    messages = [Message("A", partition=0, offset=5), Message("B", partition=1, offset=5)]
    consume(ArticleGate(redis, world.process, lambda message: f"{uuid.UUID(int=1)}_{message.offset}"), *messages)
    assert world.lost(*messages) == 1
    ours = Ours(redis_url)
    ours.consume(*messages)
    ours.consume(*messages)
    assert ours.done == ["A", "B"]


class TestCheckpointAndSubtask:
    """`checkpointId * numTasks + subtaskIndex`, under one UUID of the job."""

    def test_every_record_of_a_subtask_gets_the_same_number(self, redis: Redis, redis_url: str, world: World) -> None:
        """Between two checkpoints all but the first are lost."""
        messages = [Message(order, offset=place) for place, order in enumerate("ABC")]
        consume(ArticleGate(redis, world.process, lambda message: checkpoint_subtask_key("job", 5, 4, 3)), *messages)
        assert world.lost(*messages) == 2
        ours = Ours(redis_url, occurrence=ByStamp())
        ours.consume(*stamped(messages, lanes=4, lane=3))
        ours.consume(*stamped(messages, lanes=4, lane=3))
        assert ours.done == ["A", "B", "C"]

    def test_the_numbers_collide_after_a_rescale(self, redis: Redis, redis_url: str, world: World) -> None:
        """Checkpoint 2 of subtask 2 of 4 is checkpoint 5 of subtask 0 of 2; lanes keep their number."""
        first, second = Message("A"), Message("B", offset=1)
        consume(ArticleGate(redis, world.process, lambda message: checkpoint_subtask_key("job", 2, 4, 2)), first)
        consume(ArticleGate(redis, world.process, lambda message: checkpoint_subtask_key("job", 5, 2, 0)), second)
        assert world.lost(first, second) == 1
        ours = Ours(redis_url, occurrence=ByStamp())
        before, after = stamped([first, second], lanes=4, lane=2)
        ours.consume(before)
        ours.consume(after)
        assert ours.done == ["A", "B"]


def stamped(messages: list[Message], *, lanes: int, lane: int) -> list[Stamped]:
    """Stamp as `Stamp` does: a counter of the lane's own, which comes back with its state."""
    return [Stamped(f"job_{n * lanes + lane}".encode(), message) for n, message in zip(itertools.count(), messages)]


class TestHolderDies:
    """The process dies while it holds the lock."""

    def test_before_the_write_the_record_is_lost(self, redis: Redis, redis_url: str, world: World) -> None:
        """Redelivered within 30 s it finds the lock, has no `else`, and is committed as if it were done."""
        message = Message("A")
        world.dies = ["before"]
        gate = ArticleGate(redis, world.process, by_order)
        consume(gate, message)
        consume(gate, message)
        let_pass(redis, LOCK_SECONDS)
        assert world.lost(message) == 1, "its offset is committed: nobody brings it again"
        ours = Ours(redis_url, Fault.CRASH_BEFORE)
        ours.consume(message)
        assert ours.done == []
        ours.consume(message)
        assert ours.done == ["A"]

    def test_after_the_write_it_is_done_twice(self, redis: Redis, redis_url: str, world: World) -> None:
        """Redelivered after 30 s nothing is left that knows of it."""
        message = Message("A")
        world.dies = ["after"]
        gate = ArticleGate(redis, world.process, by_order)
        consume(gate, message)
        let_pass(redis, LOCK_SECONDS)
        consume(gate, message)
        assert world.twice == 1
        ours = Ours(redis_url, Fault.CRASH_AFTER)
        ours.consume(message)
        ours.consume(message)
        assert ours.done == ["A"], "the row is open, and the sink is asked"

    def test_a_second_worker_that_meets_the_lock_drops_its_record(
        self, redis: Redis, redis_url: str, world: World
    ) -> None:
        """The producer's second send goes first to a worker that dies; the other worker had already let its own go."""
        first, second = Message("A", offset=0), Message("A", offset=1)
        gate = ArticleGate(redis, world.process, by_order)

        def meanwhile(message: Message) -> None:
            consume(gate, second)
            raise Crash

        consume(ArticleGate(redis, meanwhile, by_order), first)
        assert world.lost(first) == 1, "the second is committed, and if the first is never read again it is gone"
        ours = Ours(redis_url, Fault.CRASH_BEFORE)
        ours.consume(first)
        ours.consume(second)
        assert ours.done == ["A"]


class TestRelease:
    """`finally: del key + ":LOCK"`."""

    def test_a_failed_attempt_stays_locked_and_its_retry_is_dropped(
        self, redis: Redis, redis_url: str, world: World
    ) -> None:
        """It deletes a key that nobody ever wrote, so that the lock of a failed attempt stays for 30 s."""
        message = Message("A")
        gate = ArticleGate(redis, world.process, by_order)

        def fails(message: Message) -> None:
            raise ConnectionError

        with pytest.raises(ConnectionError):
            ArticleGate(redis, fails, by_order)(message)
        assert redis.get("idemp:A") == b"LOCK"
        assert redis.keys("*:LOCK") == []
        consume(gate, message)
        assert world.lost(message) == 1
        ours = Ours(redis_url, Fault.REFUSE)
        ours.consume(message)
        assert ours.done == ["A"]

    def test_with_the_right_key_it_deletes_the_lock_of_another(
        self, redis: Redis, redis_url: str, world: World
    ) -> None:
        """A slow holder, whose lock ran out, lets a third one in beside the second."""
        message = Message("A")
        gate = ArticleGate(redis, world.process, by_order, released=str)
        inner = ArticleGate(redis, world.process, by_order, released=str)

        def second(message: Message) -> None:
            world.process(message)
            redis.delete("idemp:A")
            consume(inner, message)

        def slow(message: Message) -> None:
            let_pass(redis, LOCK_SECONDS)
            consume(ArticleGate(redis, second, by_order, released=str), message)

        consume(ArticleGate(redis, slow, by_order, released=str), message)
        consume(gate, message)
        assert world.twice > 0
        assert_release_is_ours_only(redis_url)


def assert_release_is_ours_only(url: str) -> None:
    """A row that was taken over stays, whatever its first owner releases or finishes."""
    gate = Ours(url)
    with OnceWriter(gate._gate, gate._sink) as writer:
        scope, item = writer._session.scope, writer._session.prepare(Message("B"))
    session = RedisLedger(url, retention=DAY).open(scope)
    claim: Any = item.claim  # type: ignore[union-attr]
    slow, second = b"1" * 16, b"2" * 16
    session.claim([claim], owner=slow, lease_seconds=0.001)
    row = session.read([claim.digest])[claim.digest]
    assert session.take([Take(claim.digest, row)], owner=second, lease_seconds=30.0) == {claim.digest}
    session.release([claim.digest], owner=slow)
    assert session.finish([Finish(claim)], owner=slow) == {claim.digest}
    assert session.read([claim.digest])[claim.digest].owner == second
    session.close()


class TestForgetting:
    """The key is gone although the effect is there."""

    @pytest.mark.parametrize("part", ["date", "shard"])
    def test_a_key_that_holds_date_or_shard_forgets_when_they_change(
        self, redis: Redis, redis_url: str, world: World, part: str
    ) -> None:
        """`idemp:{date}:{shard}`: at midnight, and with the number of shards, every record is new."""
        message = Message("A")
        for day, shards in [(29, 8), (30, 8) if part == "date" else (29, 9)]:
            place = f"2024-01-{day}:{int(message.order, 16) % shards}"
            consume(ArticleGate(redis, world.process, f"{place}:{{0.order}}".format), message)
        assert world.twice == 1
        ours = Ours(redis_url, shards=8)
        ours.consume(message)
        again = Ours(redis_url, shards=9)
        again.consume(message)
        assert again.done == ["A"]

    def test_a_time_to_live_shorter_than_the_replay(
        self, redis: Redis, redis_url: str, world: World, tmp_path: Path
    ) -> None:
        """An older position is read again after an hour; the ledger's retention decides, not the cache's."""
        message = Message("A")
        gate = ArticleGate(redis, world.process, by_order)
        consume(gate, message)
        let_pass(redis, PROCESSED_SECONDS)
        consume(gate, message)
        assert world.twice == 1
        ours = behind_sqlite(redis_url, tmp_path)
        ours.consume(message)
        redis.flushall()
        ours.consume(message)
        assert ours.done == ["A"]

    def test_eviction(self, redis: Redis, redis_url: str, world: World, tmp_path: Path) -> None:
        """`allkeys-lru` takes live keys; a Redis that may is refused as a ledger, and as a cache it does no harm."""
        message = Message("A")
        gate = ArticleGate(redis, world.process, by_order)
        ours = behind_sqlite(redis_url, tmp_path)
        ours.consume(message)
        consume(gate, message)
        fill_until_evicted(redis, "idemp:A")
        consume(gate, message)
        assert world.twice == 1
        with pytest.raises(Misconfigured, match="maxmemory-policy"):
            Ours(redis_url).consume(message)
        ours.consume(message)
        assert ours.done == ["A"]


def fill_until_evicted(redis: Redis, key: str) -> None:
    """Give Redis little memory and the article's policy, and write other keys until this one is gone."""
    redis.config_set("maxmemory-policy", "allkeys-lru")
    redis.config_set("maxmemory", redis.info("memory")["used_memory"] + 200_000)
    for number in range(20_000):
        redis.set(f"other:{number}", "x" * 1000)
        if number % 50 == 0 and not redis.exists(key):
            return
    raise AssertionError("nothing was evicted")


def behind_sqlite(url: str, folder: Path) -> Ours:
    """Put a SQLite ledger behind the Redis, which then is a cache."""
    ledger = SQLiteLedger(str(folder / "once.db"), retention=7 * DAY)
    return Ours(url, ledger=ledger, cache=RedisCache(url, ttl=timedelta(hours=1)))


def test_marking_before_the_write_is_durable_loses_it(
    redis: Redis, redis_url: str, world: World, tmp_path: Path
) -> None:
    """The business row waits for a later commit when PROCESSED is set; with a crash between them it is gone."""
    message = Message("A")
    database = sqlite3.connect(tmp_path / "article.db")
    database.execute("CREATE TABLE orders (name TEXT)")
    insert = "INSERT INTO orders VALUES (?)"
    gate = ArticleGate(redis, lambda message: database.execute(insert, (message.order,)), by_order)
    consume(gate, message)
    database.close()
    database = sqlite3.connect(tmp_path / "article.db")
    consume(gate, message)
    assert database.execute("SELECT * FROM orders").fetchall() == []
    database.close()
    assert orders_after_a_crash_at_the_commit(redis_url, tmp_path, message) == ["A"]


def orders_after_a_crash_at_the_commit(url: str, folder: Path, message: Message) -> list[str]:
    """Let ours die in the same place, deliver again, and return what is in the table."""
    path = str(folder / "ours.db")
    with sqlite3.connect(path) as database:
        database.execute('CREATE TABLE orders ("order" TEXT, "partition" INTEGER, "offset" INTEGER, headers TEXT)')
    database.close()
    inner = SQLiteLedger(path, retention=7 * DAY)
    faults = Faults.at({("ledger", "commit", 1): Fault.CRASH_BEFORE})
    gate = Gate(
        scope="orders",
        key=Fields("order"),
        occurrence=SourcePosition("test", "partition", "offset"),
        ledger=FaultyLedger(inner, faults),
        cache=RedisCache(url, ttl=timedelta(hours=1)),
    )
    for crashes in (True, False):
        with OnceWriter(gate, SQLiteTable(inner, "orders")) as writer:
            try:
                writer.write([message])
            except Crash:
                assert crashes
    with sqlite3.connect(path) as database:
        found = [name for (name,) in database.execute('SELECT "order" FROM orders')]
    database.close()
    return found

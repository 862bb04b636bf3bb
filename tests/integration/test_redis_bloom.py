"""The filter that jobs share: the same answers as in memory, switched under way, lost, evicted, away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import redis
from oncesink.connectors import ManualClock, MemoryLedger, MemoryTable, Misconfigured
from oncesink.connectors.redis_client import RedisClient
from oncesink.transforms import Counts, Fields, Gate, OnceWriter, RedisBloom, Rotation, SourcePosition
from oncesink.transforms.membership import (
    Alarm,
    FilterDamaged,
    FilterMismatch,
    FilterTooLarge,
    FilterUnusable,
    Keys,
    RedisBloomFilter,
)
from oncesink.transforms.membership.redis_pointer import Pointer, SharedGeneration, parse_pointer
from oncesink.transforms.membership.rotation import MOST_ERROR

from tests.servers import RedisServer, free_port, redis_server
from tests.unit.membership.material import digests

ALARMS: list[Alarm] = []
ABSENT = Keys(digests(20_000, seed=77))


def alarmed(alarm: Alarm) -> None:
    """Take an alarm."""
    ALARMS.append(alarm)


@pytest.fixture(autouse=True)
def _silence() -> None:
    ALARMS.clear()


@pytest.fixture
def recipe(redis_url: str) -> RedisBloom:
    """Give the recipe of a filter that was made."""
    made = RedisBloom(
        redis_url, "orders", capacity=2000, error_rate=0.01, rotation=Rotation(on_alarm=alarmed), clock=ManualClock()
    )
    assert made.create_filter()
    return made


@pytest.fixture
def behind(redis_url: str) -> Iterator[redis.Redis]:
    """Give a client that looks behind the library's back."""
    with redis.Redis.from_url(redis_url) as client:
        yield client


def opened(recipe: RedisBloom, counts: Counts | None = None) -> RedisBloomFilter:
    """Open a session."""
    return recipe.open(counts if counts is not None else Counts())


def pointer_of(recipe: RedisBloom, behind: redis.Redis) -> Pointer:
    """Return the generations as they stand in Redis."""
    stored: Any = behind.get(recipe.pointer_key)
    return parse_pointer(stored)


def test_what_one_job_adds_every_job_knows(recipe: RedisBloom) -> None:
    """Over several calls a batch; new keys are not known."""
    first, second = opened(recipe), opened(recipe)
    assert not first.query(Keys(digests(1200))).any()
    first.add(Keys(digests(1200)))
    assert second.query(Keys(digests(1200))).all()
    assert second.query(Keys(digests(3000, seed=5))).mean() < 0.02
    assert first.query(Keys([])).shape == (0,)


def test_jobs_that_write_one_block_at_once_lose_nothing(redis_url: str) -> None:
    """Each knows the block as it was before the other wrote it: whoever is later reads it again."""
    recipe = RedisBloom(redis_url, "tight", capacity=100, error_rate=0.01)
    recipe.create_filter()
    jobs = [opened(recipe) for _ in range(4)]
    batches = [Keys(digests(15, seed=seed)) for seed in range(4)]
    for job, batch in zip(jobs, batches, strict=True):
        job.query(batch)
    for job, batch in zip(jobs, batches, strict=True):
        job.add(batch)
    for batch in batches:
        assert jobs[0].query(batch).all()


def test_bits_stand_as_in_memory(recipe: RedisBloom, behind: redis.Redis) -> None:
    """The value is the words of a Bloom filter in memory, bit for bit: one can be copied into the other."""
    opened(recipe).add(Keys(digests(500)))
    local = recipe.bloom.create()
    local.add(Keys(digests(500)))
    (generation,) = pointer_of(recipe, behind).generations
    assert behind.get(generation.key(recipe.pointer_key)) == local.to_bytes()[64:]


def test_keys_are_stored_as_documented(recipe: RedisBloom, behind: redis.Redis) -> None:
    """A pointer, a key of bits; neither ever expires, so neither can without the other."""
    (generation,) = pointer_of(recipe, behind).generations
    assert sorted(behind.keys()) == [b"oncesink:f:orders", b"oncesink:f:orders:" + generation.id.hex().encode()]
    assert [behind.ttl(key) for key in sorted(behind.keys())] == [-1, -1]


def test_the_pointer_is_frozen() -> None:
    """Jobs of two releases share a filter."""
    pointer = Pointer(
        first_capacity=2000,
        error_rate=0.01,
        generations=(
            SharedGeneration(b"\x01" * 8, 0, 1.5, 2000, 41, 2),
            SharedGeneration(b"\x02" * 8, 1, 2.5, 3000, 62, 2),
        ),
    )
    assert pointer.pack().hex() == GOLDEN
    assert parse_pointer(pointer.pack()) == pointer
    stored = bytearray(pointer.pack())
    for at in range(len(stored)):
        stored[at] ^= 1
        with pytest.raises(FilterDamaged):
            parse_pointer(bytes(stored))
        stored[at] ^= 1
    with pytest.raises(FilterDamaged, match="truncated"):
        parse_pointer(bytes(stored[:-1]))


GOLDEN = (
    "896f6e636572700a0100010291dd8bfcd0070000000000007b14ae47e17a843f0000000000000000"
    "01010101010101010000000000000000000000000000f83fd00700000000000029000000000000000200000000000000"
    "020202020202020201000000000000000000000000000440b80b0000000000003e000000000000000200000000000000"
)


def test_a_stream_ten_times_as_long_as_planned(recipe: RedisBloom, caplog: pytest.LogCaptureFixture) -> None:
    """Three jobs fill it: it rotates in time, with one alarm and one line a generation, whoever it was.

    The rate of false positives is below twice the setting all the time, and what came last is known to all.
    """
    jobs = [opened(recipe) for _ in range(3)]
    stream = digests(20_000)
    for turn, at in enumerate(range(0, len(stream), 200)):
        job = jobs[turn % 3]
        batch = Keys(stream[at : at + 200])
        job.query(batch)
        job.add(batch)
        if turn % 10 == 0:
            assert job.query(ABSENT).mean() <= MOST_ERROR * 0.01
    assert [alarm.number for alarm in ALARMS] == list(range(len(ALARMS)))
    assert 4 <= len(ALARMS) <= 7
    assert len([each for each in caplog.records if each.levelname == "WARNING"]) == len(ALARMS)
    for job in jobs:
        assert job.query(Keys(stream[-5000:])).mean() > 0.98


def test_a_reader_in_mid_switch_is_right(recipe: RedisBloom, behind: redis.Redis) -> None:
    """Whoever still holds the old pointer is told of the new one in the same step, and knows old and new keys."""
    reader, writer = opened(recipe), opened(recipe)
    writer.add(Keys(digests(100)))
    assert reader.query(Keys(digests(100))).all()
    for seed in range(1, 4):
        recipe.rotate()
        writer.add(Keys(digests(100, seed=seed)))
        known = [digest for before in range(seed + 1) for digest in digests(100, seed=before)]
        assert reader.query(Keys(known)).all()
    recipe.rotate()
    assert not reader.query(Keys(digests(100))).all()
    assert len(pointer_of(recipe, behind).generations) == recipe.rotation.keep
    assert len(behind.keys()) == 1 + recipe.rotation.keep


def test_readers_are_right_while_it_is_switched(redis_url: str) -> None:
    """Three jobs ask all the time while the filter is switched again and again: known keys are known, new ones new."""
    recipe = RedisBloom(redis_url, "busy", capacity=2000, error_rate=0.001, rotation=Rotation(keep=8))
    recipe.create_filter()
    opened(recipe).add(Keys(digests(200)))
    wrong: list[str] = []
    done = threading.Event()

    def read() -> None:
        session, asked = opened(recipe), 0
        while not done.is_set() or not asked:
            asked += 1
            if not session.query(Keys(digests(200))).all():
                wrong.append("a known key was called new")
            if session.query(Keys(digests(200, seed=9))).mean() > 0.05:
                wrong.append("everything was called known")
        session.close()

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for _ in range(7):
        recipe.rotate()
    done.set()
    for reader in readers:
        reader.join()
    assert not wrong


def test_one_of_two_switches_at_once_is_made(recipe: RedisBloom, behind: redis.Redis) -> None:
    """Two jobs that find it full begin one generation, and nothing is left of the other's."""
    client = RedisClient(recipe.endpoint)
    keeper = recipe.keeper(client)
    pointer = keeper.read()
    assert pointer is not None
    occupancy = keeper.occupancy_of(pointer.newest)
    first = keeper._rotate(pointer, "fill", occupancy)
    second = keeper._rotate(pointer, "fill", occupancy)
    assert first == second
    assert len(ALARMS) == 1
    assert len(behind.keys()) == 3
    client.close()


def test_bits_that_nobody_named_vanish(recipe: RedisBloom, behind: redis.Redis) -> None:
    """Who dies between making and naming them leaves nothing for ever."""
    client = RedisClient(recipe.endpoint)
    keeper = recipe.keeper(client)
    made: list[bytes] = []
    run = client.run

    def dies(script: Any, keys: Any, arguments: Any, *, changes: bool) -> Any:
        if len(keys) > 1:
            made.append(keys[1])
            raise ConnectionError("killed")
        return run(script, keys, arguments, changes=changes)

    client.run = dies  # type: ignore[method-assign]
    with pytest.raises(ConnectionError):
        keeper.rotate_by_hand()
    assert 0 < int(behind.ttl(made[0])) <= 3600
    client.close()


def test_a_window_forgets_by_age(redis_url: str, behind: redis.Redis) -> None:
    """Generations of a third of the window each; those behind it go."""
    now = [1_000_000.0]
    clock = ManualClock()
    rotation = Rotation(window=timedelta(hours=3), clock=lambda: now[0])
    recipe = RedisBloom(redis_url, "aged", capacity=2000, error_rate=0.01, rotation=rotation, clock=clock)
    recipe.create_filter()
    session = opened(recipe)
    for hour in range(8):
        session.add(Keys(digests(50, seed=hour)))
        now[0] += 3600
        clock.now += 3600
    session.add(Keys(digests(1, seed=99)))
    assert session.query(Keys(digests(50, seed=7))).all()
    assert not session.query(Keys(digests(50, seed=0))).all()
    assert len(pointer_of(recipe, behind).generations) <= 4
    assert not ALARMS


LOSSES = {
    "all": lambda behind, keys: behind.flushall(),
    "pointer": lambda behind, keys: behind.delete(keys[0]),
    "bits": lambda behind, keys: behind.delete(keys[1]),
    "part of the bits": lambda behind, keys: behind.set(keys[1], behind.get(keys[1])[:-1]),
}


@pytest.mark.parametrize("lost", LOSSES)
def test_what_redis_lost_is_unknown(
    lost: str, recipe: RedisBloom, behind: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Never new: every key is perhaps known, added or not, in old sessions and in new ones, until it is made anew."""
    counts = Counts()
    session = opened(recipe, counts)
    session.add(Keys(digests(100)))
    LOSSES[lost](behind, sorted(behind.keys()))
    for each in (session, opened(recipe, counts), session):
        assert each.query(ABSENT).all()
        each.add(Keys(digests(10, seed=3)))
        assert each.query(ABSENT).all()
    assert counts["filter_unknown"] == 6 * len(ABSENT)
    assert "until `oncesink filter create` makes it" in caplog.text
    behind.delete(*behind.keys() or [b"-"])
    assert recipe.create_filter()
    assert session.query(ABSENT).mean() < 0.01


def test_a_restart_without_data_is_a_loss() -> None:
    """A Redis that keeps nothing on disk comes back empty: its filter does not come back as one that knows nothing."""
    with redis_server(appendonly="no", save="") as server:
        recipe = RedisBloom(server.url, "orders", capacity=2000, error_rate=0.01, first_pause=timedelta(milliseconds=1))
        recipe.create_filter()
        session = opened(recipe)
        session.add(Keys(digests(100)))
        server.kill()
        assert session.query(ABSENT).all()
        server.start()
        while session._breaker.left_seconds:
            pass
        assert session.query(ABSENT).all()


def test_a_redis_that_is_away_hinders_nobody(redis_url: str) -> None:
    """Opened or not by then: unknown, at once while the breaker is open."""
    away = RedisBloom(f"redis://127.0.0.1:{free_port()}/0", "orders", capacity=2000, error_rate=0.01)
    counts = Counts()
    session = opened(away, counts)
    assert session.query(ABSENT).all()
    session.add(ABSENT)
    assert counts["filter_unknown"] == len(ABSENT)
    session.close()


def test_a_redis_that_hangs_costs_one_budget(recipe: RedisBloom, redis_server: RedisServer) -> None:
    """Then it is left alone for a pause."""
    session = opened(replace(recipe, budget=timedelta(milliseconds=50)))
    redis_server.pause()
    try:
        assert session.query(ABSENT).all()
        assert session._breaker.left_seconds > 0
    finally:
        redis_server.resume()
    recipe.clock.sleep(60)
    assert session.query(ABSENT).mean() < 0.01


def test_a_filter_of_other_settings_is_refused(recipe: RedisBloom) -> None:
    """When it is opened, and when it is made."""
    other = replace(recipe, capacity=3000)
    for call in (lambda: opened(other), other.create_filter):
        with pytest.raises(FilterMismatch, match=r"was made for capacity=2000, error_rate=0\.01"):
            call()


def test_a_damaged_pointer_is_named(recipe: RedisBloom, behind: redis.Redis) -> None:
    """Opening says what is wrong; a session that meets it goes on without."""
    session = opened(recipe)
    behind.set(recipe.pointer_key, b"what is this?" * 10)
    with pytest.raises(FilterDamaged, match="not a shared filter of oncesink"):
        opened(recipe)
    assert session.query(ABSENT).all()


def test_making_it_twice_keeps_what_it_knows(recipe: RedisBloom) -> None:
    """Every job may call it when it starts for the first time."""
    session = opened(recipe)
    session.add(Keys(digests(10)))
    assert not recipe.create_filter()
    assert session.query(Keys(digests(10))).all()


def test_what_does_not_fit_into_redis_is_refused(behind: redis.Redis, recipe: RedisBloom) -> None:
    """Before it is allocated there; and a rotation that does not fit leaves the filter as it is."""
    session = opened(recipe)
    used = int(behind.info()["used_memory"])
    behind.config_set("maxmemory", used + 200_000)
    large = replace(recipe, name="large", capacity=5_000_000)
    with pytest.raises(FilterTooLarge, match="raise maxmemory"):
        large.create_filter()
    behind.config_set("maxmemory", used)
    with pytest.raises(FilterTooLarge):
        recipe.rotate()
    session.add(Keys(digests(1990)))
    behind.config_set("maxmemory", 0)
    session.add(Keys(digests(10)))
    assert session.query(Keys(digests(10))).all()
    with pytest.raises(FilterTooLarge, match="at most 512"):
        replace(recipe, capacity=200_000_000)


def test_rotating_what_is_not_there_says_what_to_do(redis_url: str) -> None:
    """Not even by hand does a filter make itself."""
    with pytest.raises(FilterUnusable, match="oncesink filter create"):
        RedisBloom(redis_url, "nowhere", capacity=10, error_rate=0.01).rotate()


@pytest.mark.parametrize("name", ["", "a:b", "x" * 65])
def test_a_name_is_part_of_a_key(name: str) -> None:
    """So it is short, and has no colon."""
    with pytest.raises(Misconfigured, match="name="):
        RedisBloom("redis://h", name, capacity=10, error_rate=0.01)


def test_two_writers_behind_one_filter(recipe: RedisBloom) -> None:
    """What one has written the other looks up instead of claiming it in vain; without the filter both stay exact."""
    ledger = MemoryLedger("shared")
    gate = Gate(
        scope="orders", key=Fields("id"), occurrence=SourcePosition("s", "offset"), ledger=ledger, membership=recipe
    )
    orders = [{"id": number, "offset": number} for number in range(50)]
    again = [{**order, "offset": order["offset"] + 1000} for order in orders]
    with OnceWriter(gate, MemoryTable(ledger)) as first, OnceWriter(gate, MemoryTable(ledger)) as second:
        assert len(first.write(orders).written) == 50
        assert first.metrics["filter_negative"] == 50  # type: ignore[index]
        assert len(second.write(again).duplicates) == 50
        assert second.metrics["ledger_read"] == 50  # type: ignore[index]
        with redis.Redis.from_url(recipe.url) as behind:
            behind.flushall()
        more = [{"id": number, "offset": number + 5000} for number in range(40, 60)]
        done = second.write(more)
        assert (len(done.written), len(done.duplicates)) == (10, 10)
        assert second.metrics["filter_unknown"] == 20  # type: ignore[index]

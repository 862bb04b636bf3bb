"""The cache on a Redis that is away, hangs, is full, read-only, flushed, restarted or locked: the job goes on."""

import pickle
import time
import traceback
from collections.abc import Iterator
from datetime import timedelta

import pytest
import redis
from oncesink.connectors.clock import ManualClock
from oncesink.connectors.contract import Entry
from oncesink.connectors.errors import Misconfigured, Unavailable
from oncesink.connectors.redis_cache import RedisCache, RedisCacheSession
from oncesink.connectors.redis_check import check_cache
from oncesink.connectors.redis_client import RedisClient
from oncesink.connectors.secret import Secret

from tests.servers import RedisServer, free_port

LEDGER = bytes(range(16))
DIGEST = bytes(range(16, 32))
KEY = b"oncesink:c:" + LEDGER + DIGEST
HASH = b"#" * 16
ENTRY = Entry(b"t/3/17", HASH, None)
PASSWORD = "s3cr3t-p@ss"


@pytest.fixture
def clock() -> ManualClock:
    """Give the clock of the pauses."""
    return ManualClock()


@pytest.fixture
def recipe(redis_url: str, clock: ManualClock) -> RedisCache:
    """Give a cache that waits a quarter of a second at most, and pauses for one second at first."""
    return RedisCache(redis_url, ttl=timedelta(minutes=10), clock=clock)


@pytest.fixture
def session(recipe: RedisCache) -> RedisCacheSession:
    """Open it."""
    return recipe.open(LEDGER)


@pytest.fixture
def behind(redis_url: str) -> Iterator["redis.Redis"]:
    """Give a client that looks behind the library's back."""
    with redis.Redis.from_url(redis_url) as client:
        yield client


def seconds_until_unavailable(session: RedisCacheSession) -> float:
    """Ask, and return how long the refusal took."""
    start = time.monotonic()
    with pytest.raises(Unavailable):
        session.get([DIGEST])
    return time.monotonic() - start


def test_entries_stand_in_redis_as_documented(session: RedisCacheSession, behind: "redis.Redis") -> None:
    """Key and value are frozen, and every key has a time to live that counts from the finish."""
    session.put({DIGEST: ENTRY._replace(result=b"ok", age_seconds=60.0)})
    assert behind.keys() == [KEY]
    assert behind.get(KEY) == b"\x01\x03\x06t/3/17" + HASH + b"\x00\x00\x00\x02ok"
    assert 530_000 < int(behind.pttl(KEY)) <= 540_000


def test_a_redis_that_is_away_costs_nothing_but_a_refusal(recipe: RedisCache, clock: ManualClock) -> None:
    """The cache opens without it, says so at once, and works when it comes."""
    away = RedisCache(f"redis://127.0.0.1:{free_port()}", ttl=recipe.ttl, clock=clock).open(LEDGER)
    with pytest.raises(Unavailable, match="left alone"):
        away.get([DIGEST])
    with pytest.raises(Unavailable, match="left alone"):
        away.put({DIGEST: ENTRY})
    clock.sleep(1.0)
    with pytest.raises(Unavailable, match="did not answer"):
        away.get([DIGEST])


def test_a_hanging_redis_costs_one_budget_a_pause(
    session: RedisCacheSession, redis_server: RedisServer, clock: ManualClock
) -> None:
    """Not one a batch; and once it goes on, the next probe finds it and no old reply is taken for a new one."""
    session.put({DIGEST: ENTRY})
    redis_server.pause()
    assert 0.2 < seconds_until_unavailable(session) < 2.0
    assert max(seconds_until_unavailable(session) for _ in range(100)) < 0.1
    clock.sleep(1.0)
    assert 0.2 < seconds_until_unavailable(session) < 2.0
    clock.sleep(1.0)
    assert seconds_until_unavailable(session) < 0.1
    redis_server.resume()
    clock.sleep(1.0)
    assert session.get([DIGEST]) == {DIGEST: ENTRY}
    session.put({DIGEST: ENTRY})
    redis_server.pause()
    seconds_until_unavailable(session)
    redis_server.resume()
    clock.sleep(1.0)
    assert session.get([DIGEST]) == {DIGEST: ENTRY}, "after a success the pauses begin anew"


def test_a_redis_that_hangs_at_the_start_costs_one_budget(recipe: RedisCache, redis_server: RedisServer) -> None:
    """Opening goes on without it."""
    redis_server.pause()
    start = time.monotonic()
    session = recipe.open(LEDGER)
    assert time.monotonic() - start < 2.0
    assert seconds_until_unavailable(session) < 0.1


def test_a_restart_between_two_calls_is_not_noticed(session: RedisCacheSession, redis_server: RedisServer) -> None:
    """A connection that ended is replaced before it is used; the new server lacks the script and gets it."""
    session.put({DIGEST: ENTRY})
    redis_server.restart()
    session.put({DIGEST: ENTRY})
    redis_server.restart()
    assert session.get([DIGEST]) == {DIGEST: ENTRY}


def test_a_flushed_redis_is_an_empty_cache(session: RedisCacheSession, behind: "redis.Redis") -> None:
    """Entries and scripts may go at any time."""
    session.put({DIGEST: ENTRY})
    behind.flushall()
    behind.script_flush()
    assert session.get([DIGEST]) == {}
    session.put({DIGEST: ENTRY})
    assert session.get([DIGEST]) == {DIGEST: ENTRY}


def test_a_full_redis_still_answers(session: RedisCacheSession, behind: "redis.Redis", clock: ManualClock) -> None:
    """Only filling pauses, until there is room again."""
    session.put({DIGEST: ENTRY})
    behind.config_set("maxmemory", "1")
    with pytest.raises(Unavailable, match="out of memory"):
        session.put({HASH: ENTRY})
    with pytest.raises(Unavailable, match="left alone"):
        session.put({HASH: ENTRY})
    assert session.get([DIGEST, HASH]) == {DIGEST: ENTRY}
    behind.config_set("maxmemory", "0")
    clock.sleep(1.0)
    session.put({HASH: ENTRY})
    assert session.get([HASH]) == {HASH: ENTRY}


def test_a_replica_still_answers(session: RedisCacheSession, behind: "redis.Redis", clock: ManualClock) -> None:
    """After a fail-over the old primary takes no entries; reading goes on."""
    session.put({DIGEST: ENTRY})
    behind.replicaof("127.0.0.1", "1")
    with pytest.raises(Unavailable, match="replica"):
        session.put({DIGEST: ENTRY})
    assert session.get([DIGEST]) == {DIGEST: ENTRY}
    behind.replicaof("NO", "ONE")
    clock.sleep(1.0)
    session.put({DIGEST: ENTRY})


def test_a_foreign_value_in_the_way_is_a_miss(session: RedisCacheSession, behind: "redis.Redis") -> None:
    """It is not taken for an entry, and a put replaces it."""
    behind.rpush(KEY, b"x")
    assert session.get([DIGEST]) == {}
    session.put({DIGEST: ENTRY})
    assert session.get([DIGEST]) == {DIGEST: ENTRY}


@pytest.mark.parametrize(
    "value", [b"", b"PROCESSED", b"\x02\x03\x06t/3/17" + HASH, b"\x01\x03\x06t/3/17" + HASH[1:], b"\x01\x03\x06t"]
)
def test_what_cannot_be_read_is_a_counted_miss(session: RedisCacheSession, behind: "redis.Redis", value: bytes) -> None:
    """An entry of another version, or a damaged one, never answers for a row."""
    behind.set(KEY, value)
    assert session.get([DIGEST]) == {}
    assert session.damaged == 1


def test_a_wrong_password_stops_the_job_at_its_start(
    recipe: RedisCache, redis_server: RedisServer, behind: "redis.Redis", clock: ManualClock
) -> None:
    """The error says what to do and shows no password; a right one works."""
    session = recipe.open(LEDGER)
    behind.config_set("requirepass", PASSWORD)
    try:
        refused = []
        for wrong in (None, Secret.literal("wr0ng-p@ss")):
            with pytest.raises(Misconfigured, match="password") as raised:
                RedisCache(redis_server.url, ttl=recipe.ttl, password=wrong).open(LEDGER)
            refused.append(raised.value)
        told = "".join("".join(traceback.format_exception(error)) for error in refused).encode()
        for word in (b"wr0ng", b"s3cr3t"):
            assert word not in told + b"".join(pickle.dumps(error) for error in refused)
        right = RedisCache(redis_server.url, ttl=recipe.ttl, password=Secret.literal(PASSWORD)).open(LEDGER)
        right.put({DIGEST: ENTRY})
        assert right.get([DIGEST]) == {DIGEST: ENTRY}
        assert "s3cr3t" not in repr(right)
        with pytest.raises(TypeError):
            pickle.dumps(right)
        # A password that is changed later must not stop a job that can go on without its cache.
        session.close()
        with pytest.raises(Unavailable, match="password"):
            session.get([DIGEST])
    finally:
        behind.config_set("requirepass", "")


def test_a_wrong_database_stops_the_job_at_its_start(redis_url: str) -> None:
    """Redis has 16 of them unless told otherwise."""
    with pytest.raises(Misconfigured, match="out of range"):
        RedisCache(redis_url.replace("/0", "/99"), ttl=timedelta(hours=1)).open(LEDGER)


def test_the_check_asks_for_a_policy_that_evicts(recipe: RedisCache, behind: "redis.Redis") -> None:
    """A bounded cache that evicts nothing keeps its oldest entries and refuses the new ones."""
    client = RedisClient(recipe.endpoint)
    assert check_cache(client) == []
    behind.config_set("maxmemory", "100mb")
    assert [finding.severity for finding in check_cache(client)] == ["warning"]
    behind.config_set("maxmemory-policy", "allkeys-lru")
    assert check_cache(client) == []

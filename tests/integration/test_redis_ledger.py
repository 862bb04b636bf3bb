"""Redis as the only ledger, hurt on purpose: a row is claimed by one owner and is never written over."""

import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest
import redis
from oncesink.connectors.contract import Claim, Finish, Scope, Take, Use
from oncesink.connectors.errors import Misconfigured, OutcomeUnknown, Unavailable
from oncesink.connectors.redis_check import check_ledger
from oncesink.connectors.redis_client import RedisClient
from oncesink.connectors.redis_ledger import RedisLedger
from oncesink.connectors.redis_ledger_session import RedisLedgerSession
from oncesink.connectors.redis_scopes import RedisScopes
from oncesink.connectors.scopes import Registered
from oncesink.connectors.secret import Secret

from tests.servers import RedisServer, free_port
from tests.servers import redis_server as started_redis

SCOPE = Scope(name="orders", use=Use.WRITE, meaning={"target": "orders"})
OWNER, OTHER = b"O" * 16, b"P" * 16
HASH = b"#" * 16
CLAIM = Claim(b"\r\n" + b"a" * 14, b"t/0/1", HASH)
NEXT = Claim(b"b" * 16, None, None)
RETENTION = timedelta(hours=1)


@pytest.fixture
def recipe(redis_url: str) -> RedisLedger:
    """Give a ledger that waits half a second for an answer."""
    return RedisLedger(redis_url, retention=RETENTION, call_timeout=timedelta(seconds=0.5))


@pytest.fixture
def session(recipe: RedisLedger) -> RedisLedgerSession:
    """Open it."""
    opened = recipe.open(SCOPE)
    assert isinstance(opened, RedisLedgerSession)
    return opened


@pytest.fixture
def behind(redis_url: str) -> Iterator["redis.Redis"]:
    """Give a client that looks behind the library's back."""
    with redis.Redis.from_url(redis_url) as client:
        yield client


def key(claim: Claim) -> bytes:
    """Return the key of a row."""
    return b"oncesink:r:" + claim.digest


def test_rows_stand_in_redis_as_documented(session: RedisLedgerSession, behind: "redis.Redis") -> None:
    """The value is frozen; times are the server's own; open rows live as long as finished ones."""
    session.claim([CLAIM], owner=OWNER, lease_seconds=30.0)
    value = behind.get(key(CLAIM))
    assert isinstance(value, bytes)
    assert value[:18] == b"\x01o" + OWNER
    lease_until, since = int.from_bytes(value[18:26], "big"), int.from_bytes(value[26:34], "big")
    assert lease_until - since == 30_000_000
    seconds, micros = behind.time()
    assert 0 <= seconds * 1_000_000 + micros - since < 60_000_000
    assert value[34:] == b"\x03\x05t/0/1" + HASH
    assert 3_590_000 < int(behind.pttl(key(CLAIM))) <= 3_600_000
    behind.pexpire(key(CLAIM), 1_000_000)
    session.finish([Finish(CLAIM, b"ok")], owner=OWNER)
    value = behind.get(key(CLAIM))
    assert isinstance(value, bytes)
    assert value[:26] == b"\x01f" + OWNER + bytes(8)
    assert value[34:] == b"\x03\x05t/0/1" + HASH + b"\x00\x00\x00\x02ok"
    assert 3_590_000 < int(behind.pttl(key(CLAIM))) <= 3_600_000


def test_a_lost_reply_is_answered_by_repeating_the_call(session: RedisLedgerSession, redis_server: RedisServer) -> None:
    """The server may apply a claim after its caller gave up; the same owner then finds its own row, once."""
    redis_server.pause()
    with pytest.raises(OutcomeUnknown):
        session.claim([CLAIM], owner=OWNER, lease_seconds=30.0)
    redis_server.resume()
    again = session.claim([CLAIM, NEXT], owner=OWNER, lease_seconds=30.0)
    assert {row.owner for row in again.values()} <= {OWNER}
    rows = session.read([CLAIM.digest, NEXT.digest])
    assert {row.owner for row in rows.values()} == {OWNER}
    assert len(rows) == 2


def test_reading_is_never_in_doubt(session: RedisLedgerSession, redis_server: RedisServer) -> None:
    """A lost answer to a question changes nothing."""
    redis_server.pause()
    with pytest.raises(Unavailable):
        session.read([CLAIM.digest])


def test_a_server_that_is_away_was_not_asked(session: RedisLedgerSession, redis_server: RedisServer) -> None:
    """A connection that cannot be made carried no claim."""
    redis_server.kill()
    for _ in range(2):
        with pytest.raises(Unavailable):
            session.claim([CLAIM], owner=OWNER, lease_seconds=30.0)
    with pytest.raises(Unavailable):
        RedisLedger(f"redis://127.0.0.1:{free_port()}", retention=RETENTION).open(SCOPE)


def test_a_restart_is_survived(session: RedisLedgerSession, redis_server: RedisServer) -> None:
    """Rows come back from the append-only file; connection and scripts are made anew."""
    session.claim([CLAIM], owner=OWNER, lease_seconds=30.0)
    redis_server.restart()
    assert set(session.claim([CLAIM], owner=OTHER, lease_seconds=30.0)) == {CLAIM.digest}
    assert session.finish([Finish(CLAIM)], owner=OTHER) == {CLAIM.digest}
    assert session.finish([Finish(CLAIM)], owner=OWNER) == set()


def test_a_flush_makes_another_ledger(session: RedisLedgerSession, recipe: RedisLedger, behind: "redis.Redis") -> None:
    """Entries of a cache must not answer for rows that are gone, so the ledger id is drawn anew."""
    behind.flushall()
    assert recipe.open(SCOPE).ledger_id != session.ledger_id


def test_a_full_server_applies_nothing(session: RedisLedgerSession, behind: "redis.Redis") -> None:
    """It refuses the whole claim, and takes it when there is room."""
    behind.config_set("maxmemory", "1")
    with pytest.raises(Unavailable, match="out of memory"):
        session.claim([CLAIM, NEXT], owner=OWNER, lease_seconds=30.0)
    assert session.read([CLAIM.digest, NEXT.digest]) == {}
    behind.config_set("maxmemory", "0")
    assert session.claim([CLAIM, NEXT], owner=OWNER, lease_seconds=30.0) == {}


def test_a_primary_that_became_a_replica_is_unavailable(
    session: RedisLedgerSession, recipe: RedisLedger, behind: "redis.Redis"
) -> None:
    """While it runs that passes; at the start it is a wrong URL."""
    behind.replicaof("127.0.0.1", "1")
    with pytest.raises(Unavailable, match="replica"):
        session.claim([CLAIM], owner=OWNER, lease_seconds=30.0)
    with pytest.raises(Misconfigured, match="name the primary"):
        recipe.open(SCOPE)


def test_too_few_replicas_are_unavailable(session: RedisLedgerSession, behind: "redis.Redis") -> None:
    """The setting that keeps a claim from being lost at a fail-over refuses it."""
    behind.config_set("min-replicas-to-write", "1")
    with pytest.raises(Unavailable, match="replicas"):
        session.claim([CLAIM], owner=OWNER, lease_seconds=30.0)


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_policy_that_may_evict_rows_is_refused(recipe: RedisLedger, behind: "redis.Redis", policy: str) -> None:
    """An evicted row is a record that is written twice."""
    behind.config_set("maxmemory-policy", policy)
    behind.config_set("maxmemory", "100mb")
    with pytest.raises(Misconfigured, match="noeviction"):
        recipe.open(SCOPE)
    behind.config_set("maxmemory", "0")
    assert [finding.severity for finding in check_ledger(RedisClient(recipe.endpoint))] == ["warning", "warning"]


def test_what_may_lose_rows_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A server that keeps nothing on disk works, with a warning."""
    with started_redis(appendonly="no") as server, caplog.at_level(logging.WARNING):
        RedisLedger(server.url, retention=RETENTION).open(SCOPE)
    assert "neither appendonly nor save is set" in caplog.text


def test_a_foreign_value_in_the_way_stops_the_job(session: RedisLedgerSession, behind: "redis.Redis") -> None:
    """Nothing of the call stays, and the value is not written over."""
    behind.rpush(key(NEXT), b"x")
    for call in (
        lambda: session.claim([CLAIM, NEXT], owner=OWNER, lease_seconds=30.0),
        lambda: session.read([NEXT.digest]),
        lambda: session.finish([Finish(NEXT)], owner=OWNER),
    ):
        with pytest.raises(Misconfigured, match="another kind of value"):
            call()
    assert session.read([CLAIM.digest]) == {}
    assert behind.lrange(key(NEXT), 0, -1) == [b"x"]


def test_the_articles_value_in_the_way_stops_the_job(session: RedisLedgerSession, behind: "redis.Redis") -> None:
    """A text like PROCESSED says neither whose it is nor until when."""
    behind.set(key(CLAIM), b"PROCESSED")
    with pytest.raises(Misconfigured, match="another version or program"):
        session.claim([CLAIM], owner=OWNER, lease_seconds=30.0)
    assert session.finish([Finish(CLAIM)], owner=OWNER) == {CLAIM.digest}
    session.release([CLAIM.digest], owner=OWNER)
    assert behind.get(key(CLAIM)) == b"PROCESSED"


def test_a_wrong_password_is_refused_without_showing_it(
    recipe: RedisLedger, redis_server: RedisServer, behind: "redis.Redis"
) -> None:
    """A right one opens the ledger."""
    behind.config_set("requirepass", "s3cr3t")
    try:
        for wrong in (None, Secret.literal("wr0ng")):
            with pytest.raises(Misconfigured, match="password") as refused:
                RedisLedger(redis_server.url, retention=RETENTION, password=wrong).open(SCOPE)
            assert "wr0ng" not in repr(refused.value)
        RedisLedger(redis_server.url, retention=RETENTION, password=Secret.literal("s3cr3t")).open(SCOPE).close()
    finally:
        behind.config_set("requirepass", "")


def test_each_row_is_claimed_by_one_of_many(recipe: RedisLedger) -> None:
    """Of eight sessions that claim the same rows at once, each row has one owner, and all read the same one."""
    claims = [Claim(b"%016d" % number, b"t/0/%d" % number, HASH) for number in range(800)]
    owners = [bytes([65 + number]) * 16 for number in range(8)]
    sessions = [recipe.open(SCOPE) for _ in owners]
    together = Barrier(len(owners), timeout=60.0)

    def claim(number: int) -> dict[bytes, bytes]:
        mine = claims[number * 100 :] + claims[: number * 100]
        rows = {}
        for start in range(0, 800, 50):
            part = mine[start : start + 50]
            if start <= 50:
                together.wait()
            seen = sessions[number].claim(part, owner=owners[number], lease_seconds=30.0)
            rows.update({one.digest: seen[one.digest].owner if seen else owners[number] for one in part})
        return rows

    with ThreadPoolExecutor(len(owners)) as pool:
        told = list(pool.map(claim, range(len(owners))))
    assert all(each == told[0] for each in told)
    assert set(told[0].values()) == set(owners), "each session was the first to claim some rows"


def test_a_scope_is_registered_once_by_many(recipe: RedisLedger) -> None:
    """Workers that start together share one ledger id."""
    with ThreadPoolExecutor(8) as pool:
        opened = list(pool.map(lambda _: recipe.open(SCOPE).ledger_id, range(8)))
    assert len(set(opened)) == 1


def test_a_scope_that_changed_meanwhile_is_not_written_over(recipe: RedisLedger) -> None:
    """Both statements compare and set: the one who saw an older state has to look again."""
    scopes = RedisScopes(RedisClient(recipe.endpoint), "oncesink")
    first = Registered(1, 1, "{}", b"1" * 16, 60)
    scopes.insert(SCOPE, first)
    scopes.insert(SCOPE, first._replace(ledger_id=b"2" * 16))
    assert scopes.load(SCOPE) == first
    scopes.replace(SCOPE, first._replace(generation=3), seen=first)
    scopes.replace(SCOPE, first._replace(generation=2), seen=first)
    assert scopes.load(SCOPE) == first._replace(generation=3)
    scopes.replace(SCOPE, first._replace(generation=4), seen=first._replace(generation=3, meaning='{"target": "x"}'))
    assert scopes.load(SCOPE) == first._replace(generation=3)


def test_a_changed_meaning_needs_a_higher_generation(recipe: RedisLedger) -> None:
    """What was registered is compared by every later session; a lower generation never comes back."""
    ledger_id = recipe.open(SCOPE).ledger_id
    assert recipe.open(SCOPE).ledger_id == ledger_id
    changed = Scope(name="orders", use=Use.WRITE, meaning={"target": "invoices"})
    with pytest.raises(Misconfigured, match="invoices"):
        recipe.open(changed)
    raised = Scope(name="orders", use=Use.WRITE, meaning={"target": "invoices"}, generation=2)
    assert recipe.open(raised).ledger_id == ledger_id
    with pytest.raises(Misconfigured, match="generation"):
        recipe.open(SCOPE)
    dropping = Scope(name="orders", use=Use.DROP, meaning={"target": "invoices"})
    assert recipe.open(dropping).ledger_id != ledger_id


def test_the_lease_ends_by_the_servers_clock(session: RedisLedgerSession, behind: "redis.Redis") -> None:
    """Not by a clock of ours: the row tells how much is left, and it runs out."""
    session.claim([CLAIM], owner=OWNER, lease_seconds=0.02)
    seen = session.read([CLAIM.digest])[CLAIM.digest]
    assert seen.lease_left_seconds <= 0.02
    deadline = time.monotonic() + 5.0
    while session.read([CLAIM.digest])[CLAIM.digest].lease_left_seconds > 0:
        assert time.monotonic() < deadline
    assert behind.exists(key(CLAIM)), "an open row stays when its lease is over"
    assert session.take([Take(CLAIM.digest, seen)], owner=OTHER, lease_seconds=30.0) == {CLAIM.digest}
    assert session.take([Take(CLAIM.digest, seen)], owner=b"Q" * 16, lease_seconds=30.0) == set()


def test_there_are_no_transactions(session: RedisLedgerSession) -> None:
    """A transactional sink asks for one and is told where to go."""
    with pytest.raises(Misconfigured, match="own database"):
        session.transaction()

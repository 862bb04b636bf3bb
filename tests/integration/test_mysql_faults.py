"""What the MySQL ledger says when something breaks, and what is there afterwards."""

import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta

import pytest
from oncesink.connectors.clock import ManualClock
from oncesink.connectors.contract import Finish, Take
from oncesink.connectors.errors import Misconfigured, OutcomeUnknown, Unavailable
from oncesink.connectors.mysql_connection import MySQLConnection
from oncesink.connectors.mysql_ledger import MySQLLedgerSession
from oncesink.connectors.mysql_server import MySQLTimeouts

from tests.conftest import MySQLDatabase
from tests.integration.mysql_worlds import (
    IMPATIENT,
    LEASE_SECONDS,
    A,
    B,
    CuttingProxy,
    World,
    both,
    claims,
    digest,
    world_of,
)


@pytest.fixture
def world(mysql_database: MySQLDatabase) -> Iterator[World]:
    """Give an empty ledger."""
    with world_of(mysql_database) as world:
        yield world


@pytest.fixture
def proxy(mysql_database: MySQLDatabase) -> Iterator[CuttingProxy]:
    """Give a proxy in front of the server."""
    with closing(CuttingProxy(mysql_database.server.port)) as proxy:
        yield proxy


def test_time_zones_of_sessions_do_not_matter(world: World) -> None:
    """A lease is written by one session and judged by another: both go by UTC."""
    east, west = world.open(), world.open()
    east.connection.execute("SET time_zone='+12:00'")
    west.connection.execute("SET time_zone='-11:00'")
    east.claim(claims(1), owner=A, lease_seconds=LEASE_SECONDS)
    row = west.read([digest(1)])[digest(1)]
    assert 0 < row.lease_left_seconds <= LEASE_SECONDS
    assert 0 <= row.age_seconds < LEASE_SECONDS
    assert west.take([Take(digest(1), row)], owner=B, lease_seconds=LEASE_SECONDS) == {digest(1)}
    west.finish([Finish(claims(1)[0])], owner=B)
    assert 0 <= east.read([digest(1)])[digest(1)].age_seconds < LEASE_SECONDS


def test_a_row_that_is_being_inserted_is_waited_for_and_then_unavailable(world: World) -> None:
    """Whose it is stays open until the other transaction ends; afterwards the same call tells."""
    holder, other = world.open(), world.open(timeouts=IMPATIENT)
    with holder.transaction():
        holder.claim(claims(1), owner=A, lease_seconds=None)
        with pytest.raises(Unavailable, match="1205"):
            other.claim(claims(0, 1, 2), owner=B, lease_seconds=LEASE_SECONDS)
        assert other.read([digest(0), digest(2)]) == {}
    rows = other.claim(claims(0, 1, 2), owner=B, lease_seconds=LEASE_SECONDS)
    assert [rows[digest(number)].owner for number in range(3)] == [B, A, B]


def test_a_lock_wait_inside_a_transaction_undoes_all_of_it(world: World) -> None:
    """MySQL itself would keep what came before the statement that timed out."""
    holder, other = world.open(), world.open(timeouts=IMPATIENT)
    with holder.transaction():
        holder.claim(claims(1), owner=A, lease_seconds=None)
        with pytest.raises(Unavailable):
            claim_two(other, 2, 1)
    assert set(other.read([digest(1), digest(2)])) == {digest(1)}


def test_an_error_that_is_swallowed_inside_a_transaction_does_not_commit_the_rest(world: World) -> None:
    """What came after the failure would commit by itself, outside the transaction that is no more."""
    holder, other = world.open(), world.open(timeouts=IMPATIENT)
    with holder.transaction():
        holder.claim(claims(1), owner=A, lease_seconds=None)
        with pytest.raises(Unavailable, match="lost"):
            swallow_and_go_on(other)
    assert set(other.read([digest(1), digest(2), digest(3)])) == {digest(1)}


def test_of_two_that_deadlock_one_goes_through(world: World) -> None:
    """The victim is `Unavailable`, its transaction undone; run again it finds the other's rows."""
    sessions = {A: world.open(), B: world.open()}
    orders = {A: (1, 2), B: (2, 1)}
    victims: list[bytes] = []
    reasons: list[str] = []

    def work(owner: bytes) -> None:
        try:
            claim_two(sessions[owner], *orders[owner], owner=owner, pause_seconds=0.3)
        except Unavailable as error:
            victims.append(owner)
            reasons.append(str(error))

    both(lambda: work(A), lambda: work(B))
    assert len(victims) == 1
    assert "1213" in reasons[0]
    winner = B if victims == [A] else A
    rows = sessions[victims[0]].read([digest(1), digest(2)])
    assert {row.owner for row in rows.values()} == {winner}
    assert len(rows) == 2


def test_own_rows_are_finished_without_waiting_for_others(world: World) -> None:
    """Rows are found by their digest and nothing else is locked on the way, however few rows there are."""
    holder, other = world.open(), world.open(timeouts=IMPATIENT)
    other.claim(claims(2, 4), owner=B, lease_seconds=LEASE_SECONDS)
    seen = other.read([digest(4)])[digest(4)]
    with holder.transaction():
        holder.claim(claims(1, 3, 5), owner=A, lease_seconds=LEASE_SECONDS)
        holder.take([Take(digest(1), None, claims(1)[0])], owner=A, lease_seconds=LEASE_SECONDS)
        assert other.finish([Finish(claims(2)[0], b"r")], owner=B) == set()
        assert other.take([Take(digest(4), seen)], owner=B, lease_seconds=LEASE_SECONDS) == {digest(4)}
        other.release([digest(4)], owner=B)


def test_rows_of_others_are_not_touched_where_few_are_open(world: World) -> None:
    """A plan that went through the open rows would look cheaper, and wait for those of others."""
    holder, other = world.open(), world.open(timeouts=IMPATIENT)
    many = range(100, 3100)
    other.claim(claims(*many), owner=B, lease_seconds=None)
    other.claim(claims(1), owner=B, lease_seconds=LEASE_SECONDS)
    world.sql("ANALYZE TABLE oncesink_ledger")
    with holder.transaction():
        holder.claim(claims(2), owner=A, lease_seconds=LEASE_SECONDS)
        assert other.finish([Finish(each) for each in claims(1, *many)], owner=B) == set()
        other.release([digest(number) for number in many], owner=B)
    assert len(other.read([digest(number) for number in many])) == len(many)


def test_a_call_of_several_statements_is_all_or_nothing(world: World) -> None:
    """`Unavailable` says that nothing was applied, also where an early statement had gone through."""
    holder, other = world.open(), world.open(timeouts=IMPATIENT)
    other.connection.max_statement_bytes = 2000
    many = claims(*range(200))
    other.claim(many, owner=B, lease_seconds=LEASE_SECONDS)
    with holder.transaction():
        holder.connection.execute("UPDATE oncesink_ledger SET payload_hash=NULL, occurrence='x' WHERE id=200")
        with pytest.raises(Unavailable):
            other.finish([Finish(each) for each in many], owner=B)
    assert not any(row.finished for row in other.read([each.digest for each in many]).values())


@pytest.mark.parametrize("lease_seconds", [LEASE_SECONDS, None])
def test_a_claim_whose_reply_was_lost_is_found_again(
    world: World, proxy: CuttingProxy, lease_seconds: float | None
) -> None:
    """It is `OutcomeUnknown`, and the same call under the same owner shows that the rows are its own."""
    session = world.open(url=world.database.url.replace(str(world.database.server.port), str(proxy.port)))
    proxy.cut_after = b"INSERT IGNORE INTO oncesink_ledger"
    with pytest.raises(OutcomeUnknown):
        session.claim(claims(1, 2), owner=A, lease_seconds=lease_seconds)
    rows = session.claim(claims(1, 2), owner=A, lease_seconds=lease_seconds)
    assert [row.owner for row in rows.values()] == [A, A]


def test_a_commit_whose_reply_was_lost_is_found_again(world: World, proxy: CuttingProxy) -> None:
    """It is `OutcomeUnknown` although the rows are there."""
    session = world.open(url=world.database.url.replace(str(world.database.server.port), str(proxy.port)))
    proxy.cut_after = b"COMMIT"
    with pytest.raises(OutcomeUnknown, match="commit"):
        claim_two(session, 1, 2)
    rows = session.claim(claims(1, 2), owner=A, lease_seconds=None)
    assert [row.owner for row in rows.values()] == [A, A]


@pytest.mark.parametrize("call", ["finish", "take", "release"])
def test_a_change_whose_reply_was_lost_may_be_repeated(world: World, proxy: CuttingProxy, call: str) -> None:
    """Finish, take and release say the same the second time."""
    session = world.open(url=world.database.url.replace(str(world.database.server.port), str(proxy.port)))
    session.claim(claims(1), owner=A, lease_seconds=LEASE_SECONDS)
    row = session.read([digest(1)])[digest(1)]
    calls: dict[str, Callable[[], object]] = {
        "finish": lambda: session.finish([Finish(claims(1)[0], b"r")], owner=A),
        "take": lambda: session.take([Take(digest(1), row)], owner=B, lease_seconds=LEASE_SECONDS),
        "release": lambda: session.release([digest(1)], owner=A),
    }
    proxy.cut_after = b"DELETE" if call == "release" else b"UPDATE"
    with pytest.raises(OutcomeUnknown):
        calls[call]()
    assert calls[call]() == {"finish": set(), "take": {digest(1)}, "release": None}[call]


def test_a_reply_that_is_lost_after_the_insert_is_no_promise_that_nothing_happened(
    world: World, proxy: CuttingProxy
) -> None:
    """The read-back alone would be `Unavailable`, but the insert before it was committed."""
    session = world.open(url=world.database.url.replace(str(world.database.server.port), str(proxy.port)))
    session.claim(claims(1), owner=A, lease_seconds=LEASE_SECONDS)
    proxy.cut_after = b"SELECT digest"
    with pytest.raises(OutcomeUnknown):
        session.claim(claims(1, 2), owner=B, lease_seconds=LEASE_SECONDS)
    proxy.cut_after = b"SELECT digest"
    with pytest.raises(Unavailable):
        session.read([digest(1)])


def test_a_killed_connection_undoes_the_transaction(world: World) -> None:
    """A statement of it is `Unavailable`: nothing can have been committed; a commit is not known."""
    session = world.open()
    with pytest.raises(Unavailable):
        kill_between(world, session)
    assert session.read([digest(1), digest(2)]) == {}
    with pytest.raises(OutcomeUnknown):
        kill_before_commit(world, session)
    assert session.claim(claims(1), owner=A, lease_seconds=None) == {}


def test_a_connection_that_was_silent_is_made_anew(world: World) -> None:
    """Half of the idle time later the server may have ended it: nothing is sent on it any more."""
    clock = ManualClock()
    with closing(MySQLConnection(world.ledger().server, clock=clock.monotonic)) as connection:
        [(number,)] = connection.query("SELECT CONNECTION_ID()")
        world.sql(f"KILL {int(number)}")
        clock.sleep(MySQLTimeouts().idle.total_seconds() / 2 + 1)
        assert connection.execute("DO 1") == 0


def test_a_server_that_hangs_is_given_up_in_time(world: World) -> None:
    """A read is `Unavailable`, a write not known, each within the statement's time; afterwards the session goes on."""
    session = world.open(timeouts=IMPATIENT)
    with world.hanging():
        begin = time.monotonic()
        with pytest.raises(OutcomeUnknown):
            session.claim(claims(1), owner=A, lease_seconds=LEASE_SECONDS)
        with pytest.raises(Unavailable):
            session.read([digest(1)])
        assert time.monotonic() - begin < 2 * IMPATIENT.statement.total_seconds() + 2
    session.claim(claims(1), owner=A, lease_seconds=LEASE_SECONDS)
    assert session.read([digest(1)])[digest(1)].owner == A


def test_a_server_that_is_killed_keeps_what_was_committed(world: World) -> None:
    """SIGKILL in the middle of a transaction: what was acknowledged is there after the restart, the rest is not."""
    session, server = world.open(timeouts=IMPATIENT), world.database.server
    session.claim(claims(1), owner=A, lease_seconds=LEASE_SECONDS)
    with pytest.raises(Unavailable):
        kill_server_between(world, session)
    with pytest.raises(Unavailable):
        session.read([digest(1)])
    server.revive()
    rows = session.claim(claims(1, 2, 3), owner=A, lease_seconds=LEASE_SECONDS)
    assert not any(row.finished for row in rows.values())
    assert rows[digest(1)].age_seconds > rows[digest(2)].age_seconds


@pytest.mark.parametrize("in_transaction", [False, True])
def test_statements_are_cut_to_what_the_server_takes(world: World, in_transaction: bool) -> None:
    """A batch larger than a packet goes through in several statements, all or nothing."""
    session = world.open()
    session.connection.max_statement_bytes = 20_000
    many = claims(*range(300), occurrence=b"x" * 255)
    if in_transaction:
        with session.transaction():
            assert session.claim(many, owner=A, lease_seconds=None) == {}
    else:
        assert session.claim(many, owner=A, lease_seconds=LEASE_SECONDS) == {}
        finishes = [Finish(each, b"y" * 100) for each in many]
        assert session.finish(finishes, owner=A) == set()
        assert session.finish(finishes, owner=A) == set()
    rows = session.read([each.digest for each in many])
    assert len(rows) == 300
    assert all(row.finished for row in rows.values())


def test_what_the_server_refuses_is_cut_before_it_is_sent(world: World) -> None:
    """The limit is the server's own."""
    [(limit,)] = world.sql("SELECT @@max_allowed_packet")
    session = world.open()
    assert session.connection.max_statement_bytes < limit
    large = claims(*range(int(limit) // 600 + 1), occurrence=b"x" * 255)
    assert session.claim(large, owner=A, lease_seconds=None) == {}


def test_values_that_would_be_cut_are_never_sent(world: World) -> None:
    """INSERT IGNORE would store them shortened, in silence."""
    session = world.open()
    bad = [
        claims(1, occurrence=b"x" * 256)[0],
        claims(1)[0]._replace(digest=b"short"),
        claims(1)[0]._replace(payload_hash=b""),
    ]
    for claim in bad:
        with pytest.raises(ValueError, match="bytes"):
            session.claim([claim], owner=A, lease_seconds=None)
        with pytest.raises(ValueError, match="bytes"):
            session.finish([Finish(claim)], owner=A)
    with pytest.raises(ValueError, match="bytes"):
        session.claim(claims(1), owner=b"", lease_seconds=None)
    assert world.sql("SELECT COUNT(*) FROM oncesink_ledger") == ((0,),)


def test_errors_survive_pickling_and_hold_no_password(world: World) -> None:
    """They travel from workers to logs."""
    session = world.open()
    with pytest.raises(Unavailable) as lost:
        kill_between(world, session)
    again = pickle.loads(pickle.dumps(lost.value))
    assert type(again) is type(lost.value)
    assert str(again) == str(lost.value)
    assert world.database.password not in f"{again!r}{session!r}{world.ledger()!r}"


def test_time_outs_that_contradict_each_other_are_refused(world: World) -> None:
    """The server has to answer before the client gives up."""
    with pytest.raises(Misconfigured, match=r"lock=0:00:20 .* statement=0:00:20"):
        world.open(timeouts=MySQLTimeouts(lock=timedelta(seconds=20)))


def claim_two(
    session: MySQLLedgerSession, first: int, second: int, *, owner: bytes = A, pause_seconds: float = 0.0
) -> None:
    """Claim two keys one after the other in one transaction."""
    with session.transaction():
        session.claim(claims(first), owner=owner, lease_seconds=None)
        time.sleep(pause_seconds)
        session.claim(claims(second), owner=owner, lease_seconds=None)


def swallow_and_go_on(session: MySQLLedgerSession) -> None:
    """Do what a careless sink would do."""
    with session.transaction():
        session.claim(claims(2), owner=B, lease_seconds=None)
        with pytest.raises(Unavailable):
            session.claim(claims(1), owner=B, lease_seconds=None)
        with pytest.raises(Unavailable):
            session.claim(claims(3), owner=B, lease_seconds=None)


def kill_between(world: World, session: MySQLLedgerSession) -> None:
    """Lose the connection between two statements of a transaction."""
    with session.transaction():
        session.claim(claims(1), owner=A, lease_seconds=None)
        world.kill(session)
        session.claim(claims(2), owner=A, lease_seconds=None)


def kill_before_commit(world: World, session: MySQLLedgerSession) -> None:
    """Lose the connection just before the commit."""
    with session.transaction():
        session.claim(claims(1), owner=A, lease_seconds=None)
        world.kill(session)


def kill_server_between(world: World, session: MySQLLedgerSession) -> None:
    """Lose the server between two statements of a transaction."""
    with session.transaction():
        session.claim(claims(2), owner=A, lease_seconds=None)
        world.database.server.kill()
        session.claim(claims(3), owner=A, lease_seconds=None)

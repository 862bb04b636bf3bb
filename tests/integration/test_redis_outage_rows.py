"""An outage of Redis, and the rows that stood open there before: what is written meanwhile settles them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from oncesink.connectors import Claim, Finish, Scope, SinkKind, Take, Unavailable, Use, forget_all
from oncesink.connectors.audit_feed import batches, feed
from oncesink.connectors.audit_folder import AuditEntry, AuditFile
from oncesink.connectors.memory import MemoryLedger
from oncesink.connectors.outage import OutageSession
from oncesink.connectors.redis_ledger_session import RedisLedgerSession
from oncesink.transforms import OnceWriter, Reconciler
from oncesink.transforms.prepare import Item

from tests.integration.test_redis_outage import World, dying, order, told
from tests.servers import RedisServer


@pytest.fixture
def world(redis_server: RedisServer, tmp_path: Path) -> World:
    """Give a Redis that may be stopped, and a sink that does not drop by key."""
    forget_all()
    return World(redis_server, tmp_path / "audit", SinkKind.EXTERNAL)


def ledger_of(writer: OnceWriter) -> OutageSession:
    """Return a writer's ledger."""
    ledger = writer._session.ledger
    assert isinstance(ledger, OutageSession)
    return ledger


def left_open(writer: OnceWriter, record: dict[str, Any]) -> bytes:
    """Claim a record, as somebody who died then; return its digest once the lease is over."""
    (item,) = writer._session.prepare.batch([record])
    assert isinstance(item, Item)
    ledger_of(writer).claim([item.claim], owner=b"somebody who died"[:16], lease_seconds=0.01)
    time.sleep(0.05)
    return item.claim.digest


def test_what_was_finished_meanwhile_ends_the_doubt_of_before(world: World) -> None:
    """A row that was open when Redis went away is finished by the audit, and never written again."""
    world.settings = {"on_replay": "write"}
    with world.writer() as writer:
        left_open(writer, order("a"))
        world.server.kill()
        assert told(writer.write([order("a")])) == (1, 0, 0)
        world.server.start()
        world.clock.sleep(60)
        assert told(writer.write([order("a"), order("a", 1)])) == (0, 1, 1)
    assert world.effects() == ["a"]


def test_a_reconciler_goes_on_when_redis_is_back(world: World) -> None:
    """It takes rows in Redis or raises: in the stand-in it would take none, for ever."""
    with world.writer(redrive="json") as writer:
        gate = writer._session.gate
        left_open(writer, order("a"))
        left_open(writer, order("b"))
    with Reconciler(gate, world.sink()) as reconciler:
        with dying(world, RedisLedgerSession, "take"):
            assert reconciler.run().elsewhere == 2
        with pytest.raises(Unavailable):
            reconciler.overdue()
        world.server.start()
        world.clock.sleep(60)
        done = reconciler.run()
        assert (done.listed, done.elsewhere, done.missing) == (2, 0, 2)


@contextmanager
def no_disk_for(did: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let no line of one kind get into an audit."""
    append = AuditFile.append

    def refuses(file: AuditFile, entries: Any) -> None:
        if entries[0].did == did:
            raise Unavailable("no space left on device")
        append(file, entries)

    with monkeypatch.context() as patch:
        patch.setattr(AuditFile, "append", refuses)
        yield


def test_nobody_is_told_of_a_finish_that_the_audit_does_not_hold(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the ledger would learn of a claim only, and leave it in doubt."""
    world.kind = SinkKind.DROPS_BY_KEY
    with world.writer() as writer:
        world.server.kill()
        with no_disk_for("finished", monkeypatch), pytest.raises(Unavailable):
            writer.write([order("a")])
        assert told(writer.write([order("a")])) == (0, 1, 0)
        assert [line["did"] for line in world.audited()][-1] == "finished"
        world.server.start()


def test_a_take_over_whose_lines_came_late_is_fed_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repeated call finds its own rows, and still says whose they were."""
    with world.writer() as writer:
        ledger = ledger_of(writer)
        world.server.kill()
        digest = left_open(writer, order("a"))
        take, new = Take(digest, ledger.read([digest])[digest]), b"n" * 16
        with no_disk_for("taken", monkeypatch), pytest.raises(Unavailable):
            ledger.take([take], owner=new, lease_seconds=20)
        assert ledger.take([take], owner=new, lease_seconds=20) == {digest}
        ledger.finish([Finish(Claim(digest, b"o", None), None)], owner=new)
        world.server.start()
        world.clock.sleep(60)
        row = ledger.read([digest])[digest]
        assert (row.finished, row.owner) == (True, new)


def test_a_row_that_was_taken_and_then_named_is_fed_back() -> None:
    """A probe that finds nothing: the row is its taker's, and bears the occurrence that is about to write."""
    forget_all()
    ledger = MemoryLedger("fed").open(Scope(name="s", use=Use.WRITE))
    digest, former, new = b"d" * 16, b"f" * 16, b"n" * 16
    before, after = Claim(digest, b"before", None), Claim(digest, b"after", None)
    ledger.claim([before], owner=former, lease_seconds=20)
    taken = [AuditEntry("taken", new, before, 20.0, former=former), AuditEntry("taken", new, after, 20.0, former=new)]
    for _ in range(2):
        for batch in batches(iter(taken)):
            feed(ledger, batch)
        row = ledger.read([digest])[digest]
        assert (row.owner, row.occurrence) == (new, b"after")


def test_a_file_whose_folder_fails_is_let_go(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its lock would keep it from every other session for as long as the process lives."""

    def fails(_: Path) -> None:
        raise OSError(5, "input/output error")

    with world.writer() as writer:
        world.server.kill()
        with monkeypatch.context() as patch:
            patch.setattr("oncesink.connectors.audit_folder._sync", fails)
            with pytest.raises(Unavailable, match="no audit file"):
                writer.write([order("a")])
        assert list(world.folder.glob("*.open.jsonl"))
        world.server.start()
        world.clock.sleep(60)
        writer.write([order("a")])
        assert not list(world.folder.glob("*.open.jsonl"))
    assert world.effects() == ["a"]

"""Redis as the only ledger, away: nothing is lost, what was written without it is known again, and it costs little."""

from __future__ import annotations

import itertools
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from oncesink.connectors import (
    ManualClock,
    MemorySink,
    Misconfigured,
    OutcomeUnknown,
    RedisCache,
    RedisLedger,
    SinkKind,
    SystemClock,
    Unavailable,
    Write,
    forget_all,
)
from oncesink.connectors.audit_folder import AuditFile
from oncesink.connectors.memory_sinks import _SinkSession as SinkSession
from oncesink.connectors.outage import OutageSession
from oncesink.connectors.redis_ledger_session import RedisLedgerSession
from oncesink.transforms import Counts, Fields, Gate, OnceWriter, Results, SourcePosition
from oncesink.transforms.prepare import Item
from oncesink.transforms.results import Passed
from oncesink.transforms.retry import Immediately
from oncesink.transforms.session import GateSession

from tests.servers import RedisServer

DAY = timedelta(days=1)
CALL = timedelta(milliseconds=300)
SHORT = timedelta(milliseconds=400)
"""A lease that tests wait for."""
names = itertools.count()


@dataclass
class World:
    """A Redis, a folder for audits, and a sink that keeps every effect."""

    server: RedisServer
    folder: Path
    kind: SinkKind = SinkKind.DROPS_BY_KEY
    clock: ManualClock = field(default_factory=ManualClock)
    counts: Counts = field(default_factory=Counts)
    settings: dict[str, Any] = field(default_factory=dict)
    name: str = field(default_factory=lambda: f"outage {next(names)}")
    make_sink: Callable[[], MemorySink] | None = None

    def ledger(self, **settings: Any) -> RedisLedger:
        """Return the recipe."""
        usual: dict[str, Any] = {
            "retention": DAY,
            "connect_timeout": CALL,
            "call_timeout": CALL,
            "outage": "at_least_once",
            "audit": str(self.folder),
            "clock": self.clock,
            "lists_open": True,
        }
        return RedisLedger(self.server.url, **(usual | settings))

    def sink(self) -> MemorySink:
        """Return the sink; it is asked by `probe` where it does not drop by key."""
        if self.make_sink is not None:
            return self.make_sink()
        return MemorySink(
            self.name, drops_by_key=self.kind is SinkKind.DROPS_BY_KEY, timeout=timedelta(milliseconds=50)
        )

    def writer(self, **settings: Any) -> OnceWriter:
        """Open a writer."""
        usual: dict[str, Any] = {
            "scope": "orders",
            "key": Fields("id"),
            "occurrence": SourcePosition("s", "at"),
            "ledger": self.ledger(),
            "lease": timedelta(seconds=20),
            "grace": timedelta(0),
            "rejected": "output",
            "parked": "output",
        }
        if self.kind is SinkKind.EXTERNAL:
            usual["on_replay"] = "probe"
        gate = Gate(**(usual | self.settings | settings))
        return OnceWriter(gate, self.sink(), metrics=self.counts, attempts=Immediately(2))

    def effects(self) -> list[str]:
        """Return the ids that the sink has, sorted."""
        return sorted(effect.record["id"] for effect in self.sink().effects)

    def audited(self, pattern: str = "*") -> list[dict[str, Any]]:
        """Return the lines of the audits."""
        files = sorted(self.folder.glob(f"{pattern}.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.fixture
def world(redis_server: RedisServer, tmp_path: Path) -> World:
    """Give a Redis that may be stopped."""
    forget_all()
    return World(redis_server, tmp_path / "audit")


def order(name: str, at: int = 0) -> dict[str, Any]:
    """Make a record, delivered from an offset."""
    return {"id": name, "at": at}


def told(results: Results) -> tuple[int, int, int]:
    """Count what was written, replayed, and a duplicate."""
    replayed = sum(each.replayed for each in results.written)
    return len(results.written) - replayed, replayed, len(results.duplicates)


@pytest.mark.parametrize("kind", [SinkKind.DROPS_BY_KEY, SinkKind.EXTERNAL])
def test_records_are_written_without_it_and_known_when_it_is_back(
    world: World, kind: SinkKind, caplog: pytest.LogCaptureFixture
) -> None:
    """Counted, warned of once, recognised by this session meanwhile, and by everybody afterwards."""
    world.kind = kind
    with caplog.at_level(logging.WARNING, logger="oncesink"), world.writer() as writer:
        writer.write([order("before")])
        world.server.kill()
        assert told(writer.write([order("a"), order("b"), order("a", 9)])) == (2, 0, 1)
        assert told(writer.write([order("a"), order("b", 7), order("c")])) == (1, 1, 1)
        assert world.counts["unguarded"] == 3
        world.server.start()
        world.clock.sleep(60)
        assert told(writer.write([order("before"), order("a"), order("b", 8), order("d")])) == (1, 2, 1)
        assert world.counts["unguarded"] == 3
    lines = [each.message.partition(" (")[0] for each in caplog.records if "ledger of scope" in each.message]
    assert lines == [
        "the ledger of scope 'orders' is away",
        "the ledger of scope 'orders' guards again: 6 changes were fed back",
    ]
    with world.writer() as another:
        assert told(another.write([order("c"), order("c", 5)])) == (0, 1, 1)
    assert world.effects() == ["a", "b", "before", "c", "d"]
    assert not list(world.folder.glob("*.open.jsonl"))
    assert len(world.audited("*.fed")) == 6


def test_each_line_is_on_disk_before_its_call(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Digest, occurrence, hash of the content, time and scope: who looks at the audit can find what it means."""
    seen: list[Any] = []

    class Looks(MemorySink):
        def open(self, scope: Any, ledger: Any) -> Any:
            session = super().open(scope, ledger)
            write = session.write

            def looked(writes: Sequence[Write], *, timeout_seconds: float) -> Any:
                lines = {line["digest"]: line for line in world.audited()}
                seen.extend((each, lines[each.digest.hex()]) for each in writes)
                return write(writes, timeout_seconds=timeout_seconds)

            monkeypatch.setattr(session, "write", looked)
            return session

    world.make_sink = lambda: Looks(world.name, drops_by_key=True)
    with world.writer() as writer:
        world.server.kill()
        writer.write([order("a", 1), order("b", 2)])
        world.server.start()
    assert len(seen) == 2
    for write, line in seen:
        assert line["did"] == "claimed"
        assert (line["scope"], line["use"], line["generation"]) == ("orders", "write", 1)
        assert bytes.fromhex(line["occurrence"]) == write.occurrence
        assert bytes.fromhex(line["payload_hash"]) == write.payload_hash
        assert line["at"][:2] == "20"


def test_by_default_it_fails(world: World) -> None:
    """Nothing is written that could be written twice."""
    ledger = RedisLedger(world.server.url, retention=DAY, call_timeout=CALL, connect_timeout=CALL)
    with world.writer(ledger=ledger) as writer:
        world.server.kill()
        with pytest.raises((Unavailable, OutcomeUnknown)):
            writer.write([order("a")])
    assert world.effects() == []


def test_a_connection_that_was_cut_is_no_outage(world: World) -> None:
    """A restart between two batches costs a connection, and no guard."""
    with world.writer() as writer:
        writer.write([order("a")])
        world.server.kill()
        world.server.start()
        writer.write([order("b")])
    assert world.counts["unguarded"] == 0
    assert world.audited() == []


def test_a_dead_redis_costs_one_time_out_a_pause(world: World) -> None:
    """As ledger and as cache: of many batches one waits, and after the pause one more."""
    cache = RedisCache(world.server.url, ttl=timedelta(hours=1), budget=CALL, clock=world.clock)
    limit = 3 * CALL.total_seconds()
    with world.writer(cache=cache) as writer:
        writer.write([order("first")])
        world.server.pause()
        assert limit > took(lambda: writer.write([order("a")])) > CALL.total_seconds()
        assert took(lambda: [writer.write([order(f"b{n}")]) for n in range(20)]) < limit
        world.clock.sleep(1.5)
        assert limit > took(lambda: writer.write([order("c")])) > CALL.total_seconds()
        assert took(lambda: [writer.write([order(f"d{n}")]) for n in range(20)]) < limit
        assert world.counts["unguarded"] == 42
        world.server.resume()
        world.clock.sleep(60)
        assert told(writer.write([order("a"), order("d3", 1)])) == (0, 1, 1)
    assert world.counts["unguarded"] == 42


def took(work: Callable[[], object]) -> float:
    """Return how many seconds it takes."""
    started = time.monotonic()
    work()
    return time.monotonic() - started


def test_a_redis_that_dies_between_claim_and_finish(world: World) -> None:
    """What was claimed there is finished in the audit, and then there."""
    world.kind = SinkKind.EXTERNAL
    with world.writer() as writer:
        session = writer._session.ledger
        assert isinstance(session, OutageSession)
        with dying(world, RedisLedgerSession, "finish"):
            assert told(writer.write([order("a")])) == (1, 0, 0)
        assert world.counts["unguarded"] == 0
        world.server.start()
        world.clock.sleep(60)
        assert told(writer.write([order("a"), order("a", 1)])) == (0, 1, 1)
    assert world.effects() == ["a"]


class dying:  # noqa: N801
    """Kill the server just before the next call of a verb."""

    def __init__(self, world: World, kind: type, verb: str) -> None:
        self._world, self._kind, self._verb = world, kind, verb

    def __enter__(self) -> None:
        self._call = call = getattr(self._kind, self._verb)

        def killed(*args: Any, **options: Any) -> Any:
            if self._world.server.running:
                self._world.server.kill()
            return call(*args, **options)

        setattr(self._kind, self._verb, killed)

    def __exit__(self, *_: object) -> None:
        setattr(self._kind, self._verb, self._call)


def test_a_start_without_it(world: World) -> None:
    """A scope that was opened here before goes on; one that never was does not, nor one that changed its meaning."""
    world.server.kill()
    with pytest.raises(Unavailable):
        world.writer()
    world.server.start()
    world.writer().close()
    world.server.kill()
    with pytest.raises(Unavailable):
        world.writer(key=Fields("id", "at"))
    with world.writer() as writer:
        assert told(writer.write([order("a")])) == (1, 0, 0)
        world.server.start()
        world.clock.sleep(60)
        assert told(writer.write([order("a"), order("a", 1)])) == (0, 1, 1)
    assert world.effects() == ["a"]


@pytest.mark.parametrize("kind", [SinkKind.DROPS_BY_KEY, SinkKind.EXTERNAL])
def test_a_start_without_it_knows_what_those_before_left(world: World, kind: SinkKind) -> None:
    """However often a worker ends while Redis is away: what it wrote is known to the next, who tells Redis all."""
    world.kind = kind
    world.writer().close()
    world.server.kill()
    for name in "abc":
        with world.writer() as writer:
            assert told(writer.write([order("a")])) == ((1, 0, 0) if name == "a" else (0, 1, 0))
            assert told(writer.write([order(name), order("a", 9)])) == ((1, 0, 1) if name != "a" else (0, 1, 1))
    assert len(list(world.folder.glob("*.open.jsonl"))) == 3
    world.server.start()
    with world.writer() as writer:
        assert told(writer.write([order(name) for name in "abcd"])) == (1, 3, 0)
    assert world.effects() == list("abcd")
    assert not list(world.folder.glob("*.open.jsonl"))


def test_a_live_session_learns_what_one_that_died_wrote(world: World) -> None:
    """After its next look at Redis: the records of the dead one may come to it."""
    dying = world.writer()
    with world.writer() as writer:
        world.server.kill()
        writer.write([order("a")])
        dying.write([order("b")])
        dying.close()
        world.clock.sleep(60)
        assert told(writer.write([order("a"), order("b"), order("b", 5)])) == (0, 2, 1)
        assert world.counts["unguarded"] == 2
        world.server.start()


def test_what_a_live_session_writes_is_left_to_it(world: World) -> None:
    """Another one feeds it back as soon as its writer is gone."""
    writer = world.writer()
    world.server.kill()
    writer.write([order("a")])
    world.server.start()
    with world.writer() as other:
        assert len(list(world.folder.glob("*.open.jsonl"))) == 1
        # Its keys may be written twice meanwhile: at least once.
        assert told(other.write([order("b")])) == (1, 0, 0)
    writer.close()
    assert len(list(world.folder.glob("*.open.jsonl"))) == 1, "the pause is not over: it is left to the next session"
    with world.writer() as another:
        assert told(another.write([order("a"), order("a", 4)])) == (0, 1, 1)
    assert not list(world.folder.glob("*.open.jsonl"))


def test_rejected_records_leave_nothing_behind(world: World) -> None:
    """Their claims are given back in the audit, too, so that a better one of the same key is written."""
    world.make_sink = lambda: MemorySink(world.name, drops_by_key=True, refuses=refuses_low)
    with world.writer() as writer:
        world.server.kill()
        assert len(writer.write([order("a", -1), order("b", 1)]).rejected) == 1
        world.server.start()
        world.clock.sleep(60)
        assert told(writer.write([order("a", 2), order("b", 3)])) == (1, 0, 1)


def refuses_low(record: dict[str, Any]) -> str | None:
    """Refuse offsets below zero."""
    return "too low" if record["at"] < 0 else None


class Crash(BaseException):
    """The process died here."""


class Steps:
    """Lets the process die at one of the steps that leave something behind; tells the ledger that it is away."""

    verbs = ("claim", "read", "take", "finish", "release")

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.last = self.count = 0
        self.away = False
        self.open: set[AuditFile] = set()
        for name in ("append", "retire"):
            monkeypatch.setattr(AuditFile, name, self.around(getattr(AuditFile, name)))
        for name in self.verbs:
            monkeypatch.setattr(
                RedisLedgerSession, name, self.around(getattr(RedisLedgerSession, name), of_ledger=True)
            )
        monkeypatch.setattr(SinkSession, "write", self.around(SinkSession.write))
        begin, end = AuditFile.__init__, AuditFile.close

        def begun(file: AuditFile, *args: Any) -> None:
            self.open.add(file)
            begin(file, *args)

        def ended(file: AuditFile) -> None:
            self.open.discard(file)
            end(file)

        monkeypatch.setattr(AuditFile, "__init__", begun)
        monkeypatch.setattr(AuditFile, "close", ended)

    def around(self, call: Any, *, of_ledger: bool = False) -> Any:
        def stepped(*args: Any, **options: Any) -> Any:
            self.step()
            if of_ledger and self.away:
                raise Unavailable
            done = call(*args, **options)
            self.step()
            return done

        return stepped

    def step(self) -> None:
        self.count += 1
        if self.count == self.last:
            raise Crash

    def dies_at(self, last: int, story: Callable[[], object]) -> bool:
        """Run until the step; let go of what a dead process lets go of. Tells whether it came so far."""
        self.last, self.count, self.away = last, 0, False
        try:
            story()
        except Crash:
            return True
        finally:
            self.last, self.away = 0, False
            for file in list(self.open):
                file.close()
        return False


@pytest.mark.parametrize("kind", [SinkKind.DROPS_BY_KEY, SinkKind.EXTERNAL])
def test_a_death_between_any_two_steps_loses_and_doubles_nothing(
    world: World, kind: SinkKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was audited, written, finished or fed by then: the replay comes out even."""
    steps = Steps(monkeypatch)
    deliveries = [order(name, at) for at, name in enumerate("abcde")]
    for last in itertools.count(1):
        case = World(world.server, world.folder / str(last), kind, settings={"scope": f"orders {last}", "lease": SHORT})
        died = steps.dies_at(last, lambda: outage(case, steps, deliveries))  # noqa: B023
        with case.writer() as writer:
            results = writer.write([*deliveries, order("b", 99)])
            assert (len(results.written), len(results.duplicates)) == (5, 1), last
        assert case.effects() == list("abcde"), last
        with case.writer() as another:
            assert told(another.write(deliveries)) == (0, 5, 0), last
        assert not list(case.folder.glob("*.open.jsonl")), last
        if not died:
            break
    assert last > 30


@pytest.mark.parametrize("kind", [SinkKind.DROPS_BY_KEY, SinkKind.EXTERNAL])
def test_a_death_in_an_outage_and_a_start_within_it_double_nothing(
    world: World, kind: SinkKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next worker starts while Redis is away, and the one after that when it is back."""
    steps = Steps(monkeypatch)
    deliveries = [order(name, at) for at, name in enumerate("abc")]
    for last in itertools.count(1):
        case = World(world.server, world.folder / str(last), kind, settings={"scope": f"away {last}", "lease": SHORT})
        case.settings["ledger"] = case.ledger(clock=SystemClock())
        case.writer().close()
        died = steps.dies_at(last, lambda: away(case, steps, deliveries))  # noqa: B023
        steps.away = True
        with case.writer() as writer:
            results = writer.write([*deliveries, order("b", 99)])
            assert (len(results.written), len(results.duplicates)) == (3, 1), last
        assert case.effects() == list("abc"), last
        steps.away = False
        with case.writer() as another:
            assert told(another.write(deliveries)) == (0, 3, 0), last
        assert not list(case.folder.glob("*.open.jsonl")), last
        if not died:
            break
    assert last > 10


def away(world: World, steps: Steps, deliveries: Sequence[Any]) -> None:
    """Write while Redis is away."""
    steps.away = True
    with closing(world.writer()) as writer:
        writer.write(deliveries[:2])
        writer.write(deliveries[1:])


def outage(world: World, steps: Steps, deliveries: Sequence[Any]) -> None:
    """Write before, during and after an outage."""
    writer = world.writer()
    writer.write(deliveries[:1])
    steps.away = True
    writer.write(deliveries[1:3])
    writer.write(deliveries[2:4])
    steps.away = False
    world.clock.sleep(60)
    writer.write(deliveries[4:])
    writer.close()


def test_a_killed_writer_leaves_its_audit_to_the_next(world: World, tmp_path: Path) -> None:
    """SIGKILL in the middle of an outage: the lock on its file is gone with it, and what it finished is known."""
    log = tmp_path / "effects"
    world.writer().close()
    world.server.kill()
    program = [sys.executable, "-c", CHILD.replace("NAME", world.name), world.server.url, str(world.folder), str(log)]
    child = subprocess.Popen(program, cwd=Path(__file__).parents[2])
    try:
        deadline = time.monotonic() + 60
        while len(world.audited()) < 40 and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    world.server.start()
    done = {line["digest"] for line in world.audited() if line["did"] == "finished"}
    assert len(done) > 10
    with closing(world.ledger().open(world.writer()._session.scope)) as session:
        rows = session.read([bytes.fromhex(each) for each in done])
    assert len(rows) == len(done)
    assert all(row.finished for row in rows.values())


CHILD = """
import sys
from datetime import timedelta
from oncesink.connectors import MemorySink, RedisLedger
from oncesink.transforms import Fields, Gate, OnceWriter, SourcePosition

url, audit, log = sys.argv[1:]
ledger = RedisLedger(url, retention=timedelta(days=1), outage="at_least_once", audit=audit, lists_open=True)
gate = Gate(
    scope="orders", key=Fields("id"), occurrence=SourcePosition("s", "at"), ledger=ledger,
    lease=timedelta(seconds=20),
)
with OnceWriter(gate, MemorySink("NAME", drops_by_key=True)) as writer:
    for number in range(1_000_000):
        writer.write([{"id": str(number), "at": number}])
"""


def test_a_filter_goes_on_too(world: World) -> None:
    """`DropDuplicates`: what passed without Redis passes for its own occurrence, and for no other afterwards."""
    gate = Gate(scope="f", key=Fields("id"), occurrence=SourcePosition("s", "at"), ledger=world.ledger())
    session = GateSession(gate, None, metrics=world.counts)
    with closing(session):
        world.server.kill()
        assert passed(session, order("a", 1), order("b", 2), order("a", 3)) == [("a", 1), ("b", 2)]
        world.server.start()
        world.clock.sleep(60)
        assert passed(session, order("a", 1), order("b", 9), order("c", 4)) == [("a", 1), ("c", 4)]
    assert world.counts["unguarded"] == 2


def passed(session: GateSession, *records: dict[str, Any]) -> list[tuple[str, int]]:
    """Take records through the filter; return what passed."""
    items = [item for item in session.prepare.batch(records) if isinstance(item, Item)]
    done = session.flush(items, None)
    assert done.trouble is None
    return [(item.record["id"], item.record["at"]) for item, out in done.settled if isinstance(out, Passed)]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"outage": "ignore", "audit": None}, "outage is 'fail' or 'at_least_once'"),
        ({"outage": "fail", "audit": "folder"}, "does nothing with outage='fail'"),
        ({"audit": None}, "needs audit="),
        ({"audit": ""}, "needs audit="),
        ({"audit": "s3://bucket/audit"}, "a disk of this machine"),
        ({"first_pause": timedelta(0)}, "pauses must grow"),
    ],
)
def test_settings_that_do_not_fit_are_refused(world: World, settings: dict[str, Any], told: str) -> None:
    """By name, when the recipe is made."""
    with pytest.raises(Misconfigured, match=told):
        world.ledger(**settings)


def test_a_folder_that_takes_no_files_is_refused_at_start(world: World, tmp_path: Path) -> None:
    """Not in the middle of an outage."""
    (tmp_path / "file").write_text("")
    with pytest.raises(Misconfigured, match="takes no files"):
        world.writer(ledger=world.ledger(audit=str(tmp_path / "file" / "audit")))


def test_without_its_audit_nothing_is_written(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk during an outage is an outage."""
    with world.writer() as writer:
        world.server.kill()
        monkeypatch.setattr("oncesink.connectors.audit_folder._write", full)
        with pytest.raises(Unavailable, match="cannot grow"):
            writer.write([order("a")])
        assert world.effects() == []
        monkeypatch.undo()
        assert told(writer.write([order("a")])) == (1, 0, 0)
        world.server.start()


def full(descriptor: int, data: bytes) -> None:
    """Write a part of it, as a disk does that becomes full."""
    os.write(descriptor, data[:10])
    raise OSError(28, "No space left on device")


def test_what_holds_is_said(world: World) -> None:
    """In the line at the start."""
    with world.writer() as writer:
        assert "at least once while the ledger is away" in repr(writer)

"""`oncesink reconcile`, `forget`, and `purge` of a SQLite ledger: what they do, say and refuse."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from oncesink.connectors import (
    ALREADY,
    CallableSink,
    LRUCache,
    MemoryCache,
    MemoryLedger,
    RedisCache,
    RedisLedger,
    SQLiteLedger,
    SQLiteTable,
)
from oncesink.connectors.clock import ManualClock
from oncesink.connectors.contract import Answer, Claim, Scope, Use, Write
from oncesink.connectors.errors import Unavailable
from oncesink.connectors.faults import Crash, Fault, Faults
from oncesink.connectors.faulty import FaultyLedger, FaultySink
from oncesink.connectors.memory import memory_store
from oncesink.pipelines.cli import main
from oncesink.pipelines.jobs import Job
from oncesink.pipelines.reconcile import reconcile
from oncesink.transforms import Fields, Gate, OnceWriter, Reconciler, SourcePosition
from oncesink.transforms.gate import drop_scope
from oncesink.transforms.results import Results
from oncesink.transforms.retry import Immediately
from oncesink.transforms.session import GateSession

HERE = __name__
SENT: dict[str, Any] = {}
PLACE: dict[str, Any] = {}
"""Where this test's stores are, and what else its jobs are made of."""

Run = Callable[..., tuple[int, list[str], str]]


def send(writes: Sequence[Write]) -> None:
    SENT.update({each.idempotency_key: each.record for each in writes})


def look(writes: Sequence[Write]) -> Sequence[Answer | None]:
    return [ALREADY if each.idempotency_key in SENT else None for each in writes]


MAILS = CallableSink(send, name="mails", probe=look)


def gate(**settings: Any) -> Gate:
    usual: dict[str, Any] = {
        "scope": "mails",
        "key": Fields("id"),
        "occurrence": SourcePosition("s", "offset"),
        "ledger": SQLiteLedger(str(PLACE["folder"] / "once.db"), retention=timedelta(days=7)),
    }
    return Gate(**usual | settings)


def mails() -> tuple[Gate, CallableSink]:
    settings = {"on_replay": "probe", "redrive": "json"}
    return gate(**settings | PLACE["settings"]), MAILS


def only_gate() -> Gate:
    return mails()[0]


def table() -> tuple[Gate, SQLiteTable]:
    return gate(), SQLiteTable(gate().ledger, "t")  # type: ignore[arg-type]


def dropping() -> Gate:
    return gate(**PLACE["settings"])


@pytest.fixture(autouse=True)
def _place(tmp_path: Path) -> None:
    SENT.clear()
    PLACE.clear()
    PLACE.update(folder=tmp_path, settings={})


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Give a function that runs a command in this process."""

    def call(*arguments: str) -> tuple[int, list[str], str]:
        capsys.readouterr()
        try:
            status = main(arguments)
        except SystemExit as end:
            status = int(end.code or 0)
        out, err = capsys.readouterr()
        return status, out.splitlines(), err

    return call


def record(key: str, at: int = 0) -> dict[str, Any]:
    return {"id": key, "offset": at}


def left_open(*records: Any, fault: Fault = Fault.CRASH_BEFORE) -> None:
    """Let a writer die in the sink's call, long ago."""
    one, sink = mails()
    with pytest.raises(Crash), OnceWriter(one, FaultySink(sink, Faults.at({("sink", "write", 1): fault}))) as writer:
        writer.write(records)
    with closing(sqlite3.connect(PLACE["folder"] / "once.db")) as connection:
        connection.execute("UPDATE oncesink_ledger SET lease_until=lease_until - 60000000 WHERE state=0")
        connection.commit()


def settled(run: Run, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Run the command; return what its last line says, and all that it says."""
    status, out, err = run("reconcile", *arguments)
    return status, json.loads(out[-1]), "\n".join(out) + err


class TestReconcile:
    """The command."""

    def test_it_settles_and_reports(self, run: Run) -> None:
        """A table for people, one line for programs; 0 when nobody has to do anything."""
        left_open(record("A"), fault=Fault.CRASH_AFTER)
        left_open(record("B"))
        status, told, text = settled(run, "--gate", f"{HERE}:mails")
        assert (status, told["listed"], told["there"], told["written"]) == (0, 2, 1, 1)
        assert "finished" in text
        assert len(SENT) == 2
        with OnceWriter(*mails()) as writer:
            assert len(writer.write([record("A"), record("B")]).written) == 2

    def test_gate_and_sink_may_stand_apart(self, run: Run) -> None:
        """As in a job's own module."""
        left_open(record("A"))
        assert settled(run, "--gate", f"{HERE}:only_gate", "--sink", f"{HERE}:MAILS")[1]["written"] == 1

    def test_what_is_left_makes_the_exit_status(self, run: Run) -> None:
        """So that a scheduler tells somebody, with the keys."""
        PLACE["settings"] = {"redrive": None}
        left_open(record("A"))
        status, told, text = settled(run, "--gate", f"{HERE}:mails")
        assert (status, told["missing"]) == (1, 1)
        assert told["keys"][0][0] in text
        assert "send them again" in text

    def test_a_dry_run_changes_nothing(self, run: Run) -> None:
        """It counts what would be asked."""
        left_open(record("A"), record("B"))
        status, told, _ = settled(run, "--gate", f"{HERE}:mails", "--dry-run")
        assert (status, told) == (0, {"would_write": 0, "would_probe": 2, "would_park": 0})
        assert SENT == {}
        assert settled(run, "--gate", f"{HERE}:mails")[1]["written"] == 2

    def test_a_dry_run_says_that_nothing_is_open(self, run: Run) -> None:
        """In words, and as JSON in the last line."""
        status, out, _ = run("reconcile", "--gate", f"{HERE}:mails", "--dry-run")
        assert (status, out[0]) == (0, "no open row of scope 'mails' has its lease and grace over")
        assert json.loads(out[-1]) == {"would_write": 0, "would_probe": 0, "would_park": 0}

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("--gate", f"{HERE}:dropping"), "name its sink too"),
            (("--gate", f"{HERE}:table"), "never in doubt"),
            (("--gate", f"{HERE}:mails", "--once", "--every", "2m"), "--every goes on and on"),
            (("--gate", f"{HERE}:mails", "--metrics-port", "9400"), "--metrics-port is for --every"),
            (("--gate", f"{HERE}:mails", "--every", "often"), "a duration looks like"),
            (("--gate", "no.such.module:gate"), "there is no module"),
        ],
    )
    def test_what_cannot_work_is_one_line(self, run: Run, arguments: tuple[str, ...], said: str) -> None:
        """Exit status 2, before anything is touched."""
        status, out, err = run("reconcile", *arguments)
        assert (status, out) == (2, [])
        assert said in err
        assert err.count("oncesink: ") == 1

    def test_writing_again_needs_what_to_write(self, run: Run) -> None:
        """Said at the start, not at the first row."""
        PLACE["settings"] = {"redrive": None, "on_replay": "write"}
        status, _, err = run("reconcile", "--gate", f"{HERE}:mails")
        assert status == 2
        assert "redrive='json'" in err

    def test_every_goes_on_through_a_ledger_that_is_away(self, capsys: pytest.CaptureFixture[str]) -> None:
        """A pass that cannot be made is told; the next one comes when its time has come."""
        clock = ManualClock()
        memory_store("passes").clock = clock
        faults = Faults.at({("ledger", "count_open", 1): Fault.REFUSE})
        ledger = FaultyLedger(MemoryLedger("passes"), faults)
        PLACE["settings"] = {"ledger": ledger}
        job = Job(gate=mails()[0], sink=MAILS)
        start = partial(impatient, clock)
        assert reconcile(job, every=timedelta(minutes=2), clock=clock, passes=3, start=start) == 0
        out, err = capsys.readouterr()
        assert "the pass was given up" in err
        assert sum(line.startswith("{") for line in out.splitlines()) == 2
        assert clock.now == 240.0

    def test_once_does_not_hide_a_ledger_that_is_away(self) -> None:
        """Exit status 2 by the error that comes through."""
        ledger = FaultyLedger(MemoryLedger("away"), Faults(lambda call: Fault.REFUSE if call.verb != "open" else None))
        PLACE["settings"] = {"ledger": ledger}
        with pytest.raises(Unavailable):
            reconcile(Job(gate=mails()[0], sink=MAILS), start=partial(impatient, ManualClock()))


def impatient(clock: ManualClock, job: Job) -> Reconciler:
    """Make a reconciler that tries each call once."""
    assert job.sink is not None
    return Reconciler(job.gate, job.sink, clock=clock, attempts=Immediately(1))


def passed(*records: Any) -> Results:
    """Take records through the filter."""
    results = Results()
    with closing(GateSession(dropping(), None)) as session:
        items: Any = [session.prepare(each) for each in records]
        results.collect([outcome for _, outcome in session.flush(items, None).settled])
    return results


class TestForget:
    """A key that passed, and was dropped for good behind the filter, passes once more."""

    @pytest.mark.parametrize("ledger", ["sqlite", "redis"])
    def test_the_row_goes_and_the_key_passes_again(self, run: Run, ledger: str, request: Any) -> None:
        """The others stay; again is harmless until it has passed."""
        if ledger == "redis":
            url = request.getfixturevalue("redis_url")
            PLACE["settings"] = {"ledger": RedisLedger(url, retention=timedelta(days=1))}
        assert len(passed(record("A"), record("B")).passed) == 2
        assert len(passed(record("A", 1), record("B", 1)).duplicates) == 2
        for rows in (1, 0):
            status, out, _ = run("forget", "--gate", f"{HERE}:dropping", "--record", '{"id": "A"}')
            assert status == 0
            assert json.loads(out[-1]) == {"keys": 1, "rows": rows, "entries": 0, "caches_forget_by": None}
        again = passed(record("A", 2), record("B", 2))
        assert [each.record["id"] for each in again.passed] == ["A"]
        assert [each.record["id"] for each in again.duplicates] == ["B"]

    def test_keys_come_by_file_and_by_digest(self, run: Run, tmp_path: Path) -> None:
        """Each once; those that nobody knows are told."""
        passed(record("A"), record("B"), record("C"))
        status, out, _ = run("forget", "--gate", f"{HERE}:dropping", "--record", '{"id": "A"}')
        digest = out[0].partition(":")[0]
        lines = tmp_path / "keys.jsonl"
        lines.write_text('{"id": "B"}\n\n{"id": "A", "offset": 9}\n')
        status, out, _ = run("forget", "--gate", f"{HERE}:dropping", "--records", str(lines), "--digest", digest)
        assert (status, json.loads(out[-1])["rows"]) == (0, 1)
        assert sorted(line.partition(": ")[2] for line in out[:2]) == ["forgotten", "was not known"]

    def test_the_cache_forgets_after_the_ledger(self, run: Run, redis_url: str) -> None:
        """An entry that went first could be put back by whoever finds the row. How long others may last is told."""
        PLACE["settings"] = {"cache": RedisCache(redis_url, ttl=timedelta(hours=1))}
        passed(record("A"))
        status, out, _ = run("forget", "--gate", f"{HERE}:dropping", "--record", '{"id": "A"}')
        told = json.loads(out[-1])
        assert (status, told["rows"], told["entries"]) == (0, 1, 1)
        assert told["caches_forget_by"] in out[-2]
        assert len(passed(record("A", 1)).passed) == 1

    def test_a_cache_that_is_away_is_told(self, run: Run) -> None:
        """The row is gone; running it again is right."""
        passed(record("A"))
        PLACE["settings"] = {"cache": RedisCache("redis://127.0.0.1:1/0", ttl=timedelta(hours=1))}
        status, _, err = run("forget", "--gate", f"{HERE}:dropping", "--record", '{"id": "A"}')
        assert status == 2
        assert "run it again" in err

    @pytest.mark.parametrize(
        "cache", [LRUCache(ttl=timedelta(hours=1), entries=9), MemoryCache(ttl=timedelta(hours=1))]
    )
    def test_a_cache_in_another_process_is_waited_out(self, run: Run, cache: Any) -> None:
        """It cannot be reached: the time is said by which the last entry has ended."""
        PLACE["settings"] = {"cache": cache}
        _, out, _ = run("forget", "--gate", f"{HERE}:dropping", "--record", '{"id": "A"}')
        assert "by 20" in out[-2]

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("--gate", f"{HERE}:mails", "--record", '{"id": 1}'), "writes it a second time"),
            (("--gate", f"{HERE}:dropping"), "name a key"),
            (("--gate", f"{HERE}:dropping", "--digest", "00"), "32 hexadecimal digits"),
            (("--gate", f"{HERE}:dropping", "--digest", "no"), "32 hexadecimal digits"),
            (("--gate", f"{HERE}:dropping", "--record", "[]"), "JSON object"),
            (("--gate", f"{HERE}:dropping", "--record", "{}"), "no_key"),
            (("--gate", f"{HERE}:dropping", "--records", "/no/such/file"), "cannot read"),
        ],
    )
    def test_what_cannot_be_meant_is_one_line(self, run: Run, arguments: tuple[str, ...], said: str) -> None:
        """Exit status 2."""
        status, _, err = run("forget", *arguments)
        assert status == 2
        assert said in err

    def test_its_scope_and_generation_are_the_jobs(self, run: Run) -> None:
        """A gate that is behind is refused, as its job would be."""
        with closing(gate(generation=2).ledger.open(drop_scope(gate(generation=2)))):  # type: ignore[union-attr]
            pass
        status, _, err = run("forget", "--gate", f"{HERE}:dropping", "--record", '{"id": "A"}')
        assert status == 2
        assert "generation" in err


class TestPurgeOfSQLite:
    """As that of MySQL."""

    def test_what_is_old_goes_and_the_rest_stays(self, run: Run, tmp_path: Path) -> None:
        """Finished rows page by page; an open one is told of, with the command that settles it."""
        url = f"sqlite:///{tmp_path}/once.db"
        ledger = SQLiteLedger(url, retention=timedelta(days=7))
        with closing(ledger.open(Scope(name="orders", use=Use.WRITE))) as session:
            old = [Claim(number.to_bytes(16, "big"), None, None) for number in range(2500)]
            session.claim(old[:2498], owner=b"o" * 16, lease_seconds=None)
            session.claim(old[2498:], owner=b"o" * 16, lease_seconds=1.0)
            days = "- 9 * 86400000000"
            session.connection.execute(
                f"UPDATE oncesink_ledger SET created_at=created_at {days}, finished_at=finished_at {days}, "
                f"lease_until=lease_until {days}"
            )
            session.claim([Claim(b"n" * 16, None, None)], owner=b"o" * 16, lease_seconds=None)
        status, out, _ = run("purge", "--ledger", url, "--older-than", "8d")
        assert status == 0
        assert "2498 finished rows deleted" in out[0]
        assert "2 open rows" in out[1]
        assert "oncesink reconcile" in out[1]
        with closing(ledger.open(Scope(name="orders", use=Use.WRITE))) as session:
            assert set(session.read([b"n" * 16, *[each.digest for each in old]])) == {
                b"n" * 16,
                *[each.digest for each in old[2498:]],
            }

    @pytest.mark.parametrize(
        ("older_than", "table", "said"),
        [
            ("1d", "oncesink_ledger", "older_than=1d is below what scopes keep: orders (7d)\n"),
            ("8d", "another", "holds no ledger"),
        ],
    )
    def test_it_refuses_what_it_should_not_do(
        self, run: Run, tmp_path: Path, older_than: str, table: str, said: str
    ) -> None:
        """An age below what a scope keeps, a table that is none."""
        url = f"sqlite:///{tmp_path}/once.db"
        for use in Use:
            SQLiteLedger(url, retention=timedelta(days=7)).open(Scope(name="orders", use=use)).close()
        status, _, err = run("purge", "--ledger", url, "--older-than", older_than, "--table", table)
        assert status == 2
        assert said in err

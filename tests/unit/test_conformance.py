"""The kit for sinks of one's own: each flaw is named as what it is, and good sinks come out clean."""

from __future__ import annotations

import itertools
import json
import pickle
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from oncesink.connectors import ALREADY, WRITTEN, Answer, CallableSink, Outcome, Write
from oncesink.connectors.conformance import Finding, Flaw, Report, examine
from oncesink.connectors.contract import SinkKind
from oncesink.connectors.errors import Misconfigured
from oncesink.connectors.memory import MemoryLedger, forget_all
from oncesink.connectors.memory_sinks import MemorySink, MemoryTable
from oncesink.connectors.sqlite_ledger import SQLiteLedger
from oncesink.connectors.sqlite_table import SQLiteTable

from tests.unit import bad_sinks
from tests.unit.bad_sinks import FileSession, FileSink

SHORT = timedelta(milliseconds=100)


@pytest.fixture(autouse=True)
def empty_stores() -> None:
    """Begin with nothing in memory."""
    forget_all()
    SENT.clear()


def records() -> Iterator[dict[str, Any]]:
    """Give ever new records."""
    return ({"id": f"r{number}", "amount": number} for number in itertools.count())


def examined(sink: FileSink, **settings: Any) -> Report:
    """Examine a sink over a file."""
    session = FileSession(sink)
    chosen = {"records": records(), "read_back": lambda: [each for _, each in session.lines()], **settings}
    return examine(sink, grace=SHORT, **chosen)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Give a place for a file."""
    return str(tmp_path / "effects")


@pytest.mark.parametrize(
    ("behave", "flaw", "settings"),
    [
        (bad_sinks.half_applies, Flaw.HALF_APPLIES, {}),
        (bad_sinks.lies, Flaw.LIES, {}),
        (bad_sinks.overruns, Flaw.OVERRUNS, {"timeout": SHORT}),
        (bad_sinks.not_concurrent, Flaw.NOT_CONCURRENT, {}),
        (bad_sinks.bare_errors, Flaw.BARE_ERRORS, {}),
        (bad_sinks.truncates_keys, Flaw.TRUNCATES_KEYS, {}),
        (bad_sinks.doubles, Flaw.DOUBLES, {}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_flaw_is_named_as_what_it_is(path: str, behave: Any, flaw: Flaw, settings: dict[str, Any]) -> None:
    """That one and no other, in the values and in the text."""
    report = examined(FileSink(path, behave, **settings), kills=0)
    assert report.flaws == {flaw}
    assert not report.clean
    assert f"FLAW       {flaw.value}: " in str(report)
    assert "behind a gate: none" in str(report)


def test_what_a_killed_process_loses_is_named(path: str) -> None:
    """Its marks stay without their effects, so that nobody writes them any more."""
    report = examined(FileSink(path, bad_sinks.loses), kills=3)
    assert Flaw.LOSES in report.flaws
    assert report.survives is False


@pytest.mark.parametrize("behave", [bad_sinks.good, bad_sinks.unsure])
def test_a_good_sink_comes_out_clean_though_processes_die(path: str, behave: Any) -> None:
    """Everything was tried, and the report says what it found."""
    report = examined(FileSink(path, behave), kills=2, stall=nothing_happens)
    assert report.clean, str(report)
    facts = (report.truthful, report.in_time, report.typed, report.concurrent, report.drops_by_key, report.whole_key)
    assert facts == (True,) * 6
    assert report.survives is True
    assert report.guarantee == "once, for as long as it remembers keys"
    assert "no flaw was found" in str(report)


def nothing_happens() -> AbstractContextManager[None]:
    """Stall nobody."""
    return nullcontext()


def test_memory_sinks_come_out_clean() -> None:
    """The fakes of this library; what another process writes is not to be seen in this one, and is said to be so."""
    for drops in (False, True):
        sink = MemorySink(f"examined {drops}", drops_by_key=drops)
        effects = sink.effects
        report = examine(sink, records=records(), read_back=lambda it=effects: [e.record for e in it], grace=SHORT)  # type: ignore[misc]
        assert report.clean, str(report)
        assert report.drops_by_key is drops
        assert report.whole_key is (True if drops else None)
        assert report.survives is None
        assert "nothing was killed" in str(report)


def test_what_stands_in_the_started_program_has_to_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function of `__main__` cannot be found by the process that is to be killed: what to do is said."""

    def send(record: Any, idempotency_key: str) -> None:
        SENT[idempotency_key] = record

    monkeypatch.setattr(send, "__module__", "__main__")
    monkeypatch.setattr(send, "__qualname__", "send")
    monkeypatch.setattr(sys.modules["__main__"], "send", send, raising=False)
    report = examine(CallableSink.each(send, name="mails"), records=records(), read_back=SENT.values, grace=SHORT)
    assert "put them into a module that it imports (AttributeError: " in str(report)


def test_a_memory_table_comes_out_clean_with_its_ledger() -> None:
    """Claims and rows in one transaction."""
    table = MemoryTable(MemoryLedger("examined"), "rows")
    report = examine(
        table, records=records(), read_back=lambda: [e.record for e in table.effects], grace=SHORT, kills=0
    )
    assert report.clean, str(report)
    assert report.drops_by_key
    assert report.guarantee == "exactly once, together with its ledger"


def test_a_table_in_sqlite_survives_kills(tmp_path: Path) -> None:
    """And a killed call leaves all of its batch or nothing."""
    path = str(tmp_path / "once.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE orders (id TEXT, amount INTEGER)")

    def rows() -> list[dict[str, Any]]:
        with closing(sqlite3.connect(path)) as connection:
            return [{"id": each[0], "amount": each[1]} for each in connection.execute("SELECT id, amount FROM orders")]

    sink = SQLiteTable(SQLiteLedger(path, retention=timedelta(days=1)), "orders")
    report = examine(sink, records=records(), read_back=rows, grace=SHORT, kills=2, bad=[{"nothing": 1}])
    assert report.clean, str(report)
    assert report.all_or_nothing
    assert report.survives


SENT: dict[str, Any] = {}


def send(record: Any, key: str) -> Answer:
    """Send unless it was sent."""
    if key in SENT:
        return ALREADY
    SENT[key] = dict(record)
    return WRITTEN


def send_all(writes: Sequence[Write]) -> Sequence[Answer]:
    """Send a batch; answer for what cannot be sent."""
    return [
        send(each.record, each.idempotency_key)
        if isinstance(each.record, dict)
        else Answer(Outcome.REJECTED, reason="wrong_type")
        for each in writes
    ]


@pytest.mark.parametrize("one_by_one", [True, False])
def test_callables_come_out_clean(*, one_by_one: bool) -> None:
    """Of a record, and of a batch."""
    sink = (
        CallableSink.each(send, name="s", drops_by_key=True)
        if one_by_one
        else CallableSink(send_all, name="s", drops_by_key=True)
    )
    report = examine(sink, records=records(), read_back=lambda: list(SENT.values()), grace=SHORT, kills=0)
    assert report.clean, str(report)
    assert report.drops_by_key


def test_a_sink_that_drops_without_saying_so_is_told_of(path: str) -> None:
    """It could have the better guarantee."""

    class Modest(FileSink):
        kind = SinkKind.EXTERNAL

    report = examined(Modest(path, bad_sinks.good), kills=0)
    assert report.clean
    assert "it seems to drop by key: say so" in str(report)


def test_other_forms_of_effects_are_identified_by_a_function(path: str) -> None:
    """What is read back need not look like a record."""
    sink = FileSink(path, bad_sinks.good)
    session = FileSession(sink)
    report = examined(
        sink,
        kills=0,
        read_back=lambda: [json.dumps(each) for _, each in session.lines()],
        identify=lambda it: (json.loads(it) if isinstance(it, str) else it)["id"],
    )
    assert report.clean, str(report)


@pytest.mark.parametrize(
    ("some", "match"), [([{"id": 1}, {"id": 2}], "2 records are too few"), ([{"id": 1}] * 2, "are taken for one")]
)
def test_records_that_do_not_suffice_are_said_so(path: str, some: Any, match: str) -> None:
    """With a way to make enough."""
    with pytest.raises(Misconfigured, match=rf"{match}.*itertools\.count"):
        examined(FileSink(path, bad_sinks.good), records=some)


def test_a_sink_that_does_not_work_at_all_is_tried_no_further(path: str) -> None:
    """The first trial says why."""
    report = examined(FileSink(path, bad_sinks.bare_errors), records=({"no id": n} for n in itertools.count()))
    assert report.flaws == {Flaw.BARE_ERRORS}
    assert "tried no further" in str(report)


def test_reports_travel() -> None:
    """Values that may be kept and compared."""
    finding = Finding(flaw=Flaw.LIES, trial="t", what="w")
    report = Report(target="t", kind=SinkKind.EXTERNAL, findings=(finding,))
    assert pickle.loads(pickle.dumps(report)) == report

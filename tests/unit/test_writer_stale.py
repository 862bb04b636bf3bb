"""A sink that answers STALE: the record stands on `written`, marked, on every way through the gate."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from oncesink.connectors import (
    STALE,
    WRITTEN,
    Answer,
    CallableSink,
    Fault,
    Faults,
    FaultyLedger,
    SQLiteLedger,
    SQLiteTable,
    Versioned,
    Write,
)
from oncesink.transforms import Counts, Fields, Gate, OnceWriter, SourcePosition
from oncesink.transforms.retry import Immediately

from tests.unit.scene import Kind, Scene, record


def answers_stale(writes: Sequence[Write]) -> Sequence[Answer]:
    """Answer what is marked as old with STALE."""
    return [STALE if each.record.get("old") else WRITTEN for each in writes]


def stale_after_a_probe(writes: Sequence[Write]) -> Sequence[Answer | None]:
    """Find a newer version for each record."""
    return [STALE for _ in writes]


def callable_scene(kind: Kind) -> Scene:
    """Write to a function."""

    def make(name: str) -> CallableSink:
        return CallableSink(answers_stale, name=name, drops_by_key=kind == "drops_by_key", probe=stale_after_a_probe)

    return Scene(kind, make_sink=make)


@pytest.mark.parametrize("kind", ["drops_by_key", "external"])
def test_it_is_written_and_marked_and_counted_apart(kind: Kind) -> None:
    """Its row is finished: a replay is a replay, a second send a duplicate. It counts as no effect."""
    scene = callable_scene(kind)
    results = scene.write(record("a", 0, old=1), record("b", 1), record("a", 0, old=1), record("a", 2, old=1))
    told = [(each.record["id"], each.replayed, each.stale) for each in results.written]
    assert told == [("a", False, True), ("a", True, True), ("b", False, False)]
    assert len(results.duplicates) == 1
    assert [scene.counts[name] for name in ("written", "stale", "replayed")] == [1, 1, 1]
    assert [each.replayed for each in scene.write(record("a", 0, old=1)).written] == [True]
    assert scene.open_rows == 0


def test_a_probe_may_find_a_newer_version() -> None:
    """Then the record in doubt has no effect either, and is finished as stale."""
    scene = callable_scene("external")
    scene.on("sink", "write", Fault.CRASH_AFTER).dies(record("a", 0))
    scene.clock.sleep(100)
    results = scene.write(record("a", 0))
    assert [(each.replayed, each.stale) for each in results.written] == [(False, True)]
    assert scene.open_rows == 0


def test_the_mark_survives_a_commit_whose_answer_was_lost(tmp_path: Path) -> None:
    """The attempt that committed knew what was stale; the one that finds its rows says the same."""
    path = str(tmp_path / "once.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (id TEXT PRIMARY KEY NOT NULL, version INTEGER NOT NULL)")
    ledger = SQLiteLedger(path, retention=timedelta(days=1))
    columns = {"id": "id", "version": "version"}
    table = SQLiteTable(ledger, "t", columns=columns, unique=("id",), versioned=Versioned(by="version"))
    faults = Faults.at({("ledger", "commit", 1): Fault.LOSE_REPLY})
    gate = Gate(
        scope="t",
        key=Fields("id", "version"),
        occurrence=SourcePosition("s", "offset"),
        ledger=FaultyLedger(ledger, faults),
    )
    counts = Counts()
    with OnceWriter(gate, table, attempts=Immediately(3), metrics=counts) as writer:
        results = writer.write([record("a", offset, version=version) for offset, version in enumerate((2, 1))])
    assert [(each.record["version"], each.replayed, each.stale) for each in results.written] == [
        (2, False, False),
        (1, False, True),
    ]
    assert (counts["written"], counts["stale"], counts["retries"]) == (1, 1, 1)

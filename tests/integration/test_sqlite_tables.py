"""Tables in SQLite that others made, or write as well: what they do in silence is not taken for an effect."""

from __future__ import annotations

import sqlite3
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from oncesink.connectors import SQLiteLedger, SQLiteTable, Versioned
from oncesink.transforms import Fields, Gate, OnceWriter, Results, SourcePosition

DAY = timedelta(days=1)


def write(path: Path, script: str, *records: dict[str, Any], **settings: Any) -> tuple[Results, list[Any]]:
    """Make tables by a script and write records once; return the results, and the rows of the table `t`."""
    with sqlite3.connect(path) as connection:
        connection.executescript(script)
    ledger = SQLiteLedger(str(path), retention=DAY)
    key = Fields("id", "at") if settings else Fields("id", "n")
    gate = Gate(scope="s", key=key, occurrence=SourcePosition("s", "n"), ledger=ledger, rejected="output")
    with OnceWriter(gate, SQLiteTable(ledger, "t", **settings)) as writer:
        results = writer.write(records)
    with sqlite3.connect(path) as connection:
        return results, connection.execute("SELECT * FROM t ORDER BY 1, 2").fetchall()


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TABLE t (id INTEGER PRIMARY KEY ON CONFLICT IGNORE, n)",
        "CREATE TABLE t (id, n); CREATE TRIGGER i BEFORE INSERT ON t WHEN new.n = 2 BEGIN SELECT RAISE(IGNORE); END",
    ],
)
def test_a_row_that_the_table_ignores_is_rejected(tmp_path: Path, script: str) -> None:
    """Else its ledger would call finished what is not there."""
    results, rows = write(tmp_path / "db", script, *({"id": min(n, 1), "n": n} for n in range(3)))
    assert rows == [(0, 0), (1, 1)]
    assert len(results.written) == 2
    assert [(each.reason, each.record["n"]) for each in results.rejected] == [("refused", 2)]
    assert "without a word" in results.rejected[0].detail


def test_a_view_takes_rows_by_its_triggers(tmp_path: Path) -> None:
    """SQLite counts none of them."""
    script = """
        CREATE TABLE u (id, n); CREATE VIEW t AS SELECT * FROM u;
        CREATE TRIGGER i INSTEAD OF INSERT ON t BEGIN INSERT INTO u VALUES (new.id, new.n); END
    """
    results, rows = write(tmp_path / "db", script, {"id": 1, "n": 1}, {"id": 2, "n": 2})
    assert (len(results.written), rows) == (2, [(1, 1), (2, 2)])


def test_a_version_that_others_wrote_with_a_t_is_compared_as_a_time(tmp_path: Path) -> None:
    """As ISO 8601 has it: as text it would be above any later time of its day, and updates would be lost as stale."""
    script = """
        CREATE TABLE t (id INTEGER PRIMARY KEY, at TEXT NOT NULL, n INTEGER);
        INSERT INTO t VALUES (1, '2026-01-01T09:00:00', 0), (2, '2026-01-01T09:00:00', 0);
    """
    columns = {"id": "id", "at": "at", "n": "n"}
    noon, early = datetime(2026, 1, 1, 12, tzinfo=timezone.utc), datetime(2026, 1, 1, 8, tzinfo=timezone.utc)
    results, rows = write(
        tmp_path / "db",
        script,
        {"id": 1, "at": noon, "n": 1},
        {"id": 2, "at": early, "n": 2},
        columns=columns,
        unique=("id",),
        versioned=Versioned(by="at"),
    )
    assert [each.stale for each in results.written] == [False, True]
    assert rows == [(1, "2026-01-01 12:00:00", 1), (2, "2026-01-01T09:00:00", 0)]

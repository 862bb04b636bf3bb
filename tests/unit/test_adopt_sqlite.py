"""Backfill and rebuild where everything is in one SQLite file."""

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from oncesink.connectors import MemoryLedger, RedisLedger, SQLiteLedger, SQLiteTable
from oncesink.connectors.contract import Ledger
from oncesink.connectors.errors import Misconfigured, Unavailable
from oncesink.pipelines.backfill import backfill
from oncesink.pipelines.cli import main
from oncesink.pipelines.jobs import Job
from oncesink.pipelines.key_pages import KeyPages
from oncesink.pipelines.rebuild import rebuild
from oncesink.pipelines.table_records import source_of
from oncesink.transforms import Bloom, Counts, Fields, Gate, OnceWriter, SourcePosition
from oncesink.transforms.membership.stored import load_filters

BLOOM = Bloom(capacity=1000, error_rate=0.0001)
ROWS = 300


def job(folder: Path, ledger: Ledger | None = None, **changes: object) -> Job:
    """Return a job on a file with a table of orders."""
    own = SQLiteLedger(str(folder / "once.db"), retention=timedelta(days=7))
    settings: dict[str, object] = {
        "scope": "orders",
        "key": Fields("order_id"),
        "occurrence": SourcePosition("orders/1", "offset"),
        "ledger": own if ledger is None else ledger,
        "membership": BLOOM,
        "shards": 2,
    }
    return Job(gate=Gate(**{**settings, **changes}), sink=None if ledger else SQLiteTable(own, "orders"))  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with the file, and 300 orders in it, some with gaps between their ids."""
    with closing(sqlite3.connect(tmp_path / "once.db")) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, order_id TEXT, offset INTEGER)")
        rows = [(number * number, f"A-{number}", number) for number in range(ROWS)]
        connection.executemany("INSERT INTO orders VALUES (?, ?, ?)", rows)
        connection.commit()
    return tmp_path


def test_backfill_then_rebuild_then_write(folder: Path) -> None:
    """Each key is finished, in the stored filter, and a duplicate for the writer that begins with it."""
    own = job(folder)
    source = source_of("orders", ["order_id"], id_column="id", where=None, at=own.gate.ledger)
    done = backfill(own, source, progress=folder / "progress.json", page_rows=70)
    assert (done.inserted, done.already, done.refused) == (ROWS, 0, 0)
    found = rebuild(own, str(folder / "filters"), shards=1, page_rows=70, checkpoint=timedelta(0))
    assert found.manifest.keys == ROWS
    counts = Counts()
    live = job(folder, start_from=str(folder / "filters"))
    assert live.sink is not None
    with OnceWriter(live.gate, live.sink, metrics=counts) as writer:
        result = writer.write([{"order_id": f"A-{number}", "offset": number} for number in range(ROWS + 1)])
    assert (len(result.duplicates), len(result.written)) == (ROWS, 1)
    assert (counts["filter_positive"], counts["filter_negative"]) == (ROWS, 1)


def test_rows_of_other_scopes_and_old_ones_are_left_out(folder: Path) -> None:
    """By scope, generation and age."""
    source = source_of("orders", ["order_id"], id_column="id", where="id < 100", at=job(folder).gate.ledger)
    for each in (job(folder), job(folder, scope="others"), job(folder, generation=2)):
        backfill(each, source, progress=folder / "progress.json")
    own = job(folder)
    assert rebuild(own, str(folder / "a")).manifest.keys == 10
    with closing(sqlite3.connect(folder / "once.db")) as connection:
        connection.execute("UPDATE oncesink_ledger SET created_at = created_at - 7200000000 WHERE id % 2 = 0")
        connection.commit()
    assert rebuild(own, str(folder / "b"), since=timedelta(hours=1)).manifest.keys == 5
    assert rebuild(own, str(folder / "c"), since=timedelta(hours=3)).manifest.keys == 10


def test_a_place_that_cannot_be_written_is_told_before_anything_is_read(folder: Path, monkeypatch: Any) -> None:
    """Not after half an hour, at the first checkpoint."""
    monkeypatch.setattr(KeyPages, "after", lambda *_: pytest.fail("it read on"))
    for place in (folder / "once.db" / "filters", Path("/proc/filters")):
        with pytest.raises(Unavailable, match=str(place)):
            rebuild(job(folder), str(place))


def test_an_empty_ledger_gives_empty_filters(folder: Path) -> None:
    """Workers may begin with them."""
    own = job(folder)
    assert isinstance(own.gate.ledger, SQLiteLedger)
    own.gate.ledger.open(own.scope).close()
    assert rebuild(own, str(folder / "filters")).manifest.keys == 0
    live = load_filters(str(folder / "filters"), BLOOM, scope="orders", generation=1, shards=2)
    assert [each.occupancy().set_bits for each in live] == [0, 0]


@pytest.mark.parametrize("ledger", [MemoryLedger(), RedisLedger("redis://nowhere", retention=timedelta(days=1))])
def test_a_ledger_without_ids_is_refused(folder: Path, ledger: Ledger) -> None:
    """It could not be read by pages; a table elsewhere can."""
    with pytest.raises(Misconfigured, match="built from a ledger in MySQL or SQLite"):
        rebuild(job(folder, ledger), str(folder / "filters"))


def test_without_a_filter_there_is_nothing_to_build(folder: Path) -> None:
    """Said before anything is read."""
    with pytest.raises(Misconfigured, match="no filter to store"):
        rebuild(job(folder, membership=None), str(folder / "filters"))


def mistaken() -> Gate:
    """Return a gate of records whose key is in another field than the table's column is named after."""
    return job(Path(), ledger=SQLiteLedger("once.db", retention=timedelta(days=7)), key=Fields("order")).gate


@pytest.mark.parametrize("command", [("backfill", "--table"), ("rebuild", "--to", "filters", "--from-table")])
def test_a_table_of_which_no_row_has_a_key_is_no_success(
    command: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 1, with the reason of the first row: a column has to have the field's name."""
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as end:
        main([*command, "orders", "--gate", f"{__name__}:mistaken", "--column", "order_id"])
    assert end.value.code == 1
    assert (
        f"{ROWS} rows have no key and are left out, the first for no_key: no value at order" in capsys.readouterr().out
    )

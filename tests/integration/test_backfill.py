"""`oncesink backfill`, and the whole way of adopting on a live system: observe, backfill, switch on."""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from oncesink.connectors import MySQLTable
from oncesink.connectors.errors import Misconfigured
from oncesink.connectors.mysql_connection import MySQLConnection
from oncesink.pipelines.backfill import Backfilled, backfill
from oncesink.pipelines.jobs import Job
from oncesink.pipelines.table_records import source_of
from oncesink.transforms import ByStamp, Counts, Fields, Gate, OnceWriter, SourcePosition
from oncesink.transforms.prepare import Item, Preparer

from tests.conftest import MySQLDatabase
from tests.integration.adopted import command, execute, killed, ledger_of, write_job

ROWS = 5000
PROGRESS = "oncesink-backfill-orders.json"


@pytest.fixture
def database(mysql_database: MySQLDatabase, tmp_path: Path) -> MySQLDatabase:
    """Give a database with an empty ledger and a table with orders 1 to 5,000, and the job beside it."""
    ledger_of(mysql_database).create_tables()
    rows = ",".join(f"({number},{number % 90})" for number in range(1, ROWS + 1))
    execute(
        mysql_database,
        "CREATE TABLE orders (id BIGINT AUTO_INCREMENT PRIMARY KEY, order_id BIGINT NOT NULL, amount INT NOT NULL)",
        f"INSERT INTO orders (order_id, amount) VALUES {rows}",
    )
    write_job(tmp_path, mysql_database)
    return mysql_database


def job(database: MySQLDatabase, **changes: Any) -> Job:
    """Return the job, as `job.py` has it, with changes to its gate."""
    ledger = ledger_of(database)
    gate = Gate(scope="orders", key=Fields("order_id"), occurrence=SourcePosition("orders/1", "offset"), ledger=ledger)
    table = MySQLTable(ledger, "orders", columns={"order_id": "order_id", "amount": "amount"})
    return Job(gate=replace(gate, **changes), sink=table)


def fill(database: MySQLDatabase, folder: Path, *columns: str, **options: Any) -> Backfilled:
    """Run a backfill in this process."""
    own = options.pop("job", None) or job(database)
    source = source_of(
        "orders", columns or ("order_id",), id_column="id", where=options.pop("where", None), at=own.gate.ledger
    )
    return backfill(own, source, progress=folder / "progress.json", **options)


def order(number: int, at: int = 0, amount: int | None = None) -> dict[str, int]:
    """Return an order as it arrives."""
    return {"order_id": number, "amount": number % 90 if amount is None else amount, "offset": at}


def count(database: MySQLDatabase, sql: str) -> int:
    with closing(MySQLConnection(ledger_of(database).server)) as connection:
        return int(connection.query(f"SELECT COUNT(*) FROM {sql}")[0][0])


def ids(outcomes: list[Any]) -> list[int]:
    return [each.record["order_id"] for each in outcomes]


def test_what_is_there_is_not_written_again(database: MySQLDatabase, tmp_path: Path) -> None:
    """Each key gets a finished row under the digest that the job makes of it."""
    assert fill(database, tmp_path) == Backfilled(inserted=ROWS, already=0, refused=0, resumed_after=None)
    own = job(database)
    assert own.sink is not None
    with OnceWriter(own.gate, own.sink) as writer:
        found = writer.write([order(1), order(ROWS), order(17, amount=5), order(ROWS + 1)])
    assert (ids(found.written), sorted(ids(found.duplicates))) == ([ROWS + 1], [1, 17, ROWS])
    assert count(database, "orders") == ROWS + 1
    assert count(database, "oncesink_ledger WHERE state=1") == ROWS + 1


def test_a_killed_run_goes_on_and_a_second_one_changes_nothing(database: MySQLDatabase, tmp_path: Path) -> None:
    """SIGKILL in the middle: no key is missing, none has two rows, and little is done again."""
    arguments = ("backfill", "--gate", "job:gate", "--sink", "job:table", "--table", "orders", "--column", "order_id")
    killed(tmp_path, database, *arguments, "--page-rows", "200", when=lambda: progress(tmp_path) > 1000)
    reached = progress(tmp_path)
    done = command(tmp_path, database, *arguments)
    assert done.returncode == 0, done.stderr
    assert f"went on after id {reached}" in done.stdout
    assert count(database, "oncesink_ledger WHERE state=1") == ROWS
    assert not (tmp_path / PROGRESS).exists()
    again = command(tmp_path, database, *arguments)
    assert f"0 keys are finished now, {ROWS} had a row already" in again.stdout
    assert count(database, "oncesink_ledger") == ROWS


def progress(folder: Path) -> int:
    """Return the id up to which a run has come."""
    file = folder / PROGRESS
    return int(json.loads(file.read_bytes())["last_id"]) if file.exists() else 0


def test_adopting_on_a_live_system(database: MySQLDatabase, tmp_path: Path) -> None:
    """Observe while everything is written as before, backfill what is older, switch on: nothing is lost or doubled."""
    watching = job(database, observe=True, rejected="output")
    assert watching.sink is not None
    counts = Counts()
    with OnceWriter(watching.gate, watching.sink, metrics=counts) as writer:
        live = [order(ROWS + 1, 1), order(ROWS + 2, 2), order(ROWS + 1, 3), order(7, 4)]
        assert sorted(ids(writer.write(live).written)) == [7, ROWS + 1, ROWS + 1, ROWS + 2]
    assert counts["would_drop"] == 1
    assert count(database, "orders") == ROWS + 4
    done = fill(database, tmp_path)
    assert (done.inserted, done.already) == (ROWS - 1, 3)
    with OnceWriter(job(database).gate, watching.sink) as writer:
        found = writer.write([order(ROWS + 1, 1), order(ROWS + 2, 9), order(8, 10), order(ROWS + 3, 11)])
    replayed = {each.record["order_id"]: each.replayed for each in found.written}
    assert replayed == {ROWS + 3: False, ROWS + 1: True}
    assert sorted(ids(found.duplicates)) == [8, ROWS + 2]
    assert count(database, "orders") == ROWS + 5


def test_columns_that_hold_the_position_make_replays_of_replays(database: MySQLDatabase, tmp_path: Path) -> None:
    """With the occurrence a job may begin before the backfill: it finds its own deliveries."""
    fill(database, tmp_path, "order_id", "offset=id + 100", occurrence=True, where="id <= 10")
    own = job(database)
    assert own.sink is not None
    with OnceWriter(own.gate, own.sink) as writer:
        found = writer.write([order(3, 103), order(4, 200)])
    assert [(each.record["order_id"], each.replayed) for each in found.written] == [(3, True)]
    assert ids(found.duplicates) == [4]


def test_rows_that_are_open_stay_with_their_owner(database: MySQLDatabase, tmp_path: Path) -> None:
    """A live claim is not finished by somebody else."""
    execute(
        database,
        "INSERT INTO oncesink_ledger (digest,scope,generation,state,owner,lease_until,created_at) VALUES "
        f"(x'{digest(database, 5)}',x'{b'orders'.hex()}',1,0,x'{bytes(16).hex()}',UTC_TIMESTAMP(6)+INTERVAL 1 HOUR,"
        "UTC_TIMESTAMP(6))",
    )
    assert fill(database, tmp_path).already == 1
    assert count(database, "oncesink_ledger WHERE state=0") == 1


def digest(database: MySQLDatabase, number: int) -> str:
    """Return the digest of an order, in hexadecimal, as the writer makes it."""
    own = job(database)
    item = Preparer(own.gate, own.scope)(order(number))
    assert isinstance(item, Item)
    return item.claim.digest.hex()


def test_equal_keys_in_a_table_get_one_row(database: MySQLDatabase, tmp_path: Path) -> None:
    """The table may hold doubles: that is why somebody adopts a gate."""
    execute(database, "INSERT INTO orders (order_id, amount) VALUES (1, 1), (1, 2), (2, 3)")
    fill(database, tmp_path, page_rows=700)
    assert count(database, "oncesink_ledger") == ROWS


def test_rows_without_a_key_are_counted(database: MySQLDatabase, tmp_path: Path) -> None:
    """They are left out, and the rest goes in."""
    done = fill(database, tmp_path, "order_id=IF(order_id <= 3, NULL, order_id)")
    assert (done.inserted, done.refused) == (ROWS - 3, 3)


def test_a_progress_file_of_another_walk_is_refused(database: MySQLDatabase, tmp_path: Path) -> None:
    """Going on from its id would leave keys out."""
    (tmp_path / "progress.json").write_text(json.dumps({"walk": "another", "last_id": 4000}))
    with pytest.raises(Misconfigured, match="of another walk"):
        fill(database, tmp_path)
    (tmp_path / "progress.json").write_text("{")
    with pytest.raises(Misconfigured, match="remove it"):
        fill(database, tmp_path)


def test_stamps_are_not_in_tables(database: MySQLDatabase, tmp_path: Path) -> None:
    """Where occurrences are drawn anew nothing in a table could be one."""
    own = job(database, occurrence=ByStamp())
    with pytest.raises(Misconfigured, match="a table holds no occurrences"):
        fill(database, tmp_path, job=own, occurrence=True)


def test_options_that_name_nothing_are_refused_in_one_line(database: MySQLDatabase, tmp_path: Path) -> None:
    """No column, no table of that name: one line, and status 2."""
    base = ("backfill", "--gate", "job:gate", "--sink", "job:table", "--table")
    for arguments, message in (
        (("orders",), "name the columns"),
        (("nothing", "--column", "order_id"), "nothing"),
        (("orders", "--column", "no_such"), "no_such"),
    ):
        done = command(tmp_path, database, *base, *arguments)
        assert done.returncode == 2
        assert message in done.stderr
        assert "Traceback" not in done.stderr

"""The job to copy, on a real cluster: submitted from a wheel, a worker killed, stopped with a savepoint, rescaled."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyflink", reason="PyFlink is not installed here: make setup puts it into .venv-flink")

from oncesink.connectors.mysql_ledger import MySQLLedger
from oncesink.connectors.secret import Secret
from oncesink.pipelines.flink_jsonl_to_mysql import RETENTION

from tests.conftest import MySQLDatabase
from tests.engines.flink_cluster import FlinkCluster, build_wheel, until

pytestmark = [pytest.mark.flink, pytest.mark.slow, pytest.mark.timeout(600)]

DISTINCT, RESENT, FILES = 40_000, 10_000, 20
PASSWORD_ENV = "ONCESINK_TEST_MYSQL_PASSWORD"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """Build the wheel that is sent along with the job."""
    return build_wheel(tmp_path)


@pytest.fixture
def cluster(tmp_path: Path, mysql_database: MySQLDatabase, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a cluster that knows the database's password; where a test fails its logs are shown."""
    monkeypatch.setenv(PASSWORD_ENV, mysql_database.password)
    # The workers get the package from the wheel alone.
    monkeypatch.delenv("PYTHONPATH", raising=False)
    (tmp_path / "flink").mkdir()
    with FlinkCluster(tmp_path / "flink") as running:
        try:
            yield running
        except BaseException:
            sys.stdout.write(running.logs())
            raise


def write_files(folder: Path, begin: int, end: int, *, distinct: int = DISTINCT) -> None:
    """Write some of the files: every order once, then the first ones again at new positions."""
    lines = DISTINCT + RESENT
    for number in range(begin, end):
        positions = range(number * lines // FILES, (number + 1) * lines // FILES)
        text = "".join(
            json.dumps({"id": pos % distinct, "pos": pos, "note": f"order {pos % distinct}"}) + "\n"
            for pos in positions
        )
        hidden = folder / f".{number}.jsonl"
        hidden.write_text(text)
        hidden.replace(folder / f"{number}.jsonl")


def test_a_killed_worker_a_savepoint_and_a_rescale_lose_and_double_nothing(
    tmp_path: Path, cluster: FlinkCluster, wheel: Path, mysql_database: MySQLDatabase, redis_url: str
) -> None:
    """50,000 deliveries of 40,000 orders into a table that would take a second row: lost 0, twice 0, wrong 0."""
    ledger = MySQLLedger(mysql_database.url, retention=RETENTION, password=Secret.literal(mysql_database.password))
    ledger.create_tables()
    with mysql_database.server.connect(mysql_database.name) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE orders (n INT AUTO_INCREMENT PRIMARY KEY, id INT, pos INT, note VARCHAR(40))")

        def rows() -> int:
            cursor.execute("SELECT COUNT(*) FROM orders")
            return int(cursor.fetchone()[0])  # type: ignore[index]

        folder = tmp_path / "in"
        folder.mkdir()
        write_files(folder, 0, FILES // 2)
        job = ["-pym", "oncesink.pipelines.flink_jsonl_to_mysql", "-pyfs", str(wheel), "--input", folder.as_uri()]
        job += [
            "--mysql",
            mysql_database.url,
            "--mysql-password-env",
            PASSWORD_ENV,
            "--table",
            "orders",
            "--redis",
            redis_url,
        ]
        job += ["--key", "id", "--position", "pos", "--watch-seconds", "1", "--checkpoint-seconds", "1"]
        job += ["--capacity", "200000", "--shards", "12", "--linger-seconds", "0.5", "--batch-rows", "500"]
        cluster.start_workers("worker 1", "worker 2")
        first = cluster.submit("-p", "3", *job)
        until(lambda: rows() > 0.1 * DISTINCT, 180)
        cluster.kill_worker("worker 1")
        cluster.start_workers("worker 3")
        write_files(folder, FILES // 2, FILES - 4)
        until(lambda: rows() > 0.6 * DISTINCT, 240)
        savepoint = cluster.stop_with_savepoint(first)
        write_files(folder, FILES - 4, FILES)
        second = cluster.submit("-p", "2", "-s", savepoint, *job)
        until(lambda: rows() >= DISTINCT, 240)
        outcomes = until(lambda: _done(cluster.counters(second, "oncesink-write-orders")), 120)
        cluster.cancel(second)
        cursor.execute("SELECT id FROM orders")
        found = Counter(int(row[0]) for row in cursor.fetchall())
        cursor.execute("SELECT COUNT(*) FROM orders WHERE note <> CONCAT('order ', id)")
        wrong = cursor.fetchone()
    lost, twice = DISTINCT - len(found), found.total() - len(found)
    sys.stdout.write(f"lost {lost}, twice {twice}, since the rescale {outcomes}\n")
    assert (lost, twice, wrong) == (0, 0, (0,))


def _done(counters: dict[str, int]) -> dict[str, int] | None:
    """Return the counters once all that was sent again has been found out: the last four files hold nothing else."""
    return counters if counters.get("duplicates", 0) >= RESENT * 4 // 5 else None

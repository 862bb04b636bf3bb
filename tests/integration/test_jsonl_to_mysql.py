"""The job to copy, on real servers."""

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from oncesink.connectors.errors import Rejected
from oncesink.connectors.mysql_ledger import MySQLLedger
from oncesink.connectors.secret import Secret

from tests.conftest import MySQLDatabase

pytest.importorskip("apache_beam")

from oncesink.pipelines.jsonl_to_mysql import RETENTION, main

PASSWORD_ENV = "ONCESINK_TEST_PASSWORD"
RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"

Job = Callable[..., None]


@pytest.fixture
def database(mysql_database: MySQLDatabase, monkeypatch: pytest.MonkeyPatch) -> MySQLDatabase:
    """Give a database with the ledger's tables and a table of orders."""
    monkeypatch.setenv(PASSWORD_ENV, mysql_database.password)
    MySQLLedger(mysql_database.url, retention=RETENTION, password=Secret.env(PASSWORD_ENV)).create_tables()
    with closing(mysql_database.server.connect(mysql_database.name)) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE orders (id INT AUTO_INCREMENT PRIMARY KEY, order_id VARCHAR(20), amount INT)")
    return mysql_database


@pytest.fixture
def job(database: MySQLDatabase, redis_url: str, tmp_path: Path) -> Job:
    """Give the job over all files of the test's folder."""

    def run(*more: str) -> None:
        source = ("--input", str(tmp_path / "in-*.jsonl"), "--source", "test/1")
        target = ("--mysql", database.url, "--mysql_password_env", PASSWORD_ENV, "--table", "orders")
        fields = ("--columns", "order_id", "amount", "--key", "order_id")
        main([*source, *target, *fields, "--redis", redis_url, "--capacity", "1000", "--runner", RUNNER, *more])

    return run


def orders(database: MySQLDatabase) -> list[tuple[Any, ...]]:
    """Return the rows of the table."""
    with closing(database.server.connect(database.name)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT order_id, amount FROM orders ORDER BY order_id, id")
        return list(cursor.fetchall())


def write_lines(path: Path, *records: Any) -> None:
    """Write JSON lines; text as it is."""
    path.write_text("".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in records))


def test_every_order_is_written_once_over_runs_and_files(job: Job, database: MySQLDatabase, tmp_path: Path) -> None:
    """Within a file, in a second file, and when everything is run again."""
    first = [{"order_id": f"A-{number:03}", "amount": number} for number in range(300)]
    write_lines(tmp_path / "in-1.jsonl", *first, *first[:50])
    job()
    write_lines(tmp_path / "in-2.jsonl", *first[100:], {"order_id": "B-1", "amount": 7})
    job()
    assert orders(database) == [(f"A-{number:03}", number) for number in range(300)] + [("B-1", 7)]


def test_lines_that_are_refused_go_to_the_dead_letters(job: Job, database: MySQLDatabase, tmp_path: Path) -> None:
    """Undecodable, without a key, in conflict: the others are written, and each dead letter says why."""
    write_lines(
        tmp_path / "in-1.jsonl",
        {"order_id": "A-1", "amount": 1},
        '{"order_id": "A-2", "amo',
        {"amount": 3},
        {"order_id": "A-4", "amount": 4},
    )
    job("--dead_letters", str(tmp_path / "dead.jsonl"))
    write_lines(tmp_path / "in-2.jsonl", {"order_id": "A-1", "amount": 100})
    job("--dead_letters", str(tmp_path / "dead2.jsonl"))
    assert orders(database) == [("A-1", 1), ("A-4", 4)]
    reasons = [json.loads(line)["reason"] for line in (tmp_path / "dead.jsonl").read_bytes().splitlines()]
    assert sorted(reasons) == ["no_key", "not_json"]
    conflicts = [json.loads(line) for line in (tmp_path / "dead2.jsonl").read_bytes().splitlines()]
    assert sorted(each["reason"] for each in conflicts) == ["conflict", "no_key", "not_json"]
    assert next(each["record"]["amount"] for each in conflicts if each["reason"] == "conflict") == 100


def test_without_dead_letters_a_refused_line_fails_the_job_once_the_rest_is_written(
    job: Job, database: MySQLDatabase, tmp_path: Path
) -> None:
    """Nobody was named to take it, so somebody has to look."""
    write_lines(tmp_path / "in-1.jsonl", {"order_id": "A-1", "amount": 1}, {"amount": 3})
    with pytest.raises((Rejected, RuntimeError), match="no_key"):
        job()
    assert orders(database) == [("A-1", 1)]

"""A job in a file of its own, as a user has it, and the commands run on it: in this process, or in one to be killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from oncesink.connectors.mysql_connection import MySQLConnection
from oncesink.connectors.mysql_ledger import MySQLLedger
from oncesink.connectors.secret import Secret

from tests.conftest import MySQLDatabase

PASSWORD_ENV = "ONCESINK_TEST_PASSWORD"
JOB = """
from datetime import timedelta
from oncesink.connectors import MySQLLedger, MySQLTable, Secret
from oncesink.transforms import Bloom, Fields, Gate, SourcePosition

ledger = MySQLLedger({url!r}, retention=timedelta(days=7), password=Secret.env({env!r}))
gate = Gate(
    scope="orders",
    key=Fields("order_id"),
    occurrence=SourcePosition("orders/1", "offset"),
    ledger=ledger,
    membership=Bloom(capacity=10_000, error_rate=0.001),
    shards=4,
)
table = MySQLTable(ledger, "orders", columns={{"order_id": "order_id", "amount": "amount"}})
"""
DEADLINE_SECONDS = 60.0


def write_job(folder: Path, database: MySQLDatabase) -> None:
    """Put the job into a folder, as `job.py`."""
    (folder / "job.py").write_text(JOB.format(url=database.url, env=PASSWORD_ENV), encoding="utf-8")


def ledger_of(database: MySQLDatabase) -> MySQLLedger:
    """Return the ledger that the job names, as a recipe of this process."""
    return MySQLLedger(database.url, retention=timedelta(days=7), password=Secret.literal(database.password))


def execute(database: MySQLDatabase, *statements: str) -> None:
    """Run statements that write."""
    with closing(MySQLConnection(ledger_of(database).server)) as connection:
        for statement in statements:
            connection.execute(statement)


def command(folder: Path, database: MySQLDatabase, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, in a process of its own, beside the job."""
    return subprocess.run(
        line(*arguments),
        cwd=folder,
        env=environment(database),
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


def killed(folder: Path, database: MySQLDatabase, *arguments: str, when: Callable[[], bool]) -> None:
    """Run a command and kill it, without a warning, as soon as something holds; it must not end before."""
    process = subprocess.Popen(
        line(*arguments),
        cwd=folder,
        env=environment(database),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not when():
            assert process.poll() is None, "it was done before it could be killed"
            assert time.monotonic() < deadline, "it never came so far"
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def line(*arguments: str) -> Sequence[str]:
    return [sys.executable, "-m", "oncesink.pipelines.cli", *arguments]


def environment(database: MySQLDatabase) -> dict[str, str]:
    return {**os.environ, PASSWORD_ENV: database.password}

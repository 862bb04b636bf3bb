"""Real processes, killed by SIGKILL at random moments and started again from an older position, on real stores."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from oncesink.connectors.schema import mysql_ddl, mysql_scopes_ddl

from tests import servers
from tests.conftest import MySQLDatabase

ORDERS = 6_000
KILLS = 6
FEWEST = 3
"""A quick machine may be through before it was killed as often as it should be."""
WRITER = Path(__file__).with_name("killed_writer.py")


def deliveries(seed: int) -> list[dict[str, Any]]:
    """Return orders, a third of them sent again by the producer, somewhat out of order."""
    dice = random.Random(seed)
    orders = list(range(ORDERS)) + dice.sample(range(ORDERS), ORDERS // 3)
    orders.sort(key=lambda order: order + dice.randrange(400))
    return [{"order": order, "line": line, "amount": order * 3 % 97} for line, order in enumerate(orders)]


class Run:
    """One program that is killed again and again until it has come to its end."""

    def __init__(
        self, folder: Path, settings: dict[str, Any], seed: int, *, pause_seconds: float = 0.05, kills: int = KILLS
    ) -> None:
        self.folder = folder
        self.dice = random.Random(seed)
        self.kills = 0
        self.wanted = kills
        self.pause_seconds = pause_seconds
        self.settings = {**settings, "deliveries": str(folder / "deliveries"), "note": str(folder / "note")}
        (folder / "deliveries").write_text("\n".join(map(json.dumps, deliveries(seed))))

    def to_the_end(self) -> None:
        """Kill it while it writes, until it was killed often enough; then let it finish."""
        while True:
            process = self.start()
            if self.kills < self.wanted and self.killed(process):
                continue
            _, problem = process.communicate(timeout=120)
            assert process.returncode == 0, problem.decode()
            return

    def start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "KILL_TEST_PASSWORD": servers.MYSQL_PASSWORD}
        command = [sys.executable, str(WRITER), json.dumps(self.settings)]
        return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)

    def killed(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait until it has noted a new position and a moment longer, then kill it; False if it was through before."""
        note = self.folder / "note"
        before = note.read_text() if note.exists() else ""
        while process.poll() is None and (note.read_text() if note.exists() else "") == before:
            time.sleep(0.002)
        time.sleep(self.dice.random() * self.pause_seconds)
        if process.poll() is not None:
            return False
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.communicate()
        self.kills += 1
        return True


def judge(rows: Counter[int]) -> None:
    """Compare with the source data: nothing lost, nothing twice."""
    assert sum(order not in rows for order in range(ORDERS)) == 0, "lost"
    assert sum(count - 1 for count in rows.values()) == 0, "twice"


def test_without_a_gate_kills_write_twice(tmp_path: Path) -> None:
    """The harness would see it: the same program without a gate leaves doubles behind."""
    log = tmp_path / "log"
    run = Run(tmp_path, {"kind": "plain", "log": str(log)}, 6, pause_seconds=0.02, kills=2)
    run.to_the_end()
    with pytest.raises(AssertionError, match="twice"):
        judge(logged(log))


def test_a_table_in_the_ledgers_transaction_survives_kills(
    tmp_path: Path, mysql_database: MySQLDatabase, redis_url: str
) -> None:
    """Exactly once into MySQL, with Redis and a Bloom filter before it, whenever the process dies."""
    with closing(mysql_database.server.connect(mysql_database.name)) as connection, connection.cursor() as cursor:
        create(cursor)
        run = Run(tmp_path, {"kind": "table", "mysql": mysql_database.url, "redis": redis_url}, 1)
        run.to_the_end()
        cursor.execute("SELECT `order` FROM orders")
        judge(Counter(order for (order,) in cursor.fetchall()))
    assert run.kills >= FEWEST


def test_an_external_sink_survives_kills_where_it_can_be_asked(
    tmp_path: Path, mysql_database: MySQLDatabase, redis_url: str
) -> None:
    """Once into a sink that knows no keys: rows in doubt wait for the lease, then the sink is asked."""
    with closing(mysql_database.server.connect(mysql_database.name)) as connection, connection.cursor() as cursor:
        create(cursor)
    log = tmp_path / "log"
    run = Run(tmp_path, {"kind": "outside", "mysql": mysql_database.url, "redis": redis_url, "log": str(log)}, 3)
    run.to_the_end()
    judge(logged(log))
    assert run.kills >= FEWEST


def test_redis_as_the_only_ledger_survives_kills(tmp_path: Path, redis_url: str) -> None:
    """The same with one Lua script in the place of the database."""
    log = tmp_path / "log"
    run = Run(tmp_path, {"kind": "redis", "redis": redis_url, "log": str(log)}, 4)
    run.to_the_end()
    judge(logged(log))
    assert run.kills >= FEWEST


def test_the_embedded_default_survives_kills(tmp_path: Path) -> None:
    """Exactly once into SQLite, without any server."""
    path = tmp_path / "orders.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, `order` INT, line INT, amount INT)")
    run = Run(tmp_path, {"kind": "sqlite", "sqlite": f"sqlite:///{path}"}, 5, pause_seconds=0.03)
    run.to_the_end()
    with closing(sqlite3.connect(path)) as connection:
        judge(Counter(order for (order,) in connection.execute("SELECT `order` FROM orders")))
    assert run.kills >= FEWEST


def logged(log: Path) -> Counter[int]:
    return Counter(int(line.split()[0]) for line in log.read_text().splitlines())


def create(cursor: Any) -> None:
    columns = "id BIGINT AUTO_INCREMENT PRIMARY KEY, `order` INT, line INT, amount INT"
    orders = f"CREATE TABLE orders ({columns}) ENGINE=InnoDB"
    for statement in (*mysql_ddl(), *mysql_scopes_ddl(), orders):
        cursor.execute(statement)

"""A Beam job, killed at random points and run again over the same files until it is through.

The job is `pipelines/jsonl_to_mysql.py` as users copy it: a table without a unique key, MySQL, Redis, Bloom filters.
It runs on the FnApiRunner, in one process; on Prism where PRISM= names its program, with a worker of its own.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

from oncesink.connectors import MySQLLedger, Secret
from oncesink.pipelines.jsonl_to_mysql import RETENTION

from tests import servers
from tests.fire.audit import audit
from tests.fire.scenario import Figures
from tests.servers import die_with_parent

TABLE = "CREATE TABLE orders (n BIGINT AUTO_INCREMENT PRIMARY KEY, id BIGINT, note VARCHAR(40))"
PASSWORD_ENV = "ONCESINK_FIRE_PASSWORD"
RESENT = 0.4
"""Share of the orders that are sent a second time, somewhere later in the files."""
RUN_SECONDS = 900.0
SEED = 20


def run(*, quick: bool, folder: Path) -> Figures:
    """Kill the job so often, then let it come to its end, and count."""
    orders, kills = (20_000, 2) if quick else (600_000, 8)
    chance = random.Random(SEED)
    written = list(deliveries(orders, chance))
    source = folder / "orders.jsonl"
    source.write_text("".join(json.dumps({"id": id_, "note": note}) + "\n" for id_, note in written))
    with servers.mysql_server() as mysql, servers.redis_server() as redis:
        database = mysql.new_database()
        password = Secret.literal(servers.MYSQL_PASSWORD)
        MySQLLedger(mysql.url(database), retention=RETENTION, password=password).create_tables()
        with closing(mysql.connect(database)) as connection, connection.cursor() as cursor:
            cursor.execute(TABLE)

            def rows() -> int:
                cursor.execute("SELECT COUNT(*) FROM orders")
                [(count,)] = cursor.fetchall()
                return int(count)

            command = job(source, mysql.url(database), redis.url)
            figures = Figures(records=len(written))
            for number in range(kills):
                killed_at = chance.randint(1, max(1, orders // (kills - number + 1) - 1000))
                figures.cluster_kills += one_kill(command, folder, rows, rows() + killed_at)
            end = subprocess.run(
                command, env=environment(), stdout=log(folder), stderr=log(folder), timeout=RUN_SECONDS, check=False
            )
            cursor.execute("SELECT id, note FROM orders")
            counted = audit(written, cursor.fetchall())
    figures.lost, figures.twice, figures.wrong = counted.lost, counted.twice, counted.wrong
    if end.returncode:
        figures.broken.append(f"beam: the last run ended with {end.returncode}, see {folder / 'job.log'}")
    if figures.cluster_kills < kills:
        figures.broken.append(f"beam: only {figures.cluster_kills} of {kills} kills met a job at work")
    (folder / "keys").write_text("\n".join(counted.examples))
    figures.notes.append(f"beam: on {runner()[1]}")
    return figures


def deliveries(orders: int, chance: random.Random) -> Iterator[tuple[int, str]]:
    """Return (id, note) of each delivery: every order, and some of them again, later."""
    for order in range(orders):
        yield order, f"order {order}"
        if chance.random() < RESENT:
            again = chance.randint(max(0, order - 5000), order)
            yield again, f"order {again}"


def job(source: Path, mysql_url: str, redis_url: str) -> list[str]:
    """Return the command line."""
    command = [*die_with_parent(), sys.executable, "-m", "oncesink.pipelines.jsonl_to_mysql"]
    command += ["--input", str(source), "--source", "files/1", "--mysql", mysql_url]
    command += ["--mysql_password_env", PASSWORD_ENV, "--table", "orders", "--columns", "id", "note", "--key", "id"]
    return [*command, "--redis", redis_url, "--capacity", "1000000", *runner()]


def runner() -> list[str]:
    """Return the options that choose the runner."""
    prism = os.environ.get("PRISM")
    if prism:
        return ["--runner", "PrismRunner", "--prism_location", prism]
    return ["--runner", "FnApiRunner"]


def environment() -> dict[str, str]:
    """Return the environment of the job."""
    return {**os.environ, PASSWORD_ENV: servers.MYSQL_PASSWORD}


def log(folder: Path) -> int:
    """Return where the job's words go."""
    return os.open(folder / "job.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def one_kill(command: list[str], folder: Path, rows: Callable[[], int], at: int) -> bool:
    """Start the job and kill it with all its processes once so many rows are there; tell whether it was alive."""
    process = subprocess.Popen(
        command, env=environment(), stdout=log(folder), stderr=log(folder), start_new_session=True
    )
    end = time.monotonic() + RUN_SECONDS
    try:
        while rows() < at and process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        return process.poll() is None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

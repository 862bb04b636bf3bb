"""Rows in doubt: two reconcilers, each killed once, against a bare loop of the same statements by hand.

The rows are open in MySQL, their leases over, each with its record; one of a hundred is truly unwritten. The sink is a
table that can be asked and has no unique key. The clock of ours runs while at least one of the two is at a page: the
wait for the leases of what the killed ones had taken is left out, and so is the start of a process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from statistics import mean
from typing import Any

from oncesink.connectors.contract import Claim
from oncesink.connectors.mysql_connection import MySQLConnection
from oncesink.connectors.mysql_ledger_sql import LedgerStatements
from oncesink.connectors.mysql_literals import binaries, cut
from oncesink.connectors.mysql_server import MySQLServer
from oncesink.connectors.schema import mysql_ddl
from oncesink.transforms.gate import write_scope
from oncesink.transforms.prepare import Item, Preparer
from oncesink.transforms.stored import RecordStore

from benchmarks.jobs import reconcile as job
from benchmarks.rows import MeasuredRow, none_of
from tests import servers

ROWS = 1_000_000
PAGE_ROWS = 1000
BARE_SHARE = 10
"""The bare loop takes one in so many rows."""
UNWRITTEN_EACH = 100
WRONGS = ("lost", "twice", "wrong", "still_open")
ROOT = Path(__file__).resolve().parents[1]


def rows() -> list[MeasuredRow]:
    """Measure at full size."""
    with servers.mysql_server() as mysql:
        return measure(mysql, ROWS)


def measure(mysql: servers.MySQLServer, many: int, page_rows: int = PAGE_ROWS) -> list[MeasuredRow]:
    """Reconcile `many` rows."""
    os.environ[job.VARIABLE] = servers.MYSQL_PASSWORD
    bare_rows = max(page_rows, many // BARE_SHARE)
    # Before and after ours: what else the machine does meanwhile hits both.
    bare_seconds = [bare(mysql, bare_rows, page_rows)]
    with tempfile.TemporaryDirectory() as folder:
        ours = ours_of(mysql, many, page_rows, Path(folder))
    bare_seconds.append(bare(mysql, bare_rows, page_rows))
    rate, theirs = many / ours["busy_seconds"], bare_rows / mean(bare_seconds)
    raw = {"rows": many, "bare_rows": bare_rows, "bare_seconds": bare_seconds, **ours}
    speed = MeasuredRow(
        name="reconcile, two killed once, against a bare loop",
        ours=rate,
        theirs=theirs,
        ratio=rate / theirs,
        at_least=0.5,
        unit="rows/s",
        raw=raw,
    )
    return [speed, *[none_of(f"reconcile, {what}", ours[what]) for what in WRONGS]]


def record(number: int) -> dict[str, Any]:
    """Return an order."""
    return {"order_id": f"o-{number:09d}", "amount": number * 7 % 100_000, "partition": number % 8, "offset": number}


def written(number: int) -> bool:
    """Tell whether its effect is there before anybody reconciles."""
    return number % UNWRITTEN_EACH != 0


def seed(mysql: servers.MySQLServer, many: int, page_rows: int) -> MySQLConnection:
    """Make the tables with all rows open; return a connection to them."""
    database = mysql.new_database()
    os.environ[job.PLACE] = mysql.url(database)
    connection = MySQLConnection(MySQLServer(url=mysql.url(database), password=job.PASSWORD))
    for statement in [*mysql_ddl(), job.TARGET]:
        connection.execute(statement)
    gate = job.gate(mysql.url(database), page_rows)
    scope = write_scope(gate, job.SINK)
    sql, prepare = LedgerStatements("oncesink_ledger", scope), Preparer(gate, scope)
    records = RecordStore("json", gate.batch.payload_bytes)
    for start in range(0, many, page_rows):
        numbers = range(start, min(start + page_rows, many))
        items = [each for each in prepare.batch([record(number) for number in numbers]) if isinstance(each, Item)]
        claims: list[Claim] = [each.claim._replace(payload=records.pack(each.record)) for each in items]
        opened = cut(
            lambda some: sql.insert_open(some, owner=os.urandom(16), lease_seconds=-3600.0),
            claims,
            limit_bytes=connection.max_statement_bytes,
        )
        there = [
            (each.claim.digest, each.record) for each, number in zip(items, numbers, strict=True) if written(number)
        ]
        with connection.transaction():
            for statement in [*opened, job.insertion(there)]:
                connection.execute(statement)
    return connection


def bare(mysql: servers.MySQLServer, many: int, page_rows: int) -> float:
    """Return the seconds that a loop by hand takes: list, take, probe, write, finish."""
    with closing(seed(mysql, many, page_rows)) as connection:
        job.connection.cache_clear()
        begin = time.perf_counter()
        while found := connection.query(
            "SELECT digest, payload FROM oncesink_ledger FORCE INDEX (open_rows) WHERE state=0 AND "
            f"lease_until<UTC_TIMESTAMP(6) ORDER BY lease_until LIMIT {page_rows}"
        ):
            digests = [digest for digest, _ in found]
            lease = f"owner=x'{os.urandom(16).hex()}', lease_until=UTC_TIMESTAMP(6)+INTERVAL 3 SECOND"
            update(connection, lease, digests)
            there = job.look_up(digests)
            missing = [pair for pair in found if pair[0] not in there]
            if missing:
                records = [(digest, json.loads(payload.partition(b"\n")[2])) for digest, payload in missing]
                job.connection().execute(job.insertion(records))
            update(connection, "state=1, lease_until=NULL, finished_at=UTC_TIMESTAMP(6)", digests)
        seconds = time.perf_counter() - begin
        job.connection().close()
        check(connection, many)
    return seconds


def update(connection: MySQLConnection, change: str, digests: Sequence[bytes]) -> None:
    """Change open rows, in order: else two loops would deadlock."""
    connection.execute(
        f"UPDATE oncesink_ledger FORCE INDEX (digest) SET {change} "
        f"WHERE digest IN ({binaries(sorted(digests))}) AND state=0"
    )


def ours_of(mysql: servers.MySQLServer, many: int, page_rows: int, folder: Path) -> dict[str, Any]:
    """Let two reconcilers go, kill each once and start it again; return what they noted and what there is."""
    with closing(seed(mysql, many, page_rows)) as connection:
        pair = [Child(folder, number, page_rows) for number in range(2)]
        for each in pair:
            each.wait_ready()
        (folder / "go").touch()
        begin = time.monotonic()
        open_at_kill = []
        for share, each in zip((0.25, 0.5), pair, strict=True):
            while sum(note["listed"] for one in pair for note in one.notes()) < share * many:
                time.sleep(0.002)
            open_at_kill.append(each.kill(connection))
            each.start()
        for each in pair:
            each.end()
        wall = time.monotonic() - begin
        notes = [note for each in pair for note in each.notes()]
        totals = {name: sum(note[name] for note in notes) for name in notes[0] if name not in ("begin", "end")}
        return {
            "busy_seconds": busy(notes),
            "wall_seconds": wall,
            "kills": len(open_at_kill),
            "open_at_kill": open_at_kill,
            **totals,
            **check(connection, many),
        }


class Child:
    """One reconciler in a process of its own."""

    def __init__(self, folder: Path, number: int, page_rows: int) -> None:
        self._notes = folder / f"notes-{number}"
        self._ready = folder / f"ready-{number}"
        self._settings = {
            "notes": str(self._notes),
            "ready": str(self._ready),
            "go": str(folder / "go"),
            "page_rows": page_rows,
        }
        self._notes.touch()
        self.start()

    def start(self) -> None:
        """Start it."""
        command = [sys.executable, "-m", "benchmarks.jobs.reconcile", json.dumps(self._settings)]
        self._process = subprocess.Popen(command, cwd=ROOT)

    def wait_ready(self) -> None:
        """Wait until it has opened its stores."""
        while not self._ready.exists():
            if self._process.poll() is not None:
                raise RuntimeError(f"a reconciler ended with {self._process.returncode}")
            time.sleep(0.01)

    def kill(self, connection: MySQLConnection) -> int:
        """Kill it while rows are taken; return how many are taken and not finished then, by either of the two."""
        while self._process.poll() is None and taken(connection) == 0:
            continue
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        return taken(connection)

    def end(self) -> None:
        """Wait for its end."""
        if self._process.wait(timeout=900) != 0:
            raise RuntimeError(f"a reconciler ended with {self._process.returncode}")

    def notes(self) -> list[dict[str, Any]]:
        """Return its notes so far, of all its lives."""
        lines = self._notes.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]


def taken(connection: MySQLConnection) -> int:
    """Count the rows that are open under a lease."""
    return int(
        connection.query("SELECT COUNT(*) FROM oncesink_ledger WHERE state=0 AND lease_until>UTC_TIMESTAMP(6)")[0][0]
    )


def busy(notes: Sequence[dict[str, Any]]) -> float:
    """Return for how many seconds at least one was at a page."""
    seconds, until = 0.0, 0.0
    for begin, end in sorted((note["begin"], note["end"]) for note in notes):
        seconds += max(0.0, end - max(begin, until))
        until = max(until, end)
    return seconds


def check(connection: MySQLConnection, many: int) -> dict[str, int]:
    """Compare the target with the source data, by its contents alone."""
    counts: dict[str, int] = {}
    for text in contents(connection):
        counts[text] = counts.get(text, 0) + 1
    wanted = [json.dumps(record(number)) for number in range(many)]
    lost = sum(text not in counts for text in wanted)
    twice = sum(count - 1 for count in counts.values())
    wrong = len(counts) - (many - lost)
    still_open = int(connection.query("SELECT COUNT(*) FROM oncesink_ledger WHERE state=0")[0][0])
    return {"lost": lost, "twice": twice, "wrong": wrong, "still_open": still_open}


def contents(connection: MySQLConnection) -> Iterator[str]:
    """Read the target."""
    last = 0
    while page := connection.query(f"SELECT id, content FROM effects WHERE id>{last} ORDER BY id LIMIT 20000"):
        yield from (text for _, text in page)
        last = int(page[-1][0])

"""Rebuilding filters from a ledger against a bare keyset read of the same columns; its memory; what a kill costs.

Theirs reads `SELECT id, digest ... WHERE id > ? ORDER BY id LIMIT ?` in pages of the same size, over the same driver,
and does nothing with it. Ours is `oncesink rebuild`, its filters stored in a folder. Both sides alternate in one run.
There are 2 million rows unless REBUILD_ROWS= says otherwise: with 10 million it takes nine minutes.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median

from oncesink.connectors.mysql_connection import MySQLConnection
from oncesink.pipelines.rebuild import rebuild
from oncesink.transforms.membership.rebuilding import PROGRESS
from oncesink.transforms.membership.stored import parse_manifest

from benchmarks.jobs.rebuild import PASSWORD_ENV, SHARDS, URL_ENV, the_job, the_ledger
from benchmarks.rows import MeasuredRow
from tests import servers

ROWS = int(os.environ.get("REBUILD_ROWS", "2000000"))
ROUNDS = 5
PAGE_ROWS = 10_000
FILL_ROWS = 50_000
POOL = {"innodb_buffer_pool_size": "2G", "innodb_log_file_size": "512M"}
"""The digests of all rows come in no order: an index of them that is larger than the pool takes hours to fill."""
KILLED_AT = 0.5
LOOK_SECONDS = 0.05

FILL = """
INSERT INTO oncesink_ledger
  (digest, scope, generation, occurrence, state, owner, payload_hash, created_at, finished_at)
SELECT UNHEX(MD5(seq)), 'orders', 1, CONCAT('orders@eu-1/1 partition 3 offset ', seq), 1, UNHEX(MD5('owner')),
  UNHEX(MD5(seq + 1)), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) FROM seq_{begin}_to_{end}
"""


def rows() -> list[MeasuredRow]:
    """Measure all of it on one ledger."""
    with servers.mysql_server(**POOL) as server, tempfile.TemporaryDirectory() as folder:
        name = server.new_database()
        os.environ[PASSWORD_ENV], os.environ[URL_ENV] = servers.MYSQL_PASSWORD, server.url(name)
        fill(ROWS)
        return [*measured(Path(folder)), killed(Path(folder))]


def fill(many: int) -> None:
    """Make a ledger of so many finished rows, as fast as the server can."""
    the_ledger().create_tables()
    with closing(MySQLConnection(the_ledger().server)) as connection:
        for begin in range(1, many + 1, FILL_ROWS):
            connection.execute(FILL.format(begin=begin, end=min(begin + FILL_ROWS - 1, many)))


def measured(folder: Path) -> list[MeasuredRow]:
    """Alternate both sides; look at the memory of a process of its own."""
    ours, theirs = [], []
    for number in range(ROUNDS):
        theirs.append(rate(bare_read))
        ours.append(rate(lambda number=number: ours_once(folder / f"round {number}")))
    memory = memory_of_a_run(folder / "memory")
    quarter, end = median(memory[len(memory) // 4 : len(memory) // 2]), memory[-1]
    return [
        MeasuredRow(
            name=f"rebuild of {ROWS:,} rows / a bare keyset read",
            ours=median(ours),
            theirs=median(theirs),
            ratio=median(mine / other for mine, other in zip(ours, theirs, strict=True)),
            at_least=0.6,
            unit="rows/s",
            raw={"ours": ours, "theirs": theirs},
        ),
        MeasuredRow(
            name="rebuild memory at its end / in its second quarter",
            ours=end,
            theirs=quarter,
            ratio=quarter / end,
            at_least=0.9,
            unit="MiB",
            raw={"samples": memory[:: max(len(memory) // 50, 1)]},
        ),
    ]


def bare_read() -> int:
    """Read ids and digests, page by page."""
    last = found = 0
    with closing(MySQLConnection(the_ledger().server)) as connection:
        while page := connection.query(
            f"SELECT id, digest FROM oncesink_ledger WHERE id>{last} ORDER BY id LIMIT {PAGE_ROWS}"
        ):
            last = int(page[-1][0])
            found += len(page)
    return found


def ours_once(folder: Path) -> int:
    """Build the filters of the whole ledger."""
    return rebuild(the_job(ROWS), str(folder), page_rows=PAGE_ROWS).manifest.keys


def rate(run: object) -> float:
    """Return rows a second."""
    assert callable(run)
    begin = time.perf_counter()
    found = run()
    assert found == ROWS
    return float(ROWS / (time.perf_counter() - begin))


def memory_of_a_run(folder: Path) -> list[float]:
    """Return what a process held in memory, in MiB, from its first page on, all along the run."""
    samples = []
    with running(folder, "0s") as process:
        while process.poll() is None:
            if (folder / PROGRESS).exists():
                samples.append(resident_mib(process.pid))
            time.sleep(LOOK_SECONDS)
    assert process.returncode == 0
    return [each for each in samples if each] or [1.0]


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process, 0 once it has gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def killed(folder: Path) -> MeasuredRow:
    """Kill a run in the middle, and run it again: how many times fewer rows it reads than from the start."""
    place = folder / "killed"
    with running(place, "0s") as process:
        while done_in(place) < KILLED_AT * ROWS:
            assert process.poll() is None, "it was done before it could be killed"
            time.sleep(LOOK_SECONDS / 10)
        process.send_signal(signal.SIGKILL)
        process.wait()
    before = done_in(place)
    found = rebuild(the_job(ROWS), str(place), page_rows=PAGE_ROWS)
    assert found.manifest.keys == ROWS
    assert found.resumed_after is not None
    again = ROWS - before
    return MeasuredRow(
        name="rebuild killed in the middle: rows read again / all rows",
        ours=again,
        theirs=ROWS,
        ratio=ROWS / max(again, 1),
        at_least=1.5,
        unit="rows",
        raw={"stored when it was killed": before},
    )


def done_in(folder: Path) -> int:
    """Return how many keys the last checkpoint holds."""
    file = folder / PROGRESS
    return parse_manifest(file.read_bytes()).keys if file.exists() else 0


@contextmanager
def running(folder: Path, checkpoint: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command in a process of its own, with a checkpoint after every page; it is gone behind the block."""
    arguments = ["--gate", "benchmarks.jobs.rebuild:the_job_here", "--to", str(folder), "--checkpoint", checkpoint]
    process = subprocess.Popen(
        [sys.executable, "-m", "oncesink.pipelines.cli", "rebuild", *arguments, "--page-rows", str(PAGE_ROWS * SHARDS)],
        env={**os.environ, "REBUILD_ROWS": str(ROWS)},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()

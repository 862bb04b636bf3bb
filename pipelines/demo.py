"""The demo: real flights, many of them delivered again, a process that is killed, and two tables to compare.

Run it as `oncesink demo` or `python -m oncesink.pipelines.demo`.
"""

from __future__ import annotations

import json
import random
import secrets
import sqlite3
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from oncesink.connectors.errors import Misconfigured, OnceSinkError
from oncesink.pipelines.demo_audit import CONTENT, KEY, POSITION, Count, Truth
from oncesink.pipelines.demo_bars import Bars, RunBars
from oncesink.pipelines.demo_events import SEED, flights_archive, write_deliveries
from oncesink.pipelines.demo_job import LEDGER_TABLE, Job, read_progress
from oncesink.pipelines.demo_kill import EXIT_STATUS
from oncesink.pipelines.demo_report import Figures, print_figures
from oncesink.pipelines.demo_settings import Engine, Settings
from oncesink.pipelines.demo_tables import ONCE, PLAIN, Table
from rich.console import Console

DEATH_BETWEEN = (0.4, 0.6)
"""The share of the flights that went through the gate when the process dies."""

LOOK_SECONDS = 0.1
SHOWN_LINES = 15


def show(settings: Settings) -> int:
    """Run the demo, print its figures, return the exit status: 1 where they are not as promised."""
    figures = run(settings)
    print_figures(figures, Console())
    complaints = list(figures.complaints())
    for each in complaints:
        sys.stderr.write(f"oncesink demo: {each}\n")
    sys.stdout.write(f"{figures.line()}\n")
    return 1 if complaints else 0


def run(settings: Settings) -> Figures:
    """Deliver, kill, deliver again, count. Raises `OnceSinkError` where that was not possible."""
    started = time.monotonic()
    settings.engine.require()
    # Refused before minutes went into deliveries that could not be written.
    settings.ledger_place()
    settings.redis_place()
    archive = flights_archive()
    with tempfile.TemporaryDirectory(prefix="oncesink-demo-") as folder, Bars() as bars:
        with bars.busy("Writing the deliveries"):
            delivered = write_deliveries(Path(folder, "deliveries.jsonl"), limit=settings.limit)
            job = _job(settings, folder, delivered.distinct)
            _create_tables(job)
        with ThreadPoolExecutor(1) as beside:
            # What should be there is read while the pipeline runs: it has one processor to itself.
            truth = beside.submit(Truth, archive, job.deliveries, limit=settings.limit)
            rows_open = _run_and_die(settings.engine, job, bars, delivered.lines)
            _run_well(settings.engine, job, bars, delivered.lines)
        with bars.busy("Counting the rows"):
            plain, once = (_count(job, truth.result(), table) for table in (PLAIN, ONCE))
        return Figures(
            engine=settings.engine,
            deliveries=truth.result().lines,
            distinct=truth.result().distinct,
            outcomes=json.loads(job.outcomes.read_text(encoding="utf-8")),
            plain=plain,
            once=once,
            kills=int(rows_open > 0),
            rows_open_at_kill=rows_open,
            seconds=time.monotonic() - started,
        )


def _job(settings: Settings, folder: str, flights: int) -> Job:
    """Make the job, under a scope of its own: neither ledger nor cache knows anything of an earlier demo."""
    ledger, redis = settings.ledger_place(), settings.redis_place()
    return Job(
        folder=folder,
        scope=f"demo-{secrets.token_hex(4)}",
        flights=flights,
        ledger=f"sqlite:///{folder}/once.db" if ledger is None else ledger.url,
        ledger_password_env=None if ledger is None else ledger.password_env,
        redis=None if redis is None else redis.url,
        redis_password_env=None if redis is None else redis.password_env,
    )


def _create_tables(job: Job) -> None:
    """Make all tables anew. The library connects first: it can say what is wrong with the place."""
    if job.database.is_mysql:
        job.mysql_ledger().create_tables()
    try:
        job.database.create(ledger_table=LEDGER_TABLE)
    except sqlite3.Error as error:
        raise Misconfigured(f"cannot make tables at {job.ledger}: {error}") from error
    if job.database.is_mysql:
        job.mysql_ledger().create_tables()


def _run_and_die(engine: Engine, job: Job, bars: Bars, lines: int) -> int:
    """Run until the process dies by itself; return how many rows it left in an open transaction, and took with it."""
    share = random.Random(SEED).uniform(*DEATH_BETWEEN)  # noqa: S311 - repeatable on purpose
    doomed = replace(job, dies_after_rows=int(job.flights * share))
    status = _child(engine, doomed, bars.run("First run, to be killed", lines))
    if status == 0:
        return 0
    _expect(status, EXIT_STATUS, job)
    words = json.loads(job.last_words.read_text(encoding="utf-8"))
    with job.database.connect() as connection:
        committed = job.database.count(connection, ONCE)
    return int(words["rows_open"]) if committed == words["rows_committed"] else 0


def _run_well(engine: Engine, job: Job, bars: Bars, lines: int) -> None:
    status = _child(engine, job, bars.run(f"Second run, from {engine.goes_on_from}", lines))
    _expect(status, 0, job)


def _child(engine: Engine, job: Job, bar: RunBars) -> int:
    """Run the pipeline in a process of its own, show how far it is, return its exit status."""
    settings = Path(job.folder, "job.json")
    job.save(settings)
    job.progress.unlink(missing_ok=True)
    command = [sys.executable, "-m", "oncesink.pipelines.demo_child", engine.value, str(settings)]
    with _log(job).open("wb") as log:
        child = subprocess.Popen(  # noqa: S603 - this program itself
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        while child.poll() is None:
            bar.show(read_progress(job))
            time.sleep(LOOK_SECONDS)
    finally:
        child.kill()
        child.wait()
    bar.show(read_progress(job))
    return child.returncode


def _expect(status: int, wanted: int, job: Job) -> None:
    if status == wanted:
        return
    lines = _log(job).read_text(encoding="utf-8", errors="replace").splitlines()
    if status == 2:
        raise Misconfigured(lines[-1] if lines else "the pipeline could not start")
    sys.stderr.write("\n".join([*lines[-SHOWN_LINES:], ""]))
    raise OnceSinkError(f"the pipeline's process ended with status {status}, its last lines stand above")


def _log(job: Job) -> Path:
    return Path(job.folder, "log.txt")


def _count(job: Job, truth: Truth, table: Table) -> Count:
    with job.database.connect() as connection:
        return truth.count(job.database.rows(connection, table, KEY, (*POSITION, *CONTENT)))


if __name__ == "__main__":
    from oncesink.pipelines.cli import main

    sys.exit(main(["demo", *sys.argv[1:]]))

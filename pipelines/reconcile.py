"""Passes of a `Reconciler`, shown: a bar while one runs, then a table and one line of JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from oncesink.connectors.clock import Clock, SystemClock
from oncesink.connectors.errors import Misconfigured, OutcomeUnknown, Unavailable
from oncesink.pipelines.jobs import Job
from oncesink.transforms import Metrics, Reconciled, Reconciler
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

ROWS = (
    ("listed", "open, with lease and grace over"),
    ("there", "the sink had the effect: finished"),
    ("written", "written from the stored record, finished"),
    ("missing", "surely not written, no record stored: send them again"),
    ("parked", "left as they are: a person decides"),
    ("elsewhere", "taken, finished or released by somebody else"),
    ("in_doubt", "the sink gave no certain answer: asked again later"),
    ("troubled", "a store or the sink was in trouble"),
    ("late_finishes", "finished too late: another one had the row"),
    ("older_generations", "open rows of generations before: not touched"),
)


def opened(job: Job, metrics: Metrics | None = None) -> Reconciler:
    """Open the reconciler of a job. Raises `Misconfigured` where it has no sink, or could never settle a row."""
    if job.sink is None:
        raise Misconfigured("rows in doubt belong to a writer: name its sink too, by --sink or a pair (gate, sink)")
    return Reconciler(job.gate, job.sink, metrics=metrics)


def reconcile(
    job: Job,
    *,
    every: timedelta | None = None,
    passes: int | None = None,
    clock: Clock | None = None,
    start: Callable[[Job], Reconciler] = opened,
) -> int:
    """Make one pass, or one each time that `every` has gone by; return the exit status.

    1 where the last pass left something that needs a person. Stores that are away are waited for, with `every`.
    """
    clock = clock or SystemClock()
    status = 0
    with start(job) as reconciler:
        while passes is None or passes > 0:
            begin = clock.monotonic()
            status = _pass(reconciler, waits=every is not None)
            passes = None if passes is None else passes - 1
            if every is None:
                break
            if passes != 0:
                clock.sleep(max(0.0, every.total_seconds() - (clock.monotonic() - begin)))
    return status


def dry_run(job: Job) -> int:
    """Tell what a pass would do; return the exit status."""
    with opened(job) as reconciler:
        plan = reconciler.look()
    found = {"would_write": plan["write"], "would_probe": plan["probe"], "would_park": plan["park"]}
    if any(found.values()):
        _print(found, [(name, name.replace("_", " ")) for name in found])
    else:
        sys.stdout.write(f"no open row of scope {job.gate.scope!r} has its lease and grace over\n{json.dumps(found)}\n")
    return 0


def _pass(reconciler: Reconciler, *, waits: bool) -> int:
    try:
        done = _shown(reconciler)
    except (Unavailable, OutcomeUnknown) as error:
        if not waits:
            raise
        sys.stderr.write(f"oncesink: the pass was given up: {error}\n")
        return 1
    _print(done.as_dict(), ROWS)
    return 0 if done.clean else 1


def _shown(reconciler: Reconciler) -> Reconciled:
    columns = (TextColumn("rows in doubt"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=reconciler.overdue())
        return reconciler.run(lambda so_far: bar.update(task, completed=so_far.listed))


def _print(found: dict[str, Any], rows: Any) -> None:
    table = Table("rows", "", show_header=False)
    for name, meaning in rows:
        if found[name] or name == "listed":
            table.add_row(f"{found[name]:,}", meaning)
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)
    for key, why in found.get("keys", ()):
        console.print(f"{key}: {why}", markup=False, highlight=False, soft_wrap=True)
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()

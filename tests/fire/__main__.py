"""Run the scenarios: `python -m tests.fire [NAME ...]`; QUICK=1 for the short run.

A table for people, then, last on stdout, one line of JSON. The exit code is 1 when a promise broke, when a scenario
could not run, or when the full run proved less than it is meant to.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from tests.fire.scenario import Figures, Scenario, found

COUNTED = (
    "simulated_schedules",
    "distinct_traces",
    "cells_min",
    "cluster_kills",
    "kills_external",
    "kills_in_window",
    "records",
    "lost",
    "twice",
    "wrong",
    "in_window",
)
LEAST = {"simulated_schedules": 1_000_000, "cells_min": 1, "cluster_kills": 50, "records": 5_000_000}
"""What a full run of all scenarios proves at least."""
LEAST_IN_WINDOW = 0.2
"""Share of the kills at external sinks that leave open rows behind."""


def main(only: list[str]) -> int:
    """Run them all; return the exit code."""
    quick = os.environ.get("QUICK", "") not in ("", "0")
    begin = time.monotonic()
    results = {each.name: one(each, quick=quick) for each in found(only)}
    total = sum((figures for figures, _ in results.values()), Figures())
    if not quick and not only:
        total.broken += shortfalls(total)
    Console(width=None if sys.stdout.isatty() else 140).print(table(results, total))
    for line in (*total.notes, *(f"BROKEN {each}" for each in total.broken)):
        print(line)  # noqa: T201 - a program
    seconds = round(time.monotonic() - begin, 1)
    print(json.dumps({name: getattr(total, name) or 0 for name in COUNTED} | {"seconds": seconds}))  # noqa: T201
    return 0 if total.held else 1


def one(scenario: Scenario, *, quick: bool) -> tuple[Figures, float]:
    """Run a scenario in a folder of its own, which stays if a promise broke."""
    print(f"{time.strftime('%H:%M:%S')} {scenario.name}", file=sys.stderr, flush=True)  # noqa: T201
    folder = Path(tempfile.mkdtemp(prefix=f"oncesink-fire-{scenario.name}-"))
    begin = time.monotonic()
    try:
        figures = in_environment(scenario, quick=quick, folder=folder)
    except Exception as error:  # noqa: BLE001 - a scenario that fails proves nothing, and the others go on
        (folder / "traceback").write_text(traceback.format_exc())
        figures = Figures(broken=[f"{scenario.name} failed: {error!r}; see {folder}"])
    if figures.held:
        subprocess.run(["rm", "-rf", str(folder)], check=False)
    else:
        figures.notes.append(f"{scenario.name}: logs and keys are in {folder}")
    return figures, time.monotonic() - begin


def in_environment(scenario: Scenario, *, quick: bool, folder: Path) -> Figures:
    """Run it here, or by the Python of the environment that it names."""
    if scenario.environment == "beam":
        return scenario.run(quick=quick, folder=folder)
    variable = f"{scenario.environment.upper()}_PYTHON"
    python = os.environ.get(variable)
    if not python:
        raise RuntimeError(
            f"set {variable}= to the Python of the {scenario.environment} environment (see `make setup`)"
        )
    command = [python, "-m", "tests.fire.one", scenario.name, str(folder), *(["quick"] if quick else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}")
    return Figures(**json.loads(done.stdout.splitlines()[-1]))


def shortfalls(total: Figures) -> list[str]:
    """Say what the full run proved less of than it should."""
    least = {name: (getattr(total, name) or 0, bar) for name, bar in LEAST.items()}
    found_short = [f"only {value} {name}, not {bar}" for name, (value, bar) in least.items() if value < bar]
    if total.kills_in_window < LEAST_IN_WINDOW * total.kills_external or not total.kills_external:
        found_short.append(f"only {total.kills_in_window} of {total.kills_external} kills left open rows")
    return found_short


def table(results: dict[str, tuple[Figures, float]], total: Figures) -> Table:
    """Lay it out for a person."""
    drawn = Table(Column("scenario", no_wrap=True), title="oncesink under fire")
    for name in (*COUNTED, "seconds"):
        drawn.add_column(name.replace("_", " ").replace("simulated ", "").replace("cluster ", ""), justify="right")
    for name, (figures, seconds) in results.items():
        drawn.add_row(name if figures.held else f"[red]{name}[/]", *cells(figures), f"{seconds:.0f}")
    drawn.add_section()
    drawn.add_row("all", *cells(total), f"{sum(seconds for _, seconds in results.values()):.0f}")
    return drawn


def cells(figures: Figures) -> list[str]:
    """Return the counts as text; what does not apply is empty."""
    values = [(name, getattr(figures, name)) for name in COUNTED]
    shown = ("lost", "twice", "wrong", "cells_min")
    return ["" if value is None or (value == 0 and name not in shown) else f"{value:,}" for name, value in values]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

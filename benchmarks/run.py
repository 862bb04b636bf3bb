"""Run benchmark groups: `python -m benchmarks.run [group ...]`.

A group is a module of this folder that has a function `rows() -> list[MeasuredRow]`. Its results go to `results/` and
to `docs/measured.md`, its chart to `docs/pictures/`. The last line of stdout is one JSON object; a row below its bar
makes the exit code 1.
"""

import importlib
import json
import os
import pkgutil
import platform
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import benchmarks
from benchmarks import page
from benchmarks.chart import chart
from benchmarks.rows import MeasuredRow, figure, missed, summary

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PICTURES = HERE.parent / "docs" / "pictures"
OF_INTEREST = (
    "oncesink",
    "apache-beam",
    "aws-lambda-powertools",
    "mmh3",
    "numpy",
    "pybloom-live",
    "PyMySQL",
    "rbloom",
    "redis",
)

Measure = Callable[[], list[MeasuredRow]]


def main(names: list[str]) -> int:
    """Run the named groups, or all, and return the exit code."""
    found: list[MeasuredRow] = []
    for name, measure in groups(names).items():
        print(f"measuring {name}", file=sys.stderr)
        begin = time.monotonic()
        rows = measure()
        keep(name, rows, seconds=time.monotonic() - begin)
        found += rows
    Console(width=None if sys.stdout.isatty() else 120).print(table(found))
    print(json.dumps({"rows": [summary(row) for row in found]}))
    return 1 if any(missed(row) for row in found) else 0


def groups(names: list[str]) -> dict[str, Measure]:
    """Return the groups that were asked for, all of them if none was; a name that is no group ends the program."""
    modules = sorted(module.name for module in pkgutil.iter_modules(benchmarks.__path__) if module.name != "run")
    # Only what was asked for is imported: a group may need an engine that another environment lacks.
    wanted = [name for name in modules if not names or name in names]
    found = {name: measure for name in wanted if (measure := measure_of(name)) is not None}
    unknown = sorted(set(names) - set(found))
    if unknown:
        raise SystemExit(f"no such group: {', '.join(unknown)}")
    return found


def measure_of(name: str) -> Measure | None:
    """Return the function that measures a group, or None if the module is no group."""
    measure: Measure | None = getattr(importlib.import_module(f"benchmarks.{name}"), "rows", None)
    return measure if callable(measure) else None


def keep(name: str, rows: list[MeasuredRow], *, seconds: float) -> None:
    """Write the raw results and the chart of a group."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    PICTURES.mkdir(parents=True, exist_ok=True)
    result = {"group": name, "seconds": round(seconds, 1), "machine": machine(), "rows": rows}
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (PICTURES / f"bench-{name}.svg").write_text(chart(f"oncesink: {name}", rows), encoding="utf-8")
    page.write()


def machine() -> dict[str, Any]:
    """Return what a reader needs in order to judge absolute figures."""
    return {
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: found for name in OF_INTEREST if (found := installed(name))},
    }


def installed(name: str) -> str | None:
    """Return the version of a distribution, or None where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def table(rows: list[MeasuredRow]) -> Table:
    """Lay the rows out for a person."""
    drawn = Table("what", "unit", title="oncesink side by side")
    for heading in ("ours", "theirs", "ratio", "at least"):
        drawn.add_column(heading, justify="right")
    for row in rows:
        bar = "" if row["at_least"] is None else f"{row['at_least']:g}"
        ratio = f"[{'red' if missed(row) else 'green'}]{row['ratio']:.2f}[/]"
        drawn.add_row(row["name"], row.get("unit", ""), figure(row["ours"]), figure(row["theirs"]), ratio, bar)
    return drawn


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A PyFlink job with the gate against the same job without it, in both execution modes, on real servers.

The jobs run in an environment that has PyFlink: this one, or `.venv-flink`.
"""

import json
import os
import statistics
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from benchmarks.rows import MeasuredRow

ROOT = Path(__file__).resolve().parents[1]
ROUNDS, RECORDS = 5, 60_000
MODES = ("process", "thread")


def rows() -> list[MeasuredRow]:
    """Measure both modes, each in a Java process of its own."""
    found = []
    for mode in MODES:
        rates = measured(mode)
        ours, theirs = rates["gate"], rates["no gate"]
        found.append(
            MeasuredRow(
                name=f"PyFlink keyed sink with the gate, against the same without it ({mode} mode)",
                ours=statistics.median(ours),
                theirs=statistics.median(theirs),
                ratio=statistics.median(our / their for our, their in zip(ours, theirs, strict=True)),
                at_least=0.75,
                unit="records/s",
                raw={"ours": ours, "theirs": theirs},
            )
        )
    return found


def measured(mode: str) -> dict[str, list[float]]:
    """Return records a second of each side and round."""
    python = interpreter()
    # Thread mode finds its packages by PYTHONPATH alone.
    said = subprocess.run(
        [python, "-c", "import sys; print(*sys.path[1:], sep='\\n')"], capture_output=True, text=True, check=True
    )
    path = os.pathsep.join([str(ROOT), *filter(None, said.stdout.splitlines())])
    # Not as a program: what is defined in `__main__` would travel to the workers by value.
    command = [python, "-c", f"from benchmarks.jobs.flink import main; main({mode!r}, {ROUNDS}, {RECORDS})"]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True, check=True
    )
    rates: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return rates


def interpreter() -> str:
    """Return a Python that has PyFlink."""
    beside = ROOT / ".venv-flink" / "bin" / "python"
    if find_spec("pyflink") is not None:
        return sys.executable
    if beside.exists():
        return str(beside)
    raise SystemExit("no PyFlink here: make setup, or python -m benchmarks.run flink in an environment that has it")

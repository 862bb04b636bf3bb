"""A PyFlink job with the gate against the same job without it, in both execution modes, on real servers.

Beside them what a membership filter costs in keyed state. All of it runs in an environment that has PyFlink: this one,
or `.venv-flink`.
"""

import json
import os
import statistics
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.rows import MeasuredRow

ROOT = Path(__file__).resolve().parents[1]
ROUNDS, RECORDS = 3, 60_000
MODES = ("process", "thread")
TOLD = {"OnceSink": False, "write_once": True}
"""Whether the streams behind the gate hold what was written."""
CYCLE_KEYS, SHARD_KEYS = 20_000, 1_000_000
STATE_BYTES, RESTORE_SECONDS = 24.0, 1.0


def rows() -> list[MeasuredRow]:
    """Measure the jobs, then the state."""
    return [*jobs(), *state()]


def state() -> list[MeasuredRow]:
    """Measure what a new key writes into state beside the buffer, and how long a shard takes to come back."""
    found = run(f"from benchmarks.jobs.flink_state import main; main({CYCLE_KEYS}, {SHARD_KEYS})")
    return [
        below("PyFlink filter state, bytes written a new key / allowed", found["bytes"], STATE_BYTES, unit="bytes"),
        below("PyFlink restore of a shard with 1 M keys / allowed", found["seconds"], RESTORE_SECONDS, unit="s"),
    ]


def below(name: str, ours: float, allowed: float, *, unit: str) -> MeasuredRow:
    """Return a row where less is better, and where more than what is allowed misses the bar."""
    return MeasuredRow(name=name, ours=ours, theirs=allowed, ratio=allowed / ours, at_least=1.0, unit=unit, raw={})


def jobs() -> list[MeasuredRow]:
    """Measure both modes and both ways to put a gate behind a stream, each in a Java process of its own."""
    return [job(mode, binding) for mode in MODES for binding in TOLD]


def job(mode: str, binding: str) -> MeasuredRow:
    """Measure one of them."""
    # Not as a program: what is defined in `__main__` would travel to the workers by value.
    arguments = f"{mode!r}, {TOLD[binding]}, {ROUNDS}, {RECORDS}"
    rates = run(f"from benchmarks.jobs.flink import main; main({arguments})")
    ours, theirs = rates["gate"], rates["no gate"]
    return MeasuredRow(
        name=f"PyFlink {binding}, {mode} mode, against the same without the gate",
        ours=statistics.median(ours),
        theirs=statistics.median(theirs),
        ratio=statistics.median(our / their for our, their in zip(ours, theirs, strict=True)),
        at_least=0.75,
        unit="records/s",
        raw={"ours": ours, "theirs": theirs},
    )


def run(program: str) -> Any:
    """Run a program in a Python that has PyFlink; return what its last line says."""
    python = interpreter()
    # Thread mode finds its packages by PYTHONPATH alone.
    said = subprocess.run(
        [python, "-c", "import sys; print(*sys.path[1:], sep='\\n')"], capture_output=True, text=True, check=True
    )
    path = os.pathsep.join([str(ROOT), *filter(None, said.stdout.splitlines())])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [python, "-c", program], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def interpreter() -> str:
    """Return a Python that has PyFlink."""
    beside = ROOT / ".venv-flink" / "bin" / "python"
    if find_spec("pyflink") is not None:
        return sys.executable
    if beside.exists():
        return str(beside)
    raise SystemExit("no PyFlink here: make setup, or python -m benchmarks.run flink in an environment that has it")

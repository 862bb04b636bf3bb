"""Stamps in a real job: killed twice, restored from its checkpoints, rescaled 2 -> 3 -> 1."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

pytest.importorskip("pyflink", reason="PyFlink is not installed here: make setup puts it into .venv-flink")

from tests.engines.flink_stamp_job import FILES, LANES, LINES
from tests.servers import die_with_parent

pytestmark = [pytest.mark.flink, pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = dict(os.environ)
"""As it was before any job ran: workers that are threads of this process change it, so that it could start no Java."""


def test_numbers_come_back_after_a_kill_and_never_twice_through_a_rescale(tmp_path: Path) -> None:
    """Whatever was stamped again got the stamp that it had; no two records share one; every record has one."""
    (tmp_path / "in").mkdir()
    for file in range(FILES):
        lanes = range(file, LANES, FILES)
        lines = [json.dumps({"lane": lane, "pos": pos}) for pos in range(LINES) for lane in lanes]
        (tmp_path / "in" / f"{file}.jsonl").write_text("\n".join(lines) + "\n")
    program = (
        f"from tests.engines.flink_stamp_job import main; main({str(tmp_path)!r}, (2, True), (3, True), (1, False))"
    )
    command = [*die_with_parent(), sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=250, check=False)
    assert done.stdout.split() == ["-9", "-9", "0"], done.stdout + done.stderr
    stamps = defaultdict(list)
    for line in (tmp_path / "stamps").read_text().splitlines():
        stamp, record = line.split(" ", 1)
        stamps[record].append(stamp)
    assert len(stamps) == LANES * LINES
    assert all(len(set(each)) == 1 for each in stamps.values())
    assert len({each[0] for each in stamps.values()}) == LANES * LINES
    assert sum(len(each) > 1 for each in stamps.values()) > 20

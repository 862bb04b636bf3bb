"""One run of the demo's pipeline, in a process that may die: `-m oncesink.pipelines.demo_child ENGINE JOB_FILE`."""

from __future__ import annotations

import importlib
import logging
import sys
from pathlib import Path

from oncesink.connectors.errors import OnceSinkError
from oncesink.pipelines.demo_job import Job


def main(engine: str, job_file: str) -> int:
    """Run the job; return the exit status."""
    logging.basicConfig(level=logging.WARNING)
    try:
        job = Job.load(Path(job_file))
        importlib.import_module(f"oncesink.pipelines.demo_{engine}").run(job)
    except OnceSinkError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""Run one scenario in the environment of this Python: `python -m tests.fire.one NAME FOLDER [quick]`.

The last line of stdout is its figures as JSON.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from tests.fire.scenario import found


def main(name: str, folder: str, *words: str) -> None:
    """Run it."""
    (scenario,) = found([name])
    print(json.dumps(asdict(scenario.run(quick="quick" in words, folder=Path(folder)))))  # noqa: T201 - its answer


if __name__ == "__main__":
    main(*sys.argv[1:])

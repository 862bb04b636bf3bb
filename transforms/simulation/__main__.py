"""Tell the schedule of a seed of `make fire`: `python -m oncesink.transforms.simulation SEED`."""

from __future__ import annotations

import sys

from .choices import Drawn
from .report import Told, tell
from .simulator import Simulator
from .subjects import of_seed, subject


def main(seed: int) -> int:
    """Print its steps, shrunk if it breaks a promise; return the exit code."""
    mode, redis = of_seed(seed)
    simulator = Simulator(subject(mode, redis=redis))
    story: list[str] = []
    verdict = simulator.run(Drawn(seed), story)
    told = tell(simulator, seed) if verdict.broken else Told(seed, [], ["every promise held"], story)
    sys.stdout.write(f"{mode}{' on Redis' if redis else ''}, {told}\n")
    return 1 if verdict.broken else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))

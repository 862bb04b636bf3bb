"""Schedules by the million: the real gate in virtual time, on all columns of the crash table."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread

from oncesink.transforms.simulation import report
from oncesink.transforms.simulation.report import Failure, Report, keep, tell
from oncesink.transforms.simulation.simulator import Simulator
from oncesink.transforms.simulation.subjects import of_seed, subject

from tests.fire.scenario import Figures

QUICK_SCHEDULES = 20_000
SCHEDULES = 1_000_000
BLOCK = 2_500
PROCESSES = 2


def run_scenario(schedules: int, folder: Path) -> tuple[Report, Figures]:
    """Run so many schedules, and tell those that break a promise."""
    total = Report()
    with workers() as pool:
        for part in pool.map(block, blocks(schedules)):
            total.add(part)
    count, (kind, step, situation) = total.cells.rarest()
    notes = [f"rarest cell: {kind.label}, {step.label}, {situation.label}: {count}"]
    if total.excused:
        notes.append(f"{total.excused} second effects of keys whose rows Redis had lost")
    figures = Figures(
        simulated_schedules=total.schedules,
        distinct_traces=len(total.traces),
        cells_min=count,
        lost=total.lost,
        twice=total.twice,
        wrong=total.wrong,
        in_window=total.in_window,
        broken=[told(each, folder) for each in total.failures[:3]],
        notes=notes,
    )
    return total, figures


def workers() -> ProcessPoolExecutor:
    """Return a pool of processes."""
    return ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn"), initializer=end_with_parent)


def end_with_parent() -> None:
    """Let this process of a pool end as soon as its parent is gone, even by SIGKILL: a pool does not see to that."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def run(*, quick: bool, folder: Path) -> Figures:
    """Run the schedules of a run; SCHEDULES= sets another number."""
    schedules = int(os.environ.get("SCHEDULES", QUICK_SCHEDULES if quick else SCHEDULES))
    return run_scenario(schedules, folder)[1]


def blocks(schedules: int) -> Iterator[range]:
    """Cut the seeds into pieces of work."""
    for start in range(0, schedules, BLOCK):
        yield range(start, min(start + BLOCK, schedules))


def block(seeds: range) -> Report:
    """Run a piece, each seed on the column that is its turn."""
    turns: defaultdict[tuple[str, bool], list[int]] = defaultdict(list)
    for seed in seeds:
        turns[of_seed(seed)].append(seed)
    total = Report()
    for (mode, redis), mine in turns.items():
        simulator = Simulator(subject(mode, redis=redis))
        total.add(report.run(simulator, mine, name=f"{mode}{' on Redis' if redis else ''}"))
    return total


def told(failure: Failure, folder: Path) -> str:
    """Shrink a failing schedule, keep it, and name it."""
    mode, redis = of_seed(failure.seed)
    found = tell(Simulator(subject(mode, redis=redis)), failure.seed)
    keep(found, folder)
    return f"{failure.subject}: {found.problems[0]}; python -m oncesink.transforms.simulation {failure.seed}\n{found}"

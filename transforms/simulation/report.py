"""Run many schedules, count, and tell a failing one as steps that a person can follow."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from .cells import Cells
from .choices import Drawn, Given
from .oracle import Verdict
from .shrink import shrink
from .simulator import Simulator

KEPT_FAILURES = 20


class Failure(NamedTuple):
    """A seed whose schedule broke a promise."""

    subject: str
    seed: int
    verdict: Verdict


@dataclass
class Report:
    """What a number of schedules came to."""

    schedules: int = 0
    traces: set[int] = field(default_factory=set)
    cells: Cells = field(default_factory=Cells)
    lost: int = 0
    twice: int = 0
    wrong: int = 0
    misreported: int = 0
    stuck: int = 0
    in_window: int = 0
    excused: int = 0
    failures: list[Failure] = field(default_factory=list)

    def count(self, verdict: Verdict, trace: int) -> None:
        """Add one schedule."""
        self.schedules += 1
        self.traces.add(trace)
        self.lost += verdict.lost
        self.twice += verdict.twice
        self.wrong += verdict.wrong
        self.misreported += verdict.misreported
        self.stuck += verdict.stuck
        self.in_window += verdict.in_window
        self.excused += verdict.excused

    def add(self, other: Report) -> None:
        """Add another run's counts."""
        self.schedules += other.schedules
        self.traces |= other.traces
        self.cells.add(other.cells)
        for name in ("lost", "twice", "wrong", "misreported", "stuck", "in_window", "excused"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.failures = (self.failures + other.failures)[:KEPT_FAILURES]

    def __repr__(self) -> str:
        counts = f"lost={self.lost} twice={self.twice} wrong={self.wrong} misreported={self.misreported}"
        return f"<Report schedules={self.schedules} distinct_traces={len(self.traces)} {counts}>"


def run(simulator: Simulator, seeds: Iterable[int], *, name: str, stop_at_first: bool = False) -> Report:
    """Run one schedule a seed."""
    report = Report()
    before = list(simulator.world.cells.counts)
    for seed in seeds:
        verdict = simulator.run(Drawn(seed))
        report.count(verdict, simulator.trace())
        if verdict.broken:
            if len(report.failures) < KEPT_FAILURES:
                report.failures.append(Failure(name, seed, verdict))
            if stop_at_first:
                break
    after = simulator.world.cells.counts
    report.cells.counts = [now - then for now, then in zip(after, before, strict=True)]
    return report


class Told(NamedTuple):
    """A failing schedule, shrunk and in words."""

    seed: int
    choices: list[int]
    problems: list[str]
    steps: list[str]

    def __str__(self) -> str:
        steps = "\n".join(f"{number:4}. {step}" for number, step in enumerate(self.steps, 1))
        return f"seed {self.seed}\n{steps}\n" + "\n".join(self.problems)


def tell(simulator: Simulator, seed: int) -> Told:
    """Shrink a failing seed's schedule and tell it."""
    drawn = Drawn(seed)
    broken = simulator.run(drawn).broken

    def fails(choices: list[int]) -> bool:
        return simulator.run(Given(choices)).broken == broken

    choices = shrink(drawn.taken, fails)
    story: list[str] = []
    verdict = simulator.run(Given(choices), story)
    return Told(seed, choices, verdict.problems, story)


def keep(told: Told, folder: Path | None = None) -> Path:
    """Leave seed, choices, steps and what broke in a folder, a new one if none is given; return the folder."""
    place = folder or Path(tempfile.mkdtemp(prefix="oncesink-simulation-"))
    place.mkdir(parents=True, exist_ok=True)
    (place / f"seed-{told.seed}.txt").write_text(f"{told}\n", encoding="utf-8")
    values = {"seed": told.seed, "choices": told.choices, "problems": told.problems}
    (place / f"seed-{told.seed}.json").write_text(json.dumps(values) + "\n", encoding="utf-8")
    return place

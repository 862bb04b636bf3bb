"""Put a gate and a sink through schedules: crashes, zombies, lost replies, replays, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ...connectors.contract import Sink
from ..gate import Gate
from .report import Report, Told, keep, run, tell
from .simulator import Simulator, Subject
from .source import MakeRecord, make_record


class PromiseBroken(AssertionError):
    """A schedule lost an effect, caused it twice, or reported it wrongly. `told` holds it, shrunk, step by step."""

    def __init__(self, told: Told, folder: Path) -> None:
        super().__init__(told, folder)
        self.told = told
        self.folder = folder

    def __str__(self) -> str:
        return f"{self.told}\nkept in {self.folder}"


def simulate(
    gate: Gate,
    sink: Sink | None = None,
    *,
    seeds: Iterable[int] = range(1000),
    record: MakeRecord = make_record,
    effects: Callable[[], Iterable[Any]] | None = None,
    reset: Callable[[], object] | None = None,
    poison: bool = False,
    folder: Path | None = None,
) -> Report:
    """Run one schedule a seed, and return what they came to. Without a sink the gate drops duplicates.

    The gate's rules, and a sink's `write` and `probe`, run as they would in a job; ledger, cache, filter and clock are
    the simulation's own, so nothing of the gate's stores is touched and no time passes. `record` makes what the gate
    reads of a `Delivery`. `effects` returns the records in the sink's target, equal to what it was given, and `reset`
    empties it: not needed for `MemorySink` and `MemoryTable`. `poison=True` where the sink refuses the records of
    deliveries that are `poison`.

    Raises `PromiseBroken` for the first seed that breaks a promise, after shrinking its schedule; `folder`, or a new
    one, then holds it. The same seeds always give the same schedules.
    """
    simulator = Simulator(
        Subject(gate=gate, sink=sink, record=record, effects=effects, reset=reset, poison=poison, loses_rows=False)
    )
    report = run(simulator, seeds, name=gate.scope, stop_at_first=True)
    for failure in report.failures:
        told = tell(simulator, failure.seed)
        raise PromiseBroken(told, keep(told, folder))
    return report

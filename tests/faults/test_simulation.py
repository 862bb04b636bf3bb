"""Schedules from seeds: they are what they say, they find what is broken, and people can read what they find."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from oncesink.connectors import (
    ALREADY,
    WRITTEN,
    Answer,
    CallableSink,
    MemoryLedger,
    Misconfigured,
    SQLiteLedger,
    SQLiteTable,
    Write,
)
from oncesink.transforms import Fields, Gate, SourcePosition
from oncesink.transforms.simulation import Delivery, PromiseBroken, simulate
from oncesink.transforms.simulation.cells import Kind, Situation, Step, impossible
from oncesink.transforms.simulation.choices import Drawn, Given
from oncesink.transforms.simulation.report import Report, run
from oncesink.transforms.simulation.shrink import shrink
from oncesink.transforms.simulation.simulator import Simulator
from oncesink.transforms.simulation.source import deliveries
from oncesink.transforms.simulation.subjects import MODES, REDIS_MODES, subject
from oncesink.transforms.simulation.table import render

from .test_broken_gates import BROKEN, Break

SUBJECTS = [*((mode, False) for mode in MODES), *((mode, True) for mode in REDIS_MODES)]
LEASES = {"lease": timedelta(seconds=2), "grace": timedelta(seconds=1), "parked": "output"}


@pytest.mark.parametrize(("mode", "redis"), SUBJECTS)
def test_every_promise_holds(mode: str, redis: bool) -> None:
    """Under schedules of each column; `make fire` runs a thousand times as many."""
    report = run(Simulator(subject(mode, redis=redis)), range(150), name=mode)
    assert not report.failures
    assert report.schedules == 150
    assert len(report.traces) > 140


def test_a_seed_is_a_schedule() -> None:
    """The same steps each time, and the same again from its choices."""
    simulator, other = Simulator(subject("probe")), Simulator(subject("probe"))
    for seed in range(50):
        drawn = Drawn(seed)
        simulator.run(drawn)
        trace = simulator.trace()
        other.run(Drawn(seed))
        assert other.trace() == trace
        other.run(Given(drawn.taken))
        assert other.trace() == trace


def test_what_counts_as_a_schedule() -> None:
    """At least 8 deliveries of 3 keys, two workers, a replay and a fault: what the figures are defined by."""
    simulator = Simulator(subject("probe"))
    for seed in range(200):
        sent = deliveries(Drawn(seed), poison=True)
        assert len(sent) >= 8
        assert len({each.key for each in sent}) >= 3
        story: list[str] = []
        assert not simulator.run(Drawn(seed), story).problems
        gets = [line.split("worker ")[1].split()[0] for line in story if " gets " in line]
        assert len(set(gets)) >= 2
        assert any("FAULT" in line for line in story)
        brought = [place for line in story if " gets " in line for place in set(line.split(" gets ")[1].split(", "))]
        assert len(brought) > len(sent), "nothing came again"


@pytest.mark.parametrize("broken", BROKEN, ids=lambda each: each.__name__)
def test_a_broken_gate_is_found_and_told(broken: Break, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each within the seeds of a quick run, shrunk, as numbered steps, kept where the error says."""
    broken(monkeypatch)
    simulators = {mode: Simulator(subject(mode)) for mode in MODES}
    mode, seed = next(
        (mode, seed) for seed in count() for mode, each in simulators.items() if each.run(Drawn(seed)).broken
    )
    assert seed < 1000

    its = subject(mode)
    with pytest.raises(PromiseBroken) as caught:
        simulate(its.gate, its.sink, seeds=[seed], poison=True, folder=tmp_path)
    told = caught.value.told
    assert str(caught.value).splitlines()[1].startswith("   1. ")
    assert 0 < len(told.steps) < 80
    assert told.problems
    assert json.loads((tmp_path / f"seed-{seed}.json").read_text())["choices"] == told.choices
    assert told.steps[0] in (tmp_path / f"seed-{seed}.txt").read_text()


def test_what_the_table_calls_impossible_never_occurs() -> None:
    """And what it does not, does."""
    total = Report()
    for mode, redis in SUBJECTS:
        total.add(run(Simulator(subject(mode, redis=redis)), range(200), name=mode))
    cells = [(kind, step, situation) for kind in Kind for step in Step for situation in Situation]
    assert not [cell for cell in cells if impossible(*cell) and total.cells[cell]]
    possible = [cell for cell in cells if not impossible(*cell)]
    assert sum(total.cells[cell] > 0 for cell in possible) > 0.9 * len(possible)


def test_the_page_of_guarantees_shows_the_table() -> None:
    """As it is counted; `python -m oncesink.transforms.simulation.table` makes it anew."""
    assert render() in (Path(__file__).parents[2] / "docs" / "guarantees.md").read_text(encoding="utf-8")


def test_shrinking_finds_the_choices_that_matter() -> None:
    """Of many, those two that are needed."""

    def fails(choices: Sequence[int]) -> bool:
        return 7 in choices and 9 in choices[list(choices).index(7) :]

    assert shrink([3, 1, 7, 4, 4, 2, 9, 9, 5] * 5, fails) == [7, 9]


class Shop:
    """Somebody's own service: a list, and a memory for keys that may be switched off."""

    def __init__(self, *, remembers: bool) -> None:
        self.orders: list[Any] = []
        self.known: set[str] = set()
        self.remembers = remembers

    def write(self, writes: Sequence[Write]) -> Sequence[Answer]:
        return [self.take(each) for each in writes]

    def take(self, write: Write) -> Answer:
        if write.idempotency_key in self.known:
            return ALREADY
        if self.remembers:
            self.known.add(write.idempotency_key)
        self.orders.append(write.record)
        return WRITTEN

    def empty(self) -> None:
        self.orders.clear()
        self.known.clear()


def forget(writes: Sequence[Write]) -> None:
    """Say that all is written."""


def order(delivery: Delivery) -> dict[str, Any]:
    return {"order": delivery.key, "line": delivery.at, "amount": delivery.content}


@pytest.fixture
def gate() -> Gate:
    return Gate(
        scope="shop",
        key=Fields("order"),
        occurrence=SourcePosition("lines", "line"),
        ledger=MemoryLedger(),
        **LEASES,  # type: ignore[arg-type]
    )


class TestASinkOfOnesOwn:
    """What users do with theirs."""

    def sink(self, shop: Shop) -> CallableSink:
        return CallableSink(shop.write, name="shop", drops_by_key=True, timeout=timedelta(milliseconds=500))

    def test_one_that_keeps_its_word_passes(self, gate: Gate) -> None:
        """It drops a second write by key, as it says."""
        shop = Shop(remembers=True)
        report = simulate(
            gate, self.sink(shop), seeds=range(200), record=order, effects=lambda: shop.orders, reset=shop.empty
        )
        assert (report.schedules, report.lost, report.twice) == (200, 0, 0)

    def test_one_that_does_not_is_found(self, gate: Gate, tmp_path: Path) -> None:
        """It says that it drops by key and writes again."""
        shop = Shop(remembers=False)
        with pytest.raises(PromiseBroken, match="twice: k"):
            simulate(
                gate,
                self.sink(shop),
                record=order,
                effects=lambda: shop.orders,
                reset=shop.empty,
                folder=tmp_path,
            )

    def test_one_that_loses_is_found(self, gate: Gate, tmp_path: Path) -> None:
        """It says that it has written, and has not."""
        with pytest.raises(PromiseBroken, match="lost: k"):
            simulate(
                gate,
                CallableSink(forget, name="hole", drops_by_key=True, timeout=timedelta(milliseconds=500)),
                record=order,
                effects=tuple,
                reset=tuple,
                folder=tmp_path,
            )

    def test_one_that_cannot_be_read_is_refused(self, gate: Gate) -> None:
        """Without its content nobody can judge."""
        with pytest.raises(Misconfigured, match="effects="):
            simulate(gate, self.sink(Shop(remembers=True)), record=order)

    def test_one_that_commits_with_its_own_database_is_refused(self, gate: Gate) -> None:
        """Its transactions know no virtual time."""
        ledger = SQLiteLedger("sqlite:///orders.db", retention=timedelta(days=1))
        with pytest.raises(Misconfigured, match="MemoryTable"):
            simulate(gate, SQLiteTable(ledger, "orders"), record=order)

    def test_records_that_the_gate_refuses_are_named(self, gate: Gate) -> None:
        """The default record is not what every gate reads."""
        shop = Shop(remembers=True)
        with pytest.raises(Misconfigured, match="the gate refuses the record of Delivery"):
            simulate(gate, self.sink(shop), effects=lambda: shop.orders, reset=shop.empty)

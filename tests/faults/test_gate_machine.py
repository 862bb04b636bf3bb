"""The gate as a state machine: real writers, interleaved step by step, with crashes, lost replies and zombies.

Whatever happens, when the dust has settled:

1. no loss: every key that has an acceptable record has its effect, or was parked;
2. at most one effect a key, unless `on_replay="write"` met a record in doubt;
3. every effect was reported: exactly one occurrence of its key stands on `written`.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from datetime import timedelta
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from oncesink.connectors.memory import memory_store
from oncesink.connectors.memory_sinks import MemorySink, MemoryTable
from oncesink.transforms import Duplicate, Fields, Gate, Passed, Reconciler, Refused, SourcePosition, Written
from oncesink.transforms.patience import settle
from oncesink.transforms.prepare import Item
from oncesink.transforms.retry import Immediately
from oncesink.transforms.session import GateSession

from .interleave import FAULTS, Crash, SteppedCache, SteppedLedger, SteppedSink, Worker, WorkerClock, World

MODES = ("transactional", "drops_by_key", "external-write", "external-probe", "external-park", "drop")
_names = itertools.count()


def refuses_bad(record: dict[str, Any]) -> str | None:
    """What the sink says to a record that it will never take."""
    return "bad" if record["bad"] else None


class WhimsicalFilter:
    """Answers at random: a filter may never decide, so no answer of it may break anything."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def query(self, keys: Any) -> Any:
        return np.array([self._random.random() < 0.5 for _ in range(len(keys))])

    def add(self, keys: Any) -> None:
        """Whatever."""


class GateMachine(RuleBasedStateMachine):
    """One source, one engine that replays what it has not committed, any number of workers alive or given up."""

    @initialize(
        mode=st.sampled_from(MODES),
        cached=st.booleans(),
        filtered=st.booleans(),
        redrives=st.booleans(),
        keys=st.lists(st.integers(1, 3), min_size=1, max_size=3),
        bad=st.sets(st.integers(0, 8), max_size=2),
        seed=st.integers(0, 1000),
    )
    def begin(
        self, mode: str, cached: bool, filtered: bool, redrives: bool, keys: list[int], bad: set[int], seed: int
    ) -> None:
        self.mode = mode
        self.world = World(f"machine-{next(_names)}")
        memory_store(self.world.name).clock = self.world.clock
        ledger = SteppedLedger(self.world)
        self.table = MemoryTable(ledger, "t", refuses=refuses_bad)  # type: ignore[arg-type]
        self.outside = MemorySink(self.world.name, drops_by_key=mode == "drops_by_key", refuses=refuses_bad)
        inner = {"drop": None, "transactional": self.table}.get(mode, self.outside)
        self.sink = None if inner is None else SteppedSink(self.world, inner)
        external = mode.startswith("external")
        self.gate = Gate(
            scope="machine",
            key=Fields("key"),
            occurrence=SourcePosition("source", "at"),
            ledger=ledger,
            cache=SteppedCache(self.world) if cached else None,
            on_replay=mode.removeprefix("external-") if external else None,  # type: ignore[arg-type]
            lease=timedelta(seconds=20) if self.outside_kind else None,
            grace=timedelta(seconds=self.world.grace_seconds) if self.outside_kind else None,
            rejected="output",
            parked="output" if self.outside_kind else "raise",
            redrive="json" if redrives and self.outside_kind else None,
        )
        self.filtered, self.seed = filtered, seed
        at = itertools.count()
        self.records = [
            {"key": f"k{key}", "at": (place := next(at)), "bad": mode != "drop" and place in bad}
            for key, times in enumerate(keys)
            for _ in range(times)
        ]
        self.todo = list(self.records)
        self.commits: list[list[tuple[dict[str, Any], Any]]] = []
        self.doubt = False
        self.batches: list[list[dict[str, Any]]] = []
        self.trace: list[str] = []

    @property
    def outside_kind(self) -> bool:
        return self.mode not in ("transactional", "drop")

    def live(self) -> list[Worker]:
        return [each for each in self.world.workers if not each.done]

    def busy(self) -> bool:
        return any(not each.zombie for each in self.live())

    @precondition(lambda self: self.todo and not self.busy() and len(self.live()) < 3)
    @rule(data=st.data())
    def engine_gives_a_batch(self, data: Any) -> None:
        batch = data.draw(st.lists(st.sampled_from(self.todo), min_size=1, max_size=5))
        self.start(batch)

    @precondition(lambda self: self.live())
    @rule(data=st.data(), steps=st.integers(1, 4), fault=st.sampled_from(FAULTS))
    def somebody_goes_on(self, data: Any, steps: int, fault: str) -> None:
        worker = data.draw(st.sampled_from(self.live()))
        for _ in range(steps - 1):
            self.step(worker, "none")
        self.step(worker, fault)

    def rows_are_open(self) -> bool:
        return any(not row.finished for row in memory_store(self.world.name).rows.values())

    @precondition(lambda self: self.outside_kind and self.rows_are_open() and len(self.live()) < 3)
    @rule(steps=st.integers(0, 6), seed=st.integers(0, 3))
    def a_reconciler_comes_by(self, steps: int, seed: int) -> None:
        """Beside whatever else is at work; it belongs to no engine, and commits nothing."""
        if self.gate.redrive is None and self.mode != "external-probe":
            return
        number = len(self.world.workers)
        self.trace.append(f"W{number} reconciles")
        self.batches.append([])
        worker = Worker(self.world, number, lambda _: self.reconcile(seed))
        worker.zombie = True
        self.world.workers.append(worker)
        for _ in range(steps):
            self.step(worker, "none")

    @precondition(lambda self: self.busy())
    @rule()
    def engine_gives_a_worker_up_and_it_runs_on(self) -> None:
        for each in self.live():
            each.zombie = True
        self.doubt = True

    @precondition(lambda self: self.busy() and len(self.live()) < 3)
    @rule(steps=st.integers(1, 15))
    def engine_runs_a_batch_on_a_second_worker(self, steps: int) -> None:
        """As after a lost heartbeat: the first worker is alive, and its batch begins anew at once."""
        first = next(each for each in self.live() if not each.zombie)
        self.engine_gives_a_worker_up_and_it_runs_on()
        self.start(self.batches[first.number])
        for _ in range(steps):
            self.step(self.world.workers[-1], "none")

    @rule(seconds=st.sampled_from([1.0, 6.0, 25.0, 40.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.advance(seconds)

    @rule()
    def late_calls_arrive(self) -> None:
        self.world.apply_late()

    @rule()
    def the_cache_is_flushed(self) -> None:
        memory_store(self.world.name).entries.clear()

    @precondition(lambda self: self.commits)
    @rule(data=st.data())
    def engine_restores_an_older_state(self, data: Any) -> None:
        keep = data.draw(st.integers(0, len(self.commits) - 1))
        rolled_back = [record for commit in self.commits[keep:] for record, _ in commit]
        self.commits = self.commits[:keep]
        self.todo += [record for record in rolled_back if record not in self.todo]
        for each in self.live():
            each.zombie = True
        self.doubt = True

    def start(self, batch: list[dict[str, Any]]) -> None:
        number = len(self.world.workers)
        self.trace.append(f"W{number} gets {[(r['key'], r['at']) for r in batch]}")
        self.batches.append(batch)
        self.world.workers.append(Worker(self.world, number, lambda worker: self.attempt(worker, batch)))

    def step(self, worker: Worker, fault: str) -> None:
        before = worker.at
        worker.step(fault)
        if fault != "none":
            self.doubt = True
        end = f" ends with {worker.error!r}" if worker.error else " ends" if worker.done else ""
        self.trace.append(f"{self.world.clock.now}: W{worker.number} {before} [{fault}] -> {worker.at}{end}")
        if worker.error is not None and not isinstance(worker.error, Crash):
            assert not isinstance(worker.error, (AssertionError, TypeError, KeyError, AttributeError)), worker.error

    def reconcile(self, seed: int) -> None:
        """One pass over the rows that are open."""
        clock = WorkerClock(self.world)
        assert self.sink is not None
        with Reconciler(self.gate, self.sink, clock=clock, attempts=Immediately(2), seed=seed) as reconciler:
            reconciler.run()

    def attempt(self, worker: Worker, batch: list[dict[str, Any]]) -> None:
        """What an engine does with a batch: flush, wait, commit. A zombie's output is thrown away."""
        clock = WorkerClock(self.world)
        session = GateSession(self.gate, self.sink, clock=clock, attempts=Immediately(2))
        items = [item for item in map(session.prepare, batch) if isinstance(item, Item)]
        membership = WhimsicalFilter(self.seed) if self.filtered else None
        settled, trouble = settle(items, lambda some: session.flush(some, membership), clock)
        if trouble is not None:
            raise trouble
        assert len(settled) == len(batch), "a record has no outcome, or two"
        if not worker.zombie:
            self.commits.append([(item.record, outcome) for item, outcome in settled])
            self.todo = [record for record in self.todo if record not in batch]

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            self.settle_down()
            self.judge()
        except AssertionError as error:
            raise AssertionError(f"{error}\n" + "\n".join([self.mode, *self.trace])) from error

    def settle_down(self) -> None:
        """No more faults: everybody runs to the end, and the engine repeats what is left."""
        for _ in range(3000):
            live = self.live()
            if not live:
                self.world.apply_late()
                if not self.todo:
                    return
                self.start(list(self.todo))
                continue
            for each in live:
                self.step(each, "none")
            if all(each.at == "asleep" for each in live):
                self.world.advance(1.0)
        raise AssertionError(f"it does not come to an end: {self.todo}")

    def effects(self) -> Counter[str]:
        if self.mode == "drop":
            passed = {(r["key"], r["at"]) for commit in self.commits for r, out in commit if isinstance(out, Passed)}
            return Counter(key for key, _ in passed)
        held = self.table.effects if self.mode == "transactional" else self.outside.effects
        return Counter(effect.record["key"] for effect in held)

    def judge(self) -> None:
        effects = self.effects()
        outcomes = [(record, out) for commit in self.commits for record, out in commit]
        for key in {str(record["key"]) for record in self.records}:
            mine = [(record, out) for record, out in outcomes if record["key"] == key]
            self.judge_key(key, mine, effects[key])

    def judge_key(self, key: str, mine: list[tuple[dict[str, Any], Any]], effects: int) -> None:
        good = any(r["key"] == key and not r["bad"] for r in self.records)
        parked = any(type(out).__name__ == "Parked" for _, out in mine)
        written = {record["at"] for record, out in mine if isinstance(out, (Written, Passed))}
        assert effects >= 1 or not good or parked, f"LOSS of {key}"
        if not (self.mode == "external-write" and self.doubt):
            assert effects <= 1, f"{key} has {effects} effects"
            assert len(written) <= 1, f"{key} was reported for {written}"
        assert written or not effects or parked, f"the effect of {key} was never reported: {mine}"
        assert not any(isinstance(out, Duplicate) for _, out in mine) or written or parked, (
            f"a duplicate of nothing: {mine}"
        )
        for record, out in mine:
            if isinstance(out, Refused):
                assert record["bad"] or out.reason == "conflict", f"a good record was refused: {out}"


def test_no_loss_no_double_every_effect_reported() -> None:
    """The three properties hold under every schedule that Hypothesis can think of."""
    run_state_machine_as_test(
        GateMachine,
        settings=settings(
            max_examples=300,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )

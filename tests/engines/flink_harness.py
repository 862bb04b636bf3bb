"""Flink's keyed state, timers and restores in memory, to drive one function through thousands of histories.

What it stands for runs for real in `test_flink_jobs.py` and `test_flink_cluster.py`; here time is set by the test,
and a restore costs nothing.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

import cloudpickle

State = dict[tuple[str, int], list[bytes]]
Timers = set[tuple[str, int, int]]
"""Domain (`processing` or `event`), time, key."""

LAST_WATERMARK = 2**63 - 1


class KeyedHarness:
    """One subtask: a function that travelled to a worker, the keys that it owns, and their state."""

    def __init__(self, function: Any, snapshot: bytes | None = None, *, now_ms: int = 0) -> None:
        self.state: State
        self.timers: Timers
        self.state, self.timers = pickle.loads(snapshot) if snapshot is not None else ({}, set())
        self.now_ms = now_ms
        self.key = 0
        self.written_bytes: dict[str, int] = {}
        self.function = cloudpickle.loads(cloudpickle.dumps(function))
        self.function.open(self)

    def get_state(self, descriptor: Any) -> _Value:
        return _Value(self, descriptor.name)

    def get_list_state(self, descriptor: Any) -> _List:
        return _List(self, descriptor.name)

    def get_metrics_group(self) -> None:
        return None

    def get_current_key(self) -> int:
        return self.key

    def timer_service(self) -> KeyedHarness:
        return self

    def current_processing_time(self) -> int:
        return self.now_ms

    def register_processing_time_timer(self, at_ms: int) -> None:
        self.timers.add(("processing", at_ms, self.key))

    def register_event_time_timer(self, at_ms: int) -> None:
        self.timers.add(("event", at_ms, self.key))

    def process(self, value: Any) -> list[Any]:
        """Deliver one element, a tuple that begins with its key."""
        self.key = value[0]
        return list(self.function.process_element(value, self) or ())

    def advance(self, to_ms: int) -> list[Any]:
        """Move processing time, and fire what is due."""
        self.now_ms = to_ms
        return self._fire("processing", to_ms)

    def finish(self) -> list[Any]:
        """End the input: event time comes to its end, processing-time timers do not fire any more."""
        return self._fire("event", LAST_WATERMARK)

    def snapshot(self, keys: Iterable[int] | None = None) -> bytes:
        """Return what a checkpoint holds, of all keys or of some."""
        chosen = None if keys is None else set(keys)
        state = {place: held for place, held in self.state.items() if chosen is None or place[1] in chosen}
        timers = {timer for timer in self.timers if chosen is None or timer[2] in chosen}
        return pickle.dumps((state, timers))

    def _fire(self, domain: str, until: int) -> list[Any]:
        found = []
        while due := sorted(timer for timer in self.timers if timer[0] == domain and timer[1] <= until):
            self.timers.discard(due[0])
            _, at, self.key = due[0]
            found += list(self.function.on_timer(at, self))
        return found


class _State:
    def __init__(self, harness: KeyedHarness, name: str) -> None:
        self._harness = harness
        self._name = name

    @property
    def _place(self) -> tuple[str, int]:
        return self._name, self._harness.key

    def clear(self) -> None:
        self._harness.state.pop(self._place, None)

    def _put(self, value: Any) -> bytes:
        data = pickle.dumps(value)
        written = self._harness.written_bytes
        written[self._name] = written.get(self._name, 0) + len(data)
        return data


class _Value(_State):
    def value(self) -> Any:
        held = self._harness.state.get(self._place)
        return None if held is None else pickle.loads(held[0])

    def update(self, value: Any) -> None:
        self._harness.state[self._place] = [self._put(value)]


class _List(_State):
    def get(self) -> Iterable[Any]:
        return (pickle.loads(each) for each in list(self._harness.state.get(self._place, [])))

    def add(self, value: Any) -> None:
        self._harness.state.setdefault(self._place, []).append(self._put(value))

    def update(self, values: list[Any]) -> None:
        self._harness.state[self._place] = [self._put(value) for value in values]


def merge(*snapshots: bytes) -> bytes:
    """Return one snapshot of several subtasks, as a savepoint is."""
    state: State = {}
    timers: Timers = set()
    for snapshot in snapshots:
        more, due = pickle.loads(snapshot)
        state.update(more)
        timers |= due
    return pickle.dumps((state, timers))

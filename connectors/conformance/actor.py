"""A thread that owns one session from its opening on, so that a call that never comes back hangs nobody else."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Call:
    """How a call ended: with a value, with an error, or not at all while somebody waited for it."""

    value: Any = None
    error: BaseException | None = None
    seconds: float = 0.0
    late: bool = False


class Actor:
    """Runs functions one after the other, each with a bound on how long it is waited for."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[tuple[Callable[[], Any], queue.SimpleQueue[Call]]] = queue.SimpleQueue()
        # A stuck one must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="oncesink-conformance", daemon=True)
        self._thread.start()

    def begin(self, function: Callable[[], Any]) -> queue.SimpleQueue[Call]:
        """Start a call; its end comes out of the queue."""
        answer: queue.SimpleQueue[Call] = queue.SimpleQueue()
        self._tasks.put((function, answer))
        return answer

    def call(self, function: Callable[[], Any], seconds: float) -> Call:
        """Run a function and wait for it, but not for ever."""
        return ended(self.begin(function), seconds)

    def _run(self) -> None:
        while True:
            function, answer = self._tasks.get()
            answer.put(_measured(function))


def ended(answer: queue.SimpleQueue[Call], seconds: float) -> Call:
    """Return how a call ended, or that it did not within the time."""
    try:
        return answer.get(timeout=seconds)
    except queue.Empty:
        return Call(seconds=seconds, late=True)


def _measured(function: Callable[[], Any]) -> Call:
    began = time.monotonic()
    try:
        value = function()
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is what is examined
        return Call(error=error, seconds=time.monotonic() - began)
    return Call(value=value, seconds=time.monotonic() - began)

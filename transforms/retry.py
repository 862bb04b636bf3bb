"""How often, and for how long, a call is repeated after a passing trouble."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeVar

import stamina

from ..connectors.errors import OutcomeUnknown, Unavailable
from .metrics import Metrics

T = TypeVar("T")
Passing = (Unavailable, OutcomeUnknown)


class Attempts(Protocol):
    """Yields one context manager an attempt, as `stamina.retry_context` does; the last one lets the error through."""

    def __call__(
        self, on: type[Exception] | tuple[type[Exception], ...]
    ) -> Iterator[AbstractContextManager[object]]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Backoff:
    """Exponential back-off with jitter, bounded in tries and in time; keeps a `Retry-After` up to `wait_max`."""

    attempts: int = 8
    timeout: dt.timedelta = dt.timedelta(seconds=20)
    wait_initial: dt.timedelta = dt.timedelta(milliseconds=50)
    wait_max: dt.timedelta = dt.timedelta(seconds=3)

    def __call__(self, on: type[Exception] | tuple[type[Exception], ...]) -> Iterator[AbstractContextManager[object]]:
        def judge(error: Exception) -> bool | float:
            if not isinstance(error, on):
                return False
            asked = getattr(error, "retry_after_seconds", None)
            return True if asked is None else min(max(float(asked), 0.0), self.wait_max.total_seconds())

        return iter(
            stamina.retry_context(
                on=judge,
                attempts=self.attempts,
                timeout=self.timeout,
                wait_initial=self.wait_initial,
                wait_max=self.wait_max,
                wait_jitter=self.wait_initial,
            )
        )


class Immediately:
    """Repeat at once, a bounded number of times: for simulations and tests."""

    def __init__(self, attempts: int = 3) -> None:
        self._attempts = attempts

    def __call__(self, on: type[Exception] | tuple[type[Exception], ...]) -> Iterator[AbstractContextManager[object]]:
        for left in range(self._attempts - 1, -1, -1):
            attempt = _Attempt(on if left else ())
            yield attempt
            if not attempt.failed:
                return


class _Attempt(AbstractContextManager[None]):
    def __init__(self, on: type[Exception] | tuple[type[Exception], ...]) -> None:
        self._on = on
        self.failed = False

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self.failed = error is not None
        return error is not None and isinstance(error, self._on)


def repeat(call: Callable[[], T], attempts: Attempts, metrics: Metrics) -> T:
    """Call until it returns; repeat what is `Unavailable` or `OutcomeUnknown`: only for calls that may be repeated."""
    for number, attempt in enumerate(attempts(Passing)):
        with attempt:
            if number:
                metrics.count("retries")
            return call()
    raise AssertionError("the last attempt neither returned nor raised")

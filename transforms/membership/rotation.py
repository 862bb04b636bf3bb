"""When a filter is followed by a new one, and what is said of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from .contract import FilterUnusable, Occupancy

log = logging.getLogger("oncesink")

MOST_ERROR: float = 2.0
"""All generations together may err so many times as often as one filter is asked to."""

Cause = Literal["fill", "age", "hand"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Alarm:
    """A generation was nearly full, and the next one has begun.

    `number` counts generations from 0; `occupancy` is that of the full one.
    """

    filter: str
    number: int
    occupancy: Occupancy
    next_capacity: int
    given_up: int
    """Generations that had to go for it: the ledger answers for their keys."""

    def __str__(self) -> str:
        gone = f", {self.given_up} old ones given up" if self.given_up else ""
        return (
            f"{self.filter}: generation {self.number} is at {self.occupancy.used:.0%} of {self.occupancy.capacity_keys}"
            f" keys; the next one is for {self.next_capacity}{gone}"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Rotation:
    """When the next generation begins, how large it is, and how many are kept.

    A generation that is used up to the share `alarm_at` is followed by one `growth` times as large, up to growth **
    (keep - 1) times the first; with a `window` also one that is `window / (keep - 1)` old, by one of the same size.
    What is older than the window, and the oldest of more than `keep`, is given up. `on_alarm` is called once a
    generation that was full, in the worker that found it so, besides one line in its log.
    """

    alarm_at: float = 0.8
    growth: float = 1.5
    keep: int = 4
    window: timedelta | None = None
    on_alarm: Callable[[Alarm], None] | None = None
    clock: Callable[[], float] = field(default=time.time, repr=False, compare=False)
    """Seconds since 1970; what is stored is judged by other workers."""

    def __post_init__(self) -> None:
        if not 0 < self.alarm_at <= 1:
            raise FilterUnusable(f"alarm_at={self.alarm_at!r} must be a share of the capacity, such as 0.8")
        if not 1 <= self.growth <= 10:
            raise FilterUnusable(f"growth={self.growth!r} must be a factor from 1 to 10, such as 1.5")
        if type(self.keep) is not int or not 1 <= self.keep <= 64:
            raise FilterUnusable(f"keep={self.keep!r} must be a number of generations from 1 to 64")
        if self.window is not None and (self.window <= timedelta(0) or self.keep == 1):
            raise FilterUnusable(f"window={self.window} with keep={self.keep}: it must be positive, keep at least 2")

    @property
    def description(self) -> str:
        """Return what the settings mean for the keys that are kept."""
        within = "" if self.window is None else f", window={self.window.total_seconds():g}s"
        return f"alarm_at={self.alarm_at:g}, growth={self.growth:g}, keep={self.keep}{within}"

    @property
    def slice_seconds(self) -> float | None:
        """Return for how long keys go into one generation, None for as long as it has room."""
        return None if self.window is None else self.window.total_seconds() / (self.keep - 1)

    def largest(self, first: int) -> int:
        """Return the capacity that generations grow to."""
        return round(first * self.growth ** (self.keep - 1))

    def next_capacity(self, first: int, now: int) -> int:
        """Return the capacity of the generation that follows one of `now` keys."""
        return min(max(round(now * self.growth), now), self.largest(first))

    def check_error(self, rate_at_alarm: float, asked: float) -> None:
        """Refuse settings under which the generations together would err too often. Raises `FilterUnusable`."""
        together = self.keep * rate_at_alarm
        if together > MOST_ERROR * asked:
            raise FilterUnusable(
                f"{self.keep} generations filled up to {self.alarm_at:g} would take {together:.2g} of the absent keys"
                f" for known, more than {MOST_ERROR:g} x error_rate={asked:g}: lower keep or alarm_at"
            )

    def sound(self, alarm: Alarm) -> None:
        """Tell that a generation was full. What the callback raises is logged: a filter is only a hint."""
        log.warning("%s", alarm)
        if self.on_alarm is not None:
            try:
                self.on_alarm(alarm)
            except Exception:
                log.exception("on_alarm failed")

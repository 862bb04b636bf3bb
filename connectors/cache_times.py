"""How long a cache entry lives: at most the cache's `ttl`, and less where a rule says so of the record."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from .errors import Misconfigured

TTLRule = Callable[[Any], timedelta]
"""Tells of a record how long its entry lives, from the finish on. What is above the cache's `ttl` counts as that."""


def ttl_for(retry_interval: timedelta, margin: timedelta | None = None) -> timedelta:
    """Return the time to live for second sends that come once an interval: it, and a margin.

    The margin is a quarter of the interval and at least a minute, unless given: for ten minutes, twelve and a half.
    """
    for name, value in (("retry_interval", retry_interval), ("margin", margin or timedelta(seconds=1))):
        if not isinstance(value, timedelta) or value <= timedelta(0):
            raise Misconfigured(f"{name} is a duration such as timedelta(minutes=10), not {value!r}")
    return retry_interval + (max(retry_interval / 4, timedelta(minutes=1)) if margin is None else margin)


def check_rule(rule: TTLRule | None) -> None:
    """Refuse a rule that is no function. Raises `Misconfigured`."""
    if rule is not None and not callable(rule):
        raise Misconfigured(f"ttl_by is a picklable function of a record that returns a timedelta, not {rule!r}")

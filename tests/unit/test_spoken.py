"""Durations in messages read as those that options take."""

from datetime import timedelta

import pytest
from oncesink.connectors.spoken import spoken
from oncesink.pipelines.stores import duration


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (timedelta(days=7), "7d"),
        (timedelta(minutes=12, seconds=30), "12m 30s"),
        (timedelta(days=1, hours=2, minutes=3, seconds=4.5), "1d 2h 3m 4.5s"),
        (timedelta(microseconds=20), "0.00002s"),
        (timedelta(0), "0s"),
        (timedelta(minutes=-5), "-5m"),
    ],
)
def test_a_duration_is_said_in_the_units_of_options(value: timedelta, said: str) -> None:
    """Not as Python prints it: no `7 days, 0:00:00`."""
    assert spoken(value) == said


@pytest.mark.parametrize("text", ["90s", "30m", "12h", "7d"])
def test_what_is_said_means_the_same_when_it_is_read(text: str) -> None:
    """Where one unit is enough it can be typed again."""
    value = duration(text)
    assert sum(map(duration, spoken(value).split()), timedelta(0)) == value

"""Generations: a stream many times as long as was planned for, and a bounded memory of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from oncesink.transforms.membership import (
    Alarm,
    Bitmap,
    Bloom,
    FilterState,
    FilterTooLarge,
    FilterUnusable,
    Generations,
    GenerationsFilter,
    Keys,
    Rotation,
    memory,
)
from oncesink.transforms.membership.rotation import MOST_ERROR

from tests.unit.membership.filter_contract import FilterContract
from tests.unit.membership.material import Now, digests, nowhen

FIRST = Bloom(capacity=2000, error_rate=0.01)
HOUR = timedelta(hours=1)
ABSENT = [Keys(digests(50_000, seed=99 + part)) for part in range(4)]


class TestGenerations(FilterContract):
    """The suite of all filters."""

    recipe = Generations(Bloom(capacity=400, error_rate=0.001), Rotation(clock=nowhen))
    other = Generations(Bloom(capacity=500, error_rate=0.001), Rotation(clock=nowhen))
    foreign = Bitmap(id="id", capacity=100)
    needs_bytes = recipe.first.memory_bytes
    golden = "2680cab11a97c3e0ff4cac83aab35d53e17bce87df3ae60cd928a4cefbd5b158"
    golden_log = "664f986a0f1245ebb13472a72bf6dba7"


def error_of(live: GenerationsFilter) -> float:
    """Return the share of absent keys that are taken for known ones."""
    return sum(int(live.query(keys).sum()) for keys in ABSENT) / sum(map(len, ABSENT))


@pytest.mark.parametrize("keep", [1, 3, 4])
def test_a_stream_ten_times_as_long_as_planned(keep: int, caplog: pytest.LogCaptureFixture) -> None:
    """New generations are begun in time: at no moment is the error rate above twice the setting.

    There is one alarm and one line in the log for each generation that was full, and at the end the newest keys are
    known, at least as many as the settings promise, but for those that an older generation had been taken to know.
    """
    alarms: list[Alarm] = []
    live = Generations(FIRST, Rotation(keep=keep, on_alarm=alarms.append)).create()
    stream = digests(10 * FIRST.capacity)
    for begin in range(0, len(stream), 500):
        live.add(Keys(stream[begin : begin + 500]))
        if begin % 2000 == 0:
            assert error_of(live) <= MOST_ERROR * FIRST.error_rate
    assert [alarm.number for alarm in alarms] == list(range(len(alarms)))
    assert len(alarms) >= 4
    assert all(0.8 <= alarm.occupancy.used <= 0.83 for alarm in alarms)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * len(alarms)
    found = live.occupancy()
    assert found.generations == keep
    kept = int((keep - 1) * 0.8 * alarms[-1].occupancy.capacity_keys / 2)
    assert live.query(Keys(stream[-max(kept, 1) :])).mean() > 0.98


def test_generations_grow_and_are_bounded() -> None:
    """Each is 1.5 times as large as the one before, up to what `memory_bytes` tells."""
    alarms: list[Alarm] = []
    recipe = Generations(FIRST, Rotation(keep=3, on_alarm=alarms.append))
    live = recipe.create()
    for seed in range(60):
        live.add(Keys(digests(1000, seed=seed)))
    assert [alarm.next_capacity for alarm in alarms][:4] == [3000, 4500, 4500, 4500]
    assert live.snapshot_bytes - 1000 < recipe.memory_bytes
    assert live.snapshot_bytes > 0.95 * recipe.memory_bytes


def test_a_batch_larger_than_a_generation_fills_several() -> None:
    """Looks at the fill do not depend on how keys are batched."""
    alarms: list[Alarm] = []
    live = Generations(FIRST, Rotation(on_alarm=alarms.append)).create()
    live.add(Keys(digests(10_000)))
    assert len(alarms) >= 3
    assert all(alarm.occupancy.used <= 0.83 for alarm in alarms)


def test_repeats_do_not_rotate() -> None:
    """A flood of duplicates, of old generations too, fills nothing."""
    live = Generations(FIRST).create()
    known = Keys(digests(3000))
    live.add(known)
    before = live.revision
    for _ in range(20):
        assert live.record(known) == b""
    assert live.revision == before == 1


def aged(now: Now, keep: int = 4) -> GenerationsFilter:
    """Return a filter for keys of the last three hours."""
    return Generations(FIRST, Rotation(keep=keep, window=3 * HOUR, clock=now)).create()


def test_keys_are_forgotten_by_age() -> None:
    """Within the window every key is known; an hour behind it none is."""
    now = Now()
    live = aged(now)
    for hour in range(12):
        live.add(Keys(digests(100, seed=hour)))
        now.seconds += 3600
    live.query(Keys([]))
    assert [bool(live.query(Keys(digests(100, seed=hour))).all()) for hour in range(12)] == [False] * 9 + [True] * 3
    assert live.occupancy().generations <= 4
    assert 3 * 3600 <= (live.occupancy().window_seconds or 0) <= 4 * 3600


def test_a_long_silence_forgets_everything_and_makes_nothing() -> None:
    """Hours without a key cost no generation."""
    now = Now()
    live = aged(now)
    live.add(Keys(digests(100)))
    now.seconds += 100 * 3600
    assert not live.query(Keys(digests(100))).any()
    for _ in range(10):
        now.seconds += 3600
        live.query(Keys([]))
    assert live.occupancy().generations == 1


def test_age_raises_no_alarm() -> None:
    """Time passes by itself; nothing has to be done about it."""
    now, alarms = Now(), list[Alarm]()
    live = Generations(FIRST, Rotation(window=HOUR, clock=now, on_alarm=alarms.append)).create()
    for _ in range(5):
        live.add(Keys(digests(10)))
        now.seconds += 1800
    assert live.revision > 0
    assert not alarms


def test_rotating_by_hand_keeps_what_is_known() -> None:
    """A new generation, 1.5 times as large, takes over; the old keys are known."""
    live = Generations(FIRST).create()
    live.add(Keys(digests(100)))
    live.rotate()
    live.add(Keys(digests(100, seed=1)))
    assert live.query(Keys(digests(100) + digests(100, seed=1))).all()
    assert live.occupancy().capacity_keys == 5000


def test_a_rotation_is_a_reason_to_compact() -> None:
    """The log does not tell which generation a key belongs to, so what is stored is brought up to date at once."""
    state = FilterState(Generations(FIRST))
    log = [state.record(Keys(digests(1000, seed=seed))) for seed in range(2)]
    assert state.due
    stored = state.compact()
    assert not state.due
    again = FilterState(Generations(FIRST), snapshot=stored)
    assert again.filter.occupancy().generations == 2
    assert again.filter.query(Keys(digests(1000) + digests(1000, seed=1))).all()
    from_log = FilterState(Generations(FIRST), log=log)
    assert from_log.due
    assert from_log.filter.occupancy().generations == 2


def test_a_short_log_is_compacted_too_when_the_filter_has_rotated() -> None:
    """Not only when it is long: its next keys belong to another generation than its first."""
    live = FilterState(Generations(FIRST))
    live.record(Keys(digests(10)))
    assert not live.due
    assert isinstance(live.filter, GenerationsFilter)
    live.filter.rotate()
    assert live.due
    live.compact()
    assert not live.due


def test_a_log_of_known_keys_fills_nothing() -> None:
    """Engines that log every record bring repeats of old generations when they start."""
    live = Generations(FIRST).create()
    live.add(Keys(digests(3000)))
    again = FilterState(live.recipe, snapshot=live.to_bytes(), log=[live.entries(Keys(digests(3000)))] * 5)
    assert again.filter.occupancy().set_bits == live.occupancy().set_bits


def test_a_single_filter_s_snapshot_is_the_first_generation() -> None:
    """Who adds generations to a job keeps what it knows."""
    alone = FIRST.create()
    alone.add(Keys(digests(100)))
    live = Generations(FIRST).load(alone.to_bytes())
    assert live.query(Keys(digests(100))).all()


def test_other_ways_to_rotate_keep_the_stored_generations() -> None:
    """Fewer are kept from then on: the newest."""
    live = Generations(FIRST).create()
    for seed in range(12):
        live.add(Keys(digests(1000, seed=seed)))
    fewer = Generations(FIRST, Rotation(keep=2, alarm_at=0.5)).load(live.to_bytes())
    assert fewer.occupancy().generations == 2
    assert fewer.query(Keys(digests(1000, seed=11))).mean() > 0.98
    assert FilterState(fewer.recipe, snapshot=live.to_bytes()).due


def test_without_memory_for_the_next_one_the_oldest_goes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A job that runs does not fail because a filter should grow."""
    live = Generations(FIRST).create()
    live.add(Keys(digests(3000)))
    monkeypatch.setattr(memory, "available_bytes", lambda: FIRST.memory_bytes)
    live.add(Keys(digests(6000, seed=1)))
    assert "no memory for" in caplog.text
    assert live.query(Keys(digests(500, seed=1))).any() or live.revision
    monkeypatch.setattr(memory, "available_bytes", lambda: 0)
    with pytest.raises(FilterTooLarge):
        Generations(FIRST).create()


def test_what_on_alarm_raises_hinders_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged."""

    def broken(_: Alarm) -> None:
        raise RuntimeError("no pager")

    live = Generations(FIRST, Rotation(on_alarm=broken)).create()
    live.add(Keys(digests(2000)))
    assert "no pager" in caplog.text


@pytest.mark.parametrize(
    "settings",
    [
        {"alarm_at": 0.0},
        {"alarm_at": 1.1},
        {"growth": 0.9},
        {"keep": 0},
        {"keep": 2.0},
        {"window": timedelta(0)},
        {"window": HOUR, "keep": 1},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float]) -> None:
    """The message names them."""
    with pytest.raises(FilterUnusable, match=f"{next(iter(settings))}="):
        Rotation(**settings)  # type: ignore[arg-type]


def test_generations_that_would_err_too_often_are_refused() -> None:
    """Ten full filters of 1 % err in ten per cent of all cases."""
    with pytest.raises(FilterUnusable, match="lower keep or alarm_at"):
        Generations(FIRST, Rotation(keep=10))
    Generations(replace(FIRST, error_rate=0.001), Rotation(keep=8))
    with pytest.raises(FilterUnusable, match="are made of filters such as"):
        Generations(Bitmap(id="id", capacity=10))  # type: ignore[arg-type]


def test_repr_tells_what_is_live() -> None:
    """Good enough for a log line."""
    live = Generations(FIRST).create()
    live.add(Keys(digests(2000)))
    assert repr(live).startswith("<GenerationsFilter 2 live, number 1 the newest: <BloomFilter bloom(capacity=3000")

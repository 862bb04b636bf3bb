"""The cuckoo filter: what came within the window is known, what came before is not."""

from __future__ import annotations

from datetime import timedelta
from math import log, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oncesink.transforms.membership import Bitmap, Bloom, Cuckoo, CuckooFilter, FilterState, FilterUnusable, Keys
from oncesink.transforms.membership.nests import Nests

from tests.unit.membership.filter_contract import FilterContract, keys
from tests.unit.membership.material import Now, digests, nowhen

HOURS = timedelta(hours=6)
ABSENT = 400_000


class TestCuckoo(FilterContract):
    """The suite of all filters."""

    recipe = Cuckoo(capacity=500, window=HOURS, clock=nowhen)
    other = Cuckoo(capacity=600, window=HOURS, clock=nowhen)
    foreign = Bitmap(id="id", capacity=100)
    golden = "c5101e80378ad70ce7c85e7f2d07c13ac2591ff29f878c733e41092dcfa63fd2"
    golden_log = "c0c040420f00664f986a0f1245ebc0c040420f00b13472a72bf6dba7"


def made(now: Now, capacity: int = 1000) -> CuckooFilter:
    """Return a filter that knows keys for six hours."""
    return Cuckoo(capacity=capacity, window=HOURS, clock=now).create()


@pytest.mark.parametrize("capacity", [1000, 100_000])
def test_it_takes_as_many_keys_as_it_is_for(capacity: int) -> None:
    """In batches or all at once, none is forgotten, and the error rate is below one in a thousand."""
    for step in (1000, capacity):
        live = Cuckoo(capacity=capacity, window=HOURS).create()
        for seed in range(capacity // step):
            live.add(Keys(digests(step, seed=seed)))
        assert live.forgotten <= capacity // 20_000
        known = [live.query(Keys(digests(step, seed=seed))).mean() for seed in range(capacity // step)]
        assert np.mean(known) >= 1 - 1e-4
    absent = sum(int(live.query(Keys(digests(50_000, seed=90 + part))).sum()) for part in range(ABSENT // 50_000))
    assert absent / ABSENT <= 0.001 + 3 * sqrt(0.001 / ABSENT)
    assert live.occupancy().estimated_error_rate == pytest.approx(absent / ABSENT, rel=0.2)


def test_the_size_is_within_a_fifth_of_the_least_possible() -> None:
    """Of a Bloom filter of the same error rate, which forgets nothing."""
    least_bytes = -1_000_000 * log(0.001) / log(2) ** 2 / 8
    assert Cuckoo(capacity=1_000_000, window=HOURS).memory_bytes <= 1.2 * least_bytes


def test_keys_are_known_for_the_window_and_no_longer() -> None:
    """From the time they came, and at most a sixth longer."""
    now = Now()
    live = made(now)
    for hour in range(20):
        live.add(Keys(digests(100, seed=hour)))
        known = [live.query(Keys(digests(100, seed=before))).mean() for before in range(hour + 1)]
        assert all(each == 1 for each in known[-7:])
        assert all(each < 0.05 for each in known[:-8])
        now.seconds += 3600
    assert live.occupancy().estimated_keys <= 800


def test_what_is_forgotten_makes_room() -> None:
    """A stream a hundred times as long as the capacity never finds it full."""
    now = Now()
    live = made(now)
    for seed in range(200):
        live.add(Keys(digests(500, seed=seed)))
        now.seconds += 4 * 3600
    assert live.forgotten == 0


def test_a_key_that_comes_again_stays_longer() -> None:
    """The window counts from the last time, and it takes no second place."""
    now = Now()
    live = made(now)
    batch = Keys(digests(100))
    for _ in range(10):
        live.add(batch)
        now.seconds += 3 * 3600
    now.seconds += 2 * 3600
    assert live.query(batch).all()
    assert live.occupancy().estimated_keys == pytest.approx(100, abs=2)


def test_a_long_silence_forgets_everything() -> None:
    """However many slices passed."""
    for hours in (8, 9, 16, 1000):
        now = Now()
        live = made(now)
        live.add(Keys(digests(100)))
        now.seconds += hours * 3600
        assert not live.query(Keys(digests(100))).any()
        assert live.occupancy().set_bits == 0


def test_a_clock_that_is_set_back_forgets_nothing() -> None:
    """Another worker's clock may be a little behind."""
    now = Now()
    live = made(now)
    live.add(Keys(digests(100)))
    now.seconds -= 5 * 3600
    live.add(Keys(digests(100, seed=1)))
    assert live.query(Keys(digests(100) + digests(100, seed=1))).all()


def test_beyond_its_capacity_it_forgets_and_goes_on() -> None:
    """It says how many, and answers in time."""
    live = Cuckoo(capacity=1000, window=HOURS).create()
    for seed in range(5):
        live.add(Keys(digests(1000, seed=seed)))
    assert live.forgotten == pytest.approx(3950, rel=0.03)
    assert live.occupancy().used > 1
    assert live.query(Keys(digests(1000, seed=4))).sum() > 100


def test_state_keeps_the_time_of_each_key() -> None:
    """A log that is replayed hours later brings keys back as old as they are; what is too old stays away."""
    now = Now()
    recipe = Cuckoo(capacity=1000, window=HOURS, clock=now)
    state, log = FilterState(recipe), list[bytes]()
    for hour in range(6):
        log.append(state.record(Keys(digests(20, seed=hour))))
        now.seconds += 3600
    now.seconds += 3 * 3600
    again = FilterState(recipe, log=log).filter
    assert [bool(again.query(Keys(digests(20, seed=hour))).all()) for hour in range(6)] == [False] * 3 + [True] * 3
    now.seconds += 3600
    assert not again.query(Keys(digests(20, seed=3))).any()


def test_a_snapshot_keeps_the_time_of_each_key() -> None:
    """What grew too old while it lay there is forgotten when it is loaded."""
    now = Now()
    live = made(now)
    live.add(Keys(digests(100)))
    now.seconds += 4 * 3600
    live.add(Keys(digests(100, seed=1)))
    stored = live.to_bytes()
    now.seconds += 4 * 3600
    again = live.recipe.load(stored)
    assert not again.query(Keys(digests(100))).any()
    assert again.query(Keys(digests(100, seed=1))).all()


def test_known_keys_are_logged_once_a_slice() -> None:
    """A flood of duplicates costs nothing; a key that is known for longer has to be written."""
    now = Now()
    live = made(now)
    batch = Keys(digests(100))
    live.add(batch)
    assert live.record(batch) == b""
    now.seconds += 3600
    assert len(live.record(batch)) == 100 * live.entry_bytes
    assert live.record(batch) == b""


def test_a_log_of_another_kind_is_put_aside() -> None:
    """Fingerprints that lie in state from a Bloom filter have no times."""
    log = FilterState(Bloom(capacity=1000, error_rate=0.01)).record(keys(*range(98)))
    assert len(FilterState(TestCuckoo.recipe, log=[log]).put_aside) == 1


@settings(deadline=None)
@given(fingerprints=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=30), buckets=st.integers(1, 5000))
def test_either_bucket_tells_the_other(fingerprints: list[int], buckets: int) -> None:
    """For any number of buckets, and a mark is never the empty one."""
    nests = Nests(np.zeros(4 * buckets, dtype="<u2"))
    first, marks = nests.places(np.array(fingerprints, dtype=np.uint64))
    other = nests.other(first, marks)
    assert nests.other(other, marks).tolist() == first.tolist()
    assert ((first >= 0) & (first < buckets) & (other >= 0) & (other < buckets)).all()
    assert ((marks >= 1) & (marks <= 8191)).all()


@pytest.mark.parametrize(
    ("capacity", "window"), [(0, HOURS), (1.5, HOURS), (True, HOURS), (10, timedelta(seconds=59)), (10**13, HOURS)]
)
def test_settings_that_make_no_sense_are_refused(capacity: int, window: timedelta) -> None:
    """The message shows the value."""
    with pytest.raises(FilterUnusable, match=r"(capacity|window)="):
        Cuckoo(capacity=capacity, window=window)


def test_repr_tells_how_full_it_is() -> None:
    """Good enough for a log line."""
    live = made(Now())
    live.add(Keys(digests(500)))
    assert repr(live) == "<CuckooFilter cuckoo(capacity=1000, window=21600s), 50.0% used, 0 forgotten>"

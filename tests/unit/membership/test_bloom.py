"""What the Bloom filter promises: never a false negative, no more false positives and no more memory than said."""

import pickle
from math import log, sqrt

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oncesink.transforms.membership import (
    Bloom,
    BloomFilter,
    FilterTooLarge,
    FilterUnusable,
    Keys,
    MembershipFilter,
    MembershipRecipe,
)
from oncesink.transforms.membership.blocks import SplitBlocks

from tests.unit.membership.material import any_digests, digests

ABSENT = 1_000_000
RATES = (0.1, 0.05, 0.02, 0.01, 0.003, 0.001, 0.0005, 0.0001)


@pytest.fixture(scope="module")
def absent() -> list[Keys]:
    """Give a million keys that no filter of this file holds."""
    found = digests(ABSENT, seed=1)
    return [Keys(found[at : at + 1000]) for at in range(0, ABSENT, 1000)]


def filled(recipe: Bloom, keys: int) -> BloomFilter:
    """Return a filter with so many random keys."""
    live = recipe.create()
    live.add(Keys(digests(keys)))
    return live


def measured(live: BloomFilter, absent: list[Keys]) -> float:
    """Return the share of absent keys that are taken for known ones."""
    return sum(int(live.query(keys).sum()) for keys in absent) / ABSENT


@settings(deadline=None)
@given(
    batches=st.lists(any_digests, max_size=5),
    capacity=st.integers(1, 300),
    error_rate=st.sampled_from(RATES),
)
def test_what_was_added_is_never_denied(batches: list[list[bytes]], capacity: int, error_rate: float) -> None:
    """No false negative: in batches of any size, with repeats, and far beyond the capacity."""
    live = Bloom(capacity=capacity, error_rate=error_rate).create()
    for batch in batches:
        live.add(Keys(batch))
        assert live.query(Keys(batch)).all()
    assert live.query(Keys([digest for batch in batches for digest in batch])).all()


@pytest.mark.parametrize("capacity", [1, 100, 10_000, 1_000_000])
def test_keys_that_share_words_in_one_call_are_all_kept(capacity: int) -> None:
    """Ten thousand keys at once, into one block or into many: no update overwrites another."""
    keys = Keys(digests(10_000))
    live = Bloom(capacity=capacity, error_rate=0.001).create()
    live.add(keys)
    assert live.query(keys).all()


def test_an_empty_filter_knows_nothing() -> None:
    """Everything is certainly new at first."""
    assert not Bloom(capacity=10, error_rate=0.1).create().query(Keys(digests(10_000))).any()


def test_an_empty_batch_gets_an_empty_answer() -> None:
    """No keys are no special case."""
    live = Bloom(capacity=10, error_rate=0.1).create()
    live.add(Keys([]))
    assert live.query(Keys([])).shape == (0,)
    assert live.record(Keys([])) == b""


def test_answers_stand_in_the_order_of_the_keys() -> None:
    """One answer a key, also where a batch is worked on in several pieces."""
    known, new = digests(6000), digests(6000, seed=9)
    live = Bloom(capacity=1_000_000, error_rate=0.0001).create()
    live.add(Keys(known))
    mixed = [digest for pair in zip(known, new, strict=True) for digest in pair]
    answers = live.query(Keys(mixed))
    assert answers[::2].all()
    assert answers[1::2].sum() <= 2


@pytest.mark.parametrize("error_rate", [0.01, 0.001, 0.0001])
def test_the_error_rate_holds_at_full_capacity(error_rate: float, absent: list[Keys]) -> None:
    """Of a million absent keys no more are taken for known ones than asked for, within three standard deviations."""
    live = filled(Bloom(capacity=200_000, error_rate=error_rate), 200_000)
    rate = measured(live, absent)
    assert rate <= error_rate + 3 * sqrt(error_rate * (1 - error_rate) / ABSENT)
    assert rate >= error_rate / 2, "larger than it has to be, or absent keys are not absent"


@pytest.mark.parametrize("times", [0.25, 1, 2])
def test_occupancy_is_what_can_be_measured(times: float, absent: list[Keys]) -> None:
    """Estimated keys and error rate are true at a quarter of the capacity, at all of it, and at twice as much."""
    live = filled(Bloom(capacity=100_000, error_rate=0.01), int(100_000 * times))
    found = live.occupancy()
    assert found.estimated_keys == pytest.approx(100_000 * times, rel=0.01)
    assert found.used == pytest.approx(times, rel=0.01)
    rate = measured(live, absent)
    deviation = sqrt(rate / ABSENT)
    assert found.estimated_error_rate == pytest.approx(rate, rel=0.05, abs=3 * deviation)


def test_repeats_do_not_fill_a_filter() -> None:
    """What is counted are keys, not calls."""
    live = Bloom(capacity=1000, error_rate=0.01).create()
    for _ in range(5):
        live.add(Keys(digests(300)))
    assert live.occupancy().estimated_keys == pytest.approx(300, rel=0.05)


def test_a_filter_that_is_hopelessly_full_still_tells_so() -> None:
    """No division by zero, no rate above one: everything is perhaps known."""
    live = filled(Bloom(capacity=1, error_rate=0.1), 5000)
    found = live.occupancy()
    assert found.fill == 1
    assert found.used > 100
    assert 0.9 < found.estimated_error_rate <= 1


@pytest.mark.parametrize("capacity", [1_000_000, 100_000_000])
@pytest.mark.parametrize("error_rate", RATES)
def test_the_size_is_within_a_fifth_of_the_least_possible(capacity: int, error_rate: float) -> None:
    """A Bloom filter needs at least -ln p / (ln 2)^2 bits a key; 100 million at 0.1 % need 171.4 MiB."""
    least_bytes = -capacity * log(error_rate) / log(2) ** 2 / 8
    assert Bloom(capacity=capacity, error_rate=error_rate).memory_bytes <= 1.2 * least_bytes


@settings(deadline=None)
@given(
    fingerprints=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20),
    blocks=st.integers(1, 1 << 27),
    probes=st.sampled_from([2, 3, 4]),
)
def test_one_key_and_a_batch_set_the_same_bits(fingerprints: list[int], blocks: int, probes: int) -> None:
    """The quick way for one key and the numpy way for many name the same words, in one block, and the same bits."""
    layout = SplitBlocks(blocks=blocks, probes=probes)
    positions, patterns = layout.locate(np.array(fingerprints, dtype=np.uint64))
    for at, one in enumerate(fingerprints):
        expected = list(zip(positions[:, at].tolist(), patterns[:, at].tolist(), strict=True))
        assert layout.locate_one(one) == expected
        assert len({position for position, _ in expected}) == probes
        assert len({position // 8 for position, _ in expected}) == 1
        assert 0 <= expected[0][0] < blocks * 8


def test_recording_logs_new_keys_only() -> None:
    """A key that the filter knew needs no entry; the entries alone make another filter, of any size, know the keys."""
    known, new = digests(500), digests(500, seed=2)
    live = Bloom(capacity=100_000, error_rate=0.0001).create()
    live.add(Keys(known))
    entries = live.record(Keys(known + new))
    assert len(entries) == 8 * len(new)
    other = Bloom(capacity=2000, error_rate=0.01).create()
    other.replay(entries)
    assert other.query(Keys(new)).all()


@settings(deadline=None)
@given(batch=any_digests)
def test_recording_key_by_key_is_recording_a_batch(batch: list[bytes]) -> None:
    """One record a call or a thousand: the same log, the same filter."""
    distinct = list(dict.fromkeys(batch))
    singly, together = (Bloom(capacity=100_000, error_rate=0.001).create() for _ in range(2))
    logged = b"".join(singly.record(Keys([digest])) for digest in distinct)
    assert logged == together.record(Keys(distinct))
    assert singly.to_bytes() == together.to_bytes()


def test_fingerprints_may_come_as_bytes_or_arrays() -> None:
    """A log, one column, or both columns of the hash: the same filter."""
    keys, recipe = Keys(digests(100)), Bloom(capacity=100, error_rate=0.01)
    column = keys.fingerprints[:, 0]
    forms: list[npt.NDArray[np.uint64] | bytes] = [column, keys.fingerprints, column.tobytes()]
    expected = recipe.create()
    expected.add(keys)
    for form in forms:
        live = recipe.create()
        live.add_fingerprints(form)
        assert live.to_bytes() == expected.to_bytes()


def test_filter_and_recipe_keep_their_contracts() -> None:
    """They can stand wherever the contract is asked for."""
    recipe = Bloom(capacity=10, error_rate=0.01)
    assert isinstance(recipe, MembershipRecipe)
    assert isinstance(recipe.create(), MembershipFilter)


def test_a_recipe_is_a_value() -> None:
    """Equal by content, hashable, the same after pickling, and described in words that stay."""
    recipe = Bloom(capacity=1_000_000, error_rate=0.001)
    assert pickle.loads(pickle.dumps(recipe)) == recipe == Bloom(capacity=1_000_000, error_rate=0.001)
    assert len({recipe, Bloom(capacity=1_000_000, error_rate=0.001)}) == 1
    assert recipe.description == str(recipe) == "bloom(capacity=1000000, error_rate=0.001)"


def test_a_filter_shows_how_full_it_is() -> None:
    """Its repr is good enough for a log line."""
    shown = repr(filled(Bloom(capacity=100_000, error_rate=0.01), 50_000))
    assert shown == "<BloomFilter bloom(capacity=100000, error_rate=0.01), 49.9% used>"


@pytest.mark.parametrize("capacity", [0, -1, 1.5, True, "1000"])
def test_a_capacity_that_is_none_is_refused(capacity: int) -> None:
    """The message shows the value."""
    with pytest.raises(FilterUnusable, match=f"capacity={capacity!r} must be a whole number"):
        Bloom(capacity=capacity, error_rate=0.01)


@pytest.mark.parametrize("error_rate", [0.0, 0.00009, 0.11, 1, -0.1, float("nan"), "0.01"])
def test_an_error_rate_out_of_range_is_refused(error_rate: float) -> None:
    """Below 0.0001 this layout would waste memory; above 0.1 a filter helps nobody."""
    with pytest.raises(FilterUnusable, match=r"must be a number from 0\.0001 to 0\.1"):
        Bloom(capacity=1000, error_rate=error_rate)


def test_a_filter_beyond_the_layout_is_refused() -> None:
    """The message names the size asked for."""
    with pytest.raises(FilterTooLarge, match=r"takes 191670\d? MiB of at most 8192: use more shards"):
        Bloom(capacity=100_000_000_000, error_rate=0.001)

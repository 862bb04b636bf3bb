"""Equal keys within one batch: asked once, and exactly one record goes on; the others follow it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oncesink.connectors.faults import Fault
from oncesink.connectors.memory import forget_all
from oncesink.transforms import Duplicate, Parked, Refused, Written

from tests.unit.scene import GRACE_SECONDS, KINDS, LEASE_SECONDS, Kind, Scene, places, record

each_kind = pytest.mark.parametrize("kind", KINDS)
OUTSIDE: tuple[Kind, ...] = ("drops_by_key", "external")
each_outside_kind = pytest.mark.parametrize("kind", OUTSIDE)
AFTER_THE_LEASE_SECONDS = LEASE_SECONDS + GRACE_SECONDS + 1


@each_kind
def test_equal_key_and_occurrence_are_one_delivery(kind: Kind) -> None:
    """A sliding window makes copies: one write, and each copy gets the answer."""
    scene = Scene(kind)
    results = scene.write(record("A"), record("A"), record("A"))
    assert results.written == [Written(record("A")), Written(record("A"), True), Written(record("A"), True)]
    assert scene.written_keys == ["A"]


@each_kind
def test_another_occurrence_is_judged_by_the_first(kind: Kind) -> None:
    """A duplicate, or a conflict where its content differs; the copy of one is like it."""
    scene = Scene(kind)
    results = scene.write(record("A", 0, n=1), record("A", 1, n=1), record("A", 2, n=2), record("A", 1, n=1))
    assert results.written == [Written(record("A", 0, n=1))]
    assert results.duplicates == [Duplicate(record("A", 1, n=1))] * 2
    assert [(out.record["offset"], out.reason) for out in results.rejected] == [(2, "conflict")]
    assert len(scene.store.rows) == 1


@each_kind
def test_records_without_an_occurrence_are_never_copies(kind: Kind) -> None:
    """One goes on, the others are duplicates of it."""
    results = Scene(kind, {"occurrence": None}).write(*[record("A")] * 3)
    assert (len(results.written), len(results.duplicates)) == (1, 2)


@pytest.mark.parametrize("cached", [False, True])
@each_kind
def test_the_one_whose_occurrence_the_row_bears_leads(kind: Kind, cached: bool) -> None:
    """Although another one was asked: it is the replay, and the others are duplicates."""
    scene = Scene(kind)
    if cached:
        scene.settings["cache"] = scene.cache
    scene.write(record("A", 5))
    results = scene.write(record("A", 4), record("A", 5), record("A", 6), record("A", 5))
    assert [(out.record["offset"], out.replayed) for out in results.written] == [(5, True), (5, True)]
    assert places(results.duplicates) == [("A", 4), ("A", 6)]
    assert scene.written_keys == ["A"]


@each_kind
def test_a_finished_row_judges_each_of_them(kind: Kind) -> None:
    """Where no record of the batch bears its occurrence."""
    scene = Scene(kind)
    scene.write(record("A", 0, n=1))
    results = scene.write(record("A", 1, n=1), record("A", 2, n=2), record("A", 1, n=1))
    assert places(results.duplicates) == [("A", 1), ("A", 1)]
    assert places(results.rejected) == [("A", 2)]


@each_kind
def test_when_the_first_is_refused_the_next_enters_in_its_own_right(kind: Kind) -> None:
    """In the same flush; copies of the refused one share its fate."""
    scene = Scene(kind)
    results = scene.write(
        record("A", 0, bad=True), record("A", 0, bad=True), record("A", 1, bad=True), record("A", 2), record("A", 3)
    )
    assert places(results.rejected) == [("A", 0), ("A", 0), ("A", 1)]
    assert results.written == [Written(record("A", 2))]
    assert places(results.duplicates) == [("A", 3)]
    assert [effect.record["offset"] for effect in scene.effects] == [2]
    assert scene.open_rows == 0


def test_when_the_first_is_parked_so_are_the_others() -> None:
    """Nobody can tell whether the key has its effect, so none may go on."""
    scene = Scene("external", {"on_replay": "park"})
    scene.on("sink", "write", Fault.CRASH_AFTER).dies(record("A", 0))
    scene.clock.sleep(AFTER_THE_LEASE_SECONDS)
    results = scene.write(record("A", 1), record("A", 0), record("A", 2), record("B", 3))
    assert places(results.parked) == [("A", 0), ("A", 1), ("A", 2)]
    assert places(results.written) == [("B", 3)]
    assert scene.written_keys == ["A", "B"]


@each_outside_kind
def test_when_the_first_is_in_doubt_so_are_the_others(kind: Kind) -> None:
    """They wait with it, and are told together."""
    scene = Scene(kind)
    scene.on("sink", "write", Fault.CRASH_AFTER).dies(record("A", 0))
    results = scene.write(record("A", 1), record("A", 2), record("A", 1))
    assert len(results) == 3
    assert scene.clock.now > LEASE_SECONDS + GRACE_SECONDS
    assert scene.written_keys == ["A"]
    if kind == "external":
        assert places(results.duplicates) == [("A", 1), ("A", 1), ("A", 2)], "the probe finds it: 0 had written it"
    else:
        assert [(out.record["offset"], out.replayed) for out in results.written] == [(1, True), (1, True)]
        assert places(results.duplicates) == [("A", 2)]


def test_a_replay_among_others_goes_on_at_once_where_that_is_harmless() -> None:
    """The row in doubt bears its occurrence: it leads, and nobody waits for the lease."""
    scene = Scene("drops_by_key")
    scene.on("sink", "write", Fault.CRASH_AFTER).dies(record("A", 0))
    results = scene.write(record("A", 1), record("A", 0))
    assert results.written == [Written(record("A", 0), True)]
    assert results.duplicates == [Duplicate(record("A", 1))]
    assert scene.clock.now == 0.0


def test_a_followers_parked_outcome_names_its_own_key() -> None:
    """The same idempotency key: it is one effect."""
    scene = Scene("external", {"on_replay": "park"})
    scene.on("sink", "write", Fault.CRASH_AFTER).dies(record("A", 0))
    scene.clock.sleep(AFTER_THE_LEASE_SECONDS)
    parked = scene.write(record("A", 1), record("A", 2)).parked
    assert {type(out) for out in parked} == {Parked}
    assert {out.idempotency_key for out in parked} == {scene.effects[0].digest.hex()}


places_of_records = st.tuples(st.sampled_from("ABC"), st.integers(0, 4))
deliveries = st.lists(places_of_records, max_size=12)


@given(st.sampled_from(KINDS), st.booleans(), st.sets(places_of_records), st.tuples(deliveries, deliveries))
def test_every_mixture_has_one_effect_a_key_and_one_outcome_a_record(
    kind: Kind, cached: bool, bad: set[tuple[str, int]], delivered: Any
) -> None:
    """Whatever stands in the ledger, in whatever order they come."""
    scene = Scene(kind)
    if cached:
        scene.settings["cache"] = scene.cache
    earlier, batch = ([record(key, at, bad=(key, at) in bad) for key, at in each] for each in delivered)
    scene.write(*earlier)
    results = scene.write(*batch)
    everything: list[Any] = [*results.written, *results.duplicates, *results.rejected, *results.parked]
    outcomes = [out.record for out in everything]
    assert Counter(map(str, outcomes)) == Counter(map(str, batch))
    good = {each["id"] for each in [*earlier, *batch] if not each["bad"]}
    assert Counter(scene.written_keys) == Counter(good)
    reported = {(out.record["id"], out.record["offset"]) for out in results.written}
    assert len(reported) == len({key for key, _ in reported}), "a key was reported for two occurrences"
    assert all(isinstance(out, Refused) and (out.record["bad"] or out.reason == "conflict") for out in results.rejected)
    forget_all()

"""What every filter promises, whatever its kind: one suite, run once for each."""

from __future__ import annotations

import pickle
from array import array
from hashlib import sha256

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oncesink.transforms.membership import (
    FilterDamaged,
    FilterMismatch,
    FilterState,
    FilterTooLarge,
    Keys,
    MembershipFilter,
    MembershipRecipe,
    memory,
)

from tests.unit.membership.material import frozen_digests

FEW = 300
"""Keys that fit into every recipe of this suite."""

ids_of_batches = st.lists(st.lists(st.integers(0, FEW - 1), max_size=40, unique=True), max_size=6)


def keys(*numbers: int, base: int = 30_000) -> Keys:
    """Return keys that every kind can take: digests, and the ids they stand for."""
    pool = frozen_digests(max(numbers, default=0) + 1)
    return Keys([pool[number] for number in numbers], ids=array("q", [base + number for number in numbers]))


class FilterContract:
    """Inherit it, and give `recipe` (for at least `FEW` keys), `other` (other settings), `foreign` and `golden`."""

    recipe: MembershipRecipe
    other: MembershipRecipe
    foreign: MembershipRecipe
    """Another kind."""
    needs_bytes: int | None = None
    """What an empty one takes, where that is not `memory_bytes`."""
    golden: str
    """SHA-256 of the stored form with keys 0 to 99."""
    golden_log: str
    """Log entries of keys 0 and 1, in hexadecimal."""

    def test_filter_and_recipe_keep_their_contracts(self) -> None:
        """They can stand wherever the contract is asked for."""
        assert isinstance(self.recipe, MembershipRecipe)
        assert isinstance(self.recipe.create(), MembershipFilter)

    def test_a_recipe_is_a_value(self) -> None:
        """Equal by content and the same after pickling; other settings are another value, in words as well."""
        assert pickle.loads(pickle.dumps(self.recipe)) == self.recipe
        assert hash(pickle.loads(pickle.dumps(self.recipe))) == hash(self.recipe)
        assert self.recipe != self.other
        assert self.recipe.description != self.other.description

    @settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.differing_executors])
    @given(batches=ids_of_batches)
    def test_what_was_added_is_never_denied(self, batches: list[list[int]]) -> None:
        """No false negative, in batches of any size, with repeats."""
        live = self.recipe.create()
        for batch in batches:
            live.add(keys(*batch))
            assert live.query(keys(*batch)).all()
        assert live.query(keys(*(number for batch in batches for number in batch))).all()

    def test_an_empty_filter_knows_nothing(self) -> None:
        """Everything is certainly new at first."""
        assert not self.recipe.create().query(keys(*range(FEW))).any()

    def test_an_empty_batch_is_no_special_case(self) -> None:
        """It gets an empty answer, and no entries."""
        live = self.recipe.create()
        live.add(keys())
        assert live.query(keys()).shape == (0,)
        assert live.record(keys()) == b""
        assert live.entries(keys()) == b""

    def test_answers_stand_in_the_order_of_the_keys(self) -> None:
        """One answer a key."""
        live = self.recipe.create()
        live.add(keys(*range(0, FEW, 2)))
        answers = live.query(keys(*range(FEW)))
        assert answers[::2].all()
        assert answers[1::2].mean() < 0.05

    def test_recording_logs_new_keys_only(self) -> None:
        """The entries alone make another filter know the keys."""
        live, other = self.recipe.create(), self.recipe.create()
        live.add(keys(*range(100)))
        entries = live.record(keys(*range(200)))
        assert len(entries) == pytest.approx(100 * live.entry_bytes, rel=0.05)
        other.replay(entries)
        assert other.query(keys(*range(100, 200))).mean() > 0.98
        assert other.query(keys(*range(100))).mean() < 0.05
        assert live.record(keys(*range(200))) == b""

    def test_entries_are_made_for_known_keys_as_well(self) -> None:
        """For engines that append before they ask; nothing is added."""
        live, other = self.recipe.create(), self.recipe.create()
        entries = live.entries(keys(*range(50)))
        assert len(entries) == 50 * live.entry_bytes
        assert not live.query(keys(*range(50))).any()
        other.replay(entries)
        assert other.query(keys(*range(50))).all()

    def test_a_torn_log_is_refused_whole(self) -> None:
        """Nothing of it is added."""
        live = self.recipe.create()
        entries = live.entries(keys(*range(50)))
        with pytest.raises(FilterDamaged, match="no whole number"):
            live.replay(entries[:-1])
        assert not live.query(keys(*range(50))).any()

    @settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.differing_executors])
    @given(batches=ids_of_batches)
    def test_snapshot_and_log_are_the_filter(self, batches: list[list[int]]) -> None:
        """Whenever the worker is replaced, and whenever it compacts, every key is known."""
        state, snapshot, log = FilterState(self.recipe), None, list[bytes]()
        for number, batch in enumerate(batches):
            log.append(state.record(keys(*batch)))
            if number % 2 or state.due:
                snapshot, log = state.compact(), []
            state = FilterState(self.recipe, snapshot=snapshot, log=log)
            assert not state.put_aside
        assert state.filter.query(keys(*(number for batch in batches for number in batch))).all()

    def test_a_stored_filter_is_the_same_filter(self) -> None:
        """Its answers, its fill, and its own stored form; `snapshot_bytes` tells how long that is."""
        live = self.recipe.create()
        live.add(keys(*range(100)))
        stored = live.to_bytes()
        again = self.recipe.load(stored)
        assert again.to_bytes() == stored
        assert len(stored) == live.snapshot_bytes == again.snapshot_bytes
        assert again.query(keys(*range(FEW))).tolist() == live.query(keys(*range(FEW))).tolist()
        assert again.occupancy() == live.occupancy()
        again.add(keys(*range(100, 200)))
        assert again.query(keys(*range(200))).all()

    def test_every_damage_is_found(self) -> None:
        """A flipped bit anywhere near the header, one in each thousand bytes of the content, and every cut."""
        live = self.recipe.create()
        live.add(keys(*range(100)))
        stored = live.to_bytes()
        for at in (*range(160), *range(160, len(stored), 997)):
            if at < len(stored):
                damaged = bytearray(stored)
                damaged[at] ^= 1 << (at % 8)
                with pytest.raises(FilterDamaged):
                    self.recipe.load(bytes(damaged))
        for length in (0, 7, 63, 64, len(stored) - 1):
            with pytest.raises(FilterDamaged, match="truncated"):
                self.recipe.load(stored[:length])
        with pytest.raises(FilterDamaged):
            self.recipe.load(stored + b"\0")

    def test_errors_say_what_is_wrong(self) -> None:
        """Foreign, newer and made for other settings are three things, with three things to do."""
        live = self.recipe.create()
        live.add(keys(1))
        stored = live.to_bytes()
        with pytest.raises(FilterDamaged, match=r"not a .* of oncesink: it begins with"):
            self.foreign.load(stored)
        with pytest.raises(FilterDamaged, match="format version 258, and this release reads 1: upgrade"):
            self.recipe.load(stored[:8] + b"\x02\x01" + stored[10:])
        with pytest.raises(FilterMismatch, match="was made for"):
            self.other.load(stored)

    def test_damage_in_state_is_put_aside(self) -> None:
        """A snapshot that cannot be read starts empty, and says so; the log beside it still counts."""
        state = FilterState(self.recipe)
        state.record(keys(*range(50)))
        stored = bytearray(state.compact())
        stored[-1] ^= 1
        for bad in (bytes(stored), bytes(stored[:70]), b"\x89PNG\r\n\x1a\n" + bytes(100), self.foreign_snapshot()):
            reopened = FilterState(self.recipe, snapshot=bad, log=[state.filter.entries(keys(7))])
            assert len(reopened.put_aside) == 1
            assert reopened.put_aside[0].startswith("snapshot: ")
            assert reopened.due
            assert reopened.filter.query(keys(7)).all()
            assert reopened.filter.query(keys(*range(50))).sum() <= 3

    def foreign_snapshot(self) -> bytes:
        """Return a sound snapshot of another kind."""
        return self.foreign.create().to_bytes()

    def test_what_does_not_fit_is_refused_before_it_is_made(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Made or loaded: the message names both sizes, and nothing was allocated."""
        stored = self.recipe.create().to_bytes()
        needs = self.needs_bytes or self.recipe.memory_bytes
        monkeypatch.setattr(memory, "available_bytes", lambda: needs - 1)
        for make in (self.recipe.create, lambda: self.recipe.load(stored)):
            with pytest.raises(FilterTooLarge, match=r"needs .* MiB, and .* MiB are available"):
                make()
        monkeypatch.setattr(memory, "available_bytes", lambda: needs)
        assert isinstance(self.recipe.create(), MembershipFilter)

    def test_the_stored_form_is_frozen(self) -> None:
        """Stored filters of every release are read by this one."""
        live = self.recipe.create()
        live.add(keys(*range(100)))
        assert sha256(live.to_bytes()).hexdigest() == self.golden

    def test_a_log_is_frozen(self) -> None:
        """State that an earlier release appended to is read by this one."""
        assert self.recipe.create().entries(keys(0, 1)).hex() == self.golden_log

"""The filters in Beam's state: what they hold after bundles, roll-backs, changes of worker and damage."""

from __future__ import annotations

import copy
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import pytest

pytest.importorskip("apache_beam", reason="Beam is not installed here")

from oncesink.connectors import Claim, MemoryLedger
from oncesink.connectors.file_folder import FileFolder
from oncesink.transforms import Bloom, Counts, Fields, Gate, SourcePosition
from oncesink.transforms.beam_state import ShardFilters
from oncesink.transforms.cold_start import meaning_of
from oncesink.transforms.membership import Keys
from oncesink.transforms.membership.rebuilding import Rebuilding
from oncesink.transforms.prepare import Item
from oncesink.transforms.shards import shards_of

RECIPE = Bloom(capacity=1000, error_rate=0.0001)
SHARDS = 3


class Held:
    """A cell or a log of one shard, which a test can look into."""

    def __init__(self) -> None:
        self.value: bytes | None = None
        self.chunks: list[bytes] = []
        self.reads = 0


class HeldCell(Held):
    """A value state."""

    def read(self) -> bytes | None:
        self.reads += 1
        return self.value

    def write(self, value: bytes) -> None:
        self.value = value


class HeldLog(Held):
    """A bag state."""

    def read(self) -> list[bytes]:
        self.reads += 1
        return list(self.chunks)

    def add(self, value: bytes) -> None:
        self.chunks.append(value)

    def clear(self) -> None:
        self.chunks.clear()


class State:
    """The state of all shards; a copy of it is what a roll-back brings."""

    def __init__(self) -> None:
        self.cells = {number: (HeldCell(), HeldCell(), HeldLog()) for number in range(SHARDS)}

    def copy(self) -> State:
        """Return the state as it is now."""
        return copy.deepcopy(self)


def keys(*numbers: int) -> Keys:
    """Return digests that are hashes of numbers."""
    return Keys([blake2b(str(number).encode(), digest_size=16).digest() for number in numbers])


def item(digest: bytes) -> Item:
    """Return a record with this digest."""
    return Item({}, Claim(digest, None, None))


def worker(recipe: Bloom = RECIPE, counts: Counts | None = None) -> ShardFilters:
    """Return the filters of a worker that has seen nothing."""
    return ShardFilters(recipe, SHARDS, counts if counts is not None else Counts())


def note(filters: ShardFilters, state: State, *numbers: int) -> Keys:
    """Bring keys as `process` does, before the gate is asked."""
    noted = keys(*numbers)
    shards = shards_of(noted.digests, SHARDS).tolist()
    for shard in sorted(set(shards)):
        items = [item(digest) for digest, its in zip(noted.digests, shards, strict=True) if its == shard]
        filters.note(shard, items, *state.cells[shard])
    return noted


def bundle(filters: ShardFilters, state: State, *numbers: int) -> list[bool]:
    """Take keys through a bundle; return what the filter said of each before it was added."""
    filters.begin()
    noted = note(filters, state, *numbers)
    said: list[bool] = filters.query(noted).tolist()
    filters.add(noted)
    filters.through()
    return said


def test_keys_are_known_in_later_bundles_of_every_worker() -> None:
    """The worker that saw them knows them from memory, another one from state."""
    state, first = State(), worker()
    assert bundle(first, state, *range(50)) == [False] * 50
    assert bundle(first, state, *range(60)) == [True] * 50 + [False] * 10
    assert bundle(worker(), state, *range(70)) == [True] * 60 + [False] * 10


def test_a_key_is_in_state_before_it_is_asked_for() -> None:
    """So no write can be there of which the state does not know; memory learns of it only with the gate's answer."""
    state, filters = State(), worker()
    filters.begin()
    noted = note(filters, state, 1)
    assert filters.query(noted).tolist() == [False]
    other = worker()
    other.begin()
    note(other, state, 1)
    assert other.query(noted).tolist() == [True]


def test_memory_that_is_behind_is_not_trusted() -> None:
    """Another worker had the shards in between: what it added is known, whatever this one still holds."""
    state, first, second = State(), worker(), worker()
    bundle(first, state, *range(20))
    bundle(second, state, *range(20, 40))
    assert bundle(first, state, *range(40)) == [True] * 40


def test_memory_that_is_current_is_not_read_again() -> None:
    """A bundle costs a look at the version, not at the filter."""
    state, filters = State(), worker()
    bundle(filters, state, *range(20))
    before = sum(snapshot.reads + log.reads for _, snapshot, log in state.cells.values())
    bundle(filters, state, *range(20, 40))
    assert sum(snapshot.reads + log.reads for _, snapshot, log in state.cells.values()) == before


def test_a_roll_back_takes_back_what_the_failed_bundle_added() -> None:
    """Two histories of equal length are told apart: the keys of the one are not taken for those of the other."""
    state, first, second = State(), worker(), worker()
    bundle(first, state, *range(10))
    before = state.copy()
    bundle(first, state, *range(10, 20))
    state = before
    bundle(second, state, *range(20, 30))
    assert bundle(first, state, *range(40)) == [True] * 10 + [False] * 10 + [True] * 10 + [False] * 10


def test_keys_of_a_failed_bundle_are_not_known() -> None:
    """They were noted and never went through; their replay is new to the filter."""
    state, filters = State(), worker()
    bundle(filters, state, 1, 2, 3)
    before = state.copy()
    filters.begin()
    note(filters, state, 4, 5)
    assert bundle(filters, before, 4, 5) == [False, False]


@pytest.mark.parametrize(
    "damage",
    [
        lambda cells: cells[1].write(b"rubbish"),
        lambda cells: cells[1].write(worker_snapshot(Bloom(capacity=10, error_rate=0.1))),
        lambda cells: cells[2].add(b"short"),
    ],
    ids=["no filter", "a filter of other settings", "a broken log entry"],
)
def test_a_damaged_part_starts_empty_and_is_counted(damage: object) -> None:
    """The job goes on, what was whole is still known, and the damaged part is gone from state after one look."""
    state, found = State(), Counts()
    bundle(worker(), state, *range(20))
    for cells in state.cells.values():
        damage(cells)  # type: ignore[operator]
    bundle(worker(counts=found), state, *range(20))
    assert found["filter_damaged"] == SHARDS
    later = Counts()
    assert bundle(worker(counts=later), state, *range(20)) == [True] * 20
    assert later["filter_damaged"] == 0


def worker_snapshot(recipe: Bloom) -> bytes:
    """Return the snapshot of an empty filter."""
    return recipe.create().to_bytes()


def test_a_long_log_becomes_a_snapshot() -> None:
    """State is bounded, and every key is still known: also those that had not gone through the gate by then."""
    recipe = Bloom(capacity=20, error_rate=0.01)
    state, filters = State(), worker(recipe)
    filters.begin()
    noted = note(filters, state, *range(400))
    assert all(snapshot.value is not None for _, snapshot, _ in state.cells.values())
    reader = worker(recipe)
    reader.begin()
    note(reader, state, *range(400, 430))
    assert reader.query(noted).all()
    filters.add(noted)
    filters.through()
    for numbers in (range(400, 800), range(800, 1200)):
        bundle(filters, state, *numbers)
    limit = recipe.create().snapshot_bytes
    for _, _, log in state.cells.values():
        assert sum(map(len, log.chunks)) <= 400 * 8 + limit


def test_an_unchanged_shard_is_not_written() -> None:
    """Only shards of the bundle's keys are touched."""
    state, filters = State(), worker()
    bundle(filters, state, 1)
    touched = [number for number, (version, _, log) in state.cells.items() if version.value or log.chunks]
    assert touched == shards_of(keys(1).digests, SHARDS).tolist()


def test_a_shard_without_state_begins_with_the_stored_filter(tmp_path: Path) -> None:
    """The first bundle knows its keys and brings it into the state, where every later worker finds it."""
    gate = Gate(
        scope="orders", key=Fields("id"), occurrence=SourcePosition("s", "o"), ledger=MemoryLedger(), membership=RECIPE
    )
    gate = replace(gate, shards=SHARDS, start_from=str(tmp_path))
    run = Rebuilding(FileFolder(str(tmp_path)), RECIPE, meaning=meaning_of(gate), source="a test")
    run.add(keys(*range(50)).digests, last_id=50)
    run.finish()
    state, counts = State(), Counts()
    filters = ShardFilters.of(gate, counts)
    assert filters is not None
    assert bundle(filters, state, *range(60)) == [True] * 50 + [False] * 10
    assert counts["filter_started"] == SHARDS
    assert bundle(worker(), state, *range(70)) == [True] * 60 + [False] * 10
    again = ShardFilters.of(gate, counts)
    assert again is not None
    bundle(again, state, 1, 2, 3)
    assert counts["filter_started"] == SHARDS, "a state that is there is not begun anew"

"""A filter kept as a snapshot and a log: the same filter, at a bounded cost, and never in the way."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oncesink.transforms.membership import Bloom, FilterState, Keys

from tests.unit.membership.material import any_digests, digests

RECIPE = Bloom(capacity=5000, error_rate=0.001)


class Shard:
    """What an engine keeps of one shard, with every byte counted that is written into it."""

    def __init__(self) -> None:
        self.snapshot: bytes | None = None
        self.log: list[bytes] = []
        self.written_bytes = 0
        self.snapshots = 0

    def open(self, recipe: Bloom = RECIPE) -> FilterState:
        """Return the filter as a worker gets it that has just taken over the shard."""
        return FilterState(recipe, snapshot=self.snapshot, log=self.log)

    def write(self, state: FilterState, keys: list[bytes]) -> None:
        """Record keys as a binding does: append, and compact when it is due."""
        entries = state.record(Keys(keys))
        self.log += [entries] if entries else []
        self.written_bytes += len(entries)
        if state.due:
            self.snapshot, self.log = state.compact(), []
            self.written_bytes += len(self.snapshot)
            self.snapshots += 1


@settings(deadline=None)
@given(batches=st.lists(st.tuples(any_digests, st.booleans(), st.booleans()), max_size=12))
def test_snapshot_and_log_are_the_filter(batches: list[tuple[list[bytes], bool, bool]]) -> None:
    """Whenever the worker is replaced and whenever it compacts, the filter is what adding all keys would have made."""
    recipe, shard = Bloom(capacity=50, error_rate=0.01), Shard()
    direct, state = recipe.create(), shard.open(recipe)
    for keys, restart, compact in batches:
        direct.add(Keys(keys))
        shard.write(state, keys)
        if compact:
            shard.snapshot, shard.log = state.compact(), []
        if restart:
            state = shard.open(recipe)
        assert state.filter.to_bytes() == direct.to_bytes()
        assert not state.put_aside


def test_whole_cycles_cost_at_most_24_bytes_a_new_key() -> None:
    """Log and snapshots together, from an empty filter to a full one, with known keys arriving again in between."""
    shard = Shard()
    state = shard.open()
    new_keys, at_snapshot = 0, (0, 0)
    for seed in range(100):
        batch = digests(50, seed=seed)
        new_keys += len(batch)
        snapshots = shard.snapshots
        shard.write(state, batch)
        shard.write(state, batch)
        if shard.snapshots > snapshots:
            at_snapshot = (shard.written_bytes, new_keys)
    assert shard.snapshots >= 3
    written_bytes, keys = at_snapshot
    assert written_bytes / keys <= 24
    assert written_bytes / keys == pytest.approx(16, rel=0.1)


def test_the_log_never_outgrows_a_snapshot() -> None:
    """What a restart has to replay is bounded, however often the worker is replaced between two snapshots."""
    shard = Shard()
    for seed in range(100):
        state = shard.open()
        shard.write(state, digests(50, seed=seed))
        assert sum(map(len, shard.log)) < state.filter.snapshot_bytes
        assert not shard.open().due


def test_known_keys_cost_nothing() -> None:
    """A flood of duplicates writes no byte."""
    shard = Shard()
    state = shard.open()
    shard.write(state, digests(100))
    before = shard.written_bytes
    for _ in range(20):
        shard.write(state, digests(100))
    assert shard.written_bytes == before <= 800


def test_a_log_may_hold_a_chunk_for_each_entry() -> None:
    """An engine that appends record by record is served like one that appends batches."""
    keys = digests(3000)
    batchwise, singly = FilterState(RECIPE), FilterState(RECIPE)
    whole = batchwise.record(Keys(keys))
    chunks = [singly.record(Keys([digest])) for digest in keys]
    assert b"".join(chunks) == whole
    assert FilterState(RECIPE, log=chunks).filter.to_bytes() == FilterState(RECIPE, log=[whole]).filter.to_bytes()


@pytest.mark.parametrize("at", [0, 9, 13, 40, 70, -1])
def test_a_damaged_snapshot_is_put_aside(at: int) -> None:
    """Nothing is raised: the filter starts from the log alone, and says so."""
    shard = Shard()
    state = shard.open()
    shard.write(state, digests(100))
    damaged = bytearray(state.compact())
    damaged[at] ^= 0x40
    shard.snapshot, shard.log = bytes(damaged), [FilterState(RECIPE).record(Keys(digests(10, seed=5)))]
    reopened = shard.open()
    assert len(reopened.put_aside) == 1
    assert reopened.put_aside[0].startswith("snapshot: ")
    assert reopened.filter.query(Keys(digests(10, seed=5))).all()
    assert not reopened.filter.query(Keys(digests(100))).any()


def test_a_torn_chunk_of_the_log_is_put_aside() -> None:
    """The chunks beside it still count."""
    first, second = (FilterState(RECIPE).record(Keys(digests(10, seed=seed))) for seed in (1, 2))
    reopened = FilterState(RECIPE, log=[first, b"torn!", second])
    assert reopened.put_aside == ("log: a chunk of 5 bytes, and entries have 8",)
    assert reopened.filter.query(Keys(digests(10, seed=1) + digests(10, seed=2))).all()


def test_what_was_put_aside_is_replaced_at_once() -> None:
    """Damage is counted once, not at every restart until the log is long enough."""
    shard = Shard()
    shard.snapshot, shard.log = b"not a filter", [b"torn!"]
    state = shard.open()
    assert len(state.put_aside) == 2
    assert state.due
    shard.write(state, digests(3))
    assert not state.due
    assert not shard.open().put_aside
    assert shard.open().filter.query(Keys(digests(3))).all()


def test_new_settings_put_the_old_snapshot_aside_and_keep_the_log() -> None:
    """A filter cannot be enlarged, but the fingerprints of its log fit any size."""
    shard = Shard()
    state = shard.open()
    shard.write(state, digests(100))
    shard.snapshot, shard.log = state.compact(), [state.record(Keys(digests(10, seed=5)))]
    larger = shard.open(Bloom(capacity=50_000, error_rate=0.001))
    assert "made for capacity=5000, error_rate=0.001" in larger.put_aside[0]
    assert larger.filter.query(Keys(digests(10, seed=5))).all()
    assert not larger.filter.query(Keys(digests(100))).any()


def test_an_empty_state_is_an_empty_filter() -> None:
    """A shard that was never written begins without any trouble to report."""
    state = FilterState(RECIPE)
    assert state.put_aside == ()
    assert not state.due
    live = "<BloomFilter bloom(capacity=5000, error_rate=0.001), 0.0% used>"
    assert repr(state) == f"<FilterState {live}, 0 bytes of log, 0 put aside>"

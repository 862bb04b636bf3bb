"""Stamped numbers: the same after a replay, never twice after a rescale."""

import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyflink", reason="PyFlink is not installed here: make setup puts it into .venv-flink")

from oncesink.connectors.errors import Misconfigured, Rejected
from oncesink.transforms.flink_shards import key_group, shard_keys
from oncesink.transforms.flink_stamp import LaneFunction, StampFunction
from oncesink.transforms.keys import ByStamp, Stamped

from tests.engines.flink_harness import KeyedHarness, merge

pytestmark = pytest.mark.flink

LANES = 6
KEYS = shard_keys(LANES, 128)
RECORDS = st.lists(st.integers(0, LANES - 1), max_size=30)


class Fleet:
    """A stamp operator of some subtasks, that began from a savepoint; `function` is what a job was submitted with."""

    def __init__(self, subtasks: int, savepoint: bytes | None = None, function: StampFunction | None = None) -> None:
        submitted = pickle.dumps(function or StampFunction(LANES))
        self.subtasks = [
            KeyedHarness(pickle.loads(submitted), _part(savepoint, subtasks, each)) for each in range(subtasks)
        ]

    def run(self, lanes: list[int]) -> list[Stamped]:
        """Stamp a record of each of these lanes, in this order."""
        return [stamped for lane in lanes for stamped in self._owner(lane).process((KEYS[lane], lane, {"lane": lane}))]

    def savepoint(self) -> bytes:
        return merge(*[each.snapshot() for each in self.subtasks])

    def _owner(self, lane: int) -> KeyedHarness:
        return self.subtasks[key_group(KEYS[lane], 128) * len(self.subtasks) // 128]


def _part(savepoint: bytes | None, subtasks: int, subtask: int) -> bytes | None:
    if savepoint is None:
        return None
    whole = KeyedHarness(StampFunction(LANES), savepoint)
    return whole.snapshot([key for key in KEYS if key_group(key, 128) * subtasks // 128 == subtask])


@given(before=RECORDS, after=RECORDS)
def test_a_replay_gets_the_same_numbers(before: list[int], after: list[int]) -> None:
    """What comes again in the same order after a restore is stamped as it was."""
    fleet = Fleet(2)
    fleet.run(before + list(range(LANES)))
    savepoint = fleet.savepoint()
    assert fleet.run(after) == Fleet(2, savepoint).run(after)


@given(parts=st.lists(RECORDS, min_size=3, max_size=3))
def test_a_rescale_never_repeats_a_number(parts: list[list[int]]) -> None:
    """2 -> 3 -> 1 subtasks: no number is given twice."""
    seen: list[bytes] = []
    savepoint = None
    for subtasks, lanes in zip((2, 3, 1), parts, strict=True):
        fleet = Fleet(subtasks, savepoint)
        seen += [each.occurrence for each in fleet.run(lanes)]
        savepoint = fleet.savepoint()
    assert len(set(seen)) == len(seen)


@settings(max_examples=20)
@given(lanes=st.lists(st.integers(0, LANES - 1), min_size=1, max_size=30))
def test_numbers_are_those_of_the_formula(lanes: list[int]) -> None:
    """`uuid_(n * lanes + lane)`, n counted in each lane from 0, one uuid a job."""
    counted = dict.fromkeys(range(LANES), 0)
    uuids = set()
    for lane, stamped in zip(lanes, Fleet(2).run(lanes), strict=True):
        uuid, number = stamped.occurrence.decode().rsplit("_", 1)
        assert int(number) == counted[lane] * LANES + lane
        uuids.add(uuid)
        counted[lane] += 1
    assert len(uuids) == 1


@given(lanes=RECORDS)
def test_a_restart_without_a_checkpoint_gives_the_same_numbers(lanes: list[int]) -> None:
    """As long as it is the job that was submitted; another one begins other numbers."""
    submitted = StampFunction(LANES)
    first = Fleet(2, function=submitted).run(lanes)
    assert first == Fleet(3, function=submitted).run(lanes)
    other = Fleet(2).run(lanes)
    assert not {each.occurrence for each in first} & {each.occurrence for each in other}


def stamped(lanes: int, incarnation: str | None, snapshot: bytes | None = None) -> tuple[str, bytes]:
    """Return the stamp of the next record of lane 1, and a checkpoint after it."""
    harness = KeyedHarness(StampFunction(lanes, incarnation), snapshot)
    (found,) = harness.process((KEYS[1], 1, {}))
    return found.occurrence.decode(), harness.snapshot()


def test_an_incarnation_gives_the_same_numbers_before_the_first_checkpoint() -> None:
    """A job that begins anew over the same input draws nothing; after a checkpoint it goes on."""
    first, snapshot = stamped(LANES, "orders@eu/1")
    assert first == stamped(LANES, "orders@eu/1")[0] == "orders@eu/1/6_1"
    assert stamped(LANES, "orders@eu/1", snapshot)[0] == "orders@eu/1/6_7"
    assert stamped(LANES, "orders@eu/2", snapshot)[0] == "orders@eu/2/6_1"


@pytest.mark.parametrize("incarnation", [None, "orders"])
def test_another_number_of_lanes_starts_new_numbers(incarnation: str | None) -> None:
    """The formula of fewer lanes would give numbers again that the formula of more has given."""
    before, snapshot = stamped(LANES, incarnation)
    after, _ = stamped(4, incarnation, snapshot)
    assert before.rsplit("_", 1)[0] != after.rsplit("_", 1)[0]
    assert after.endswith("_1")


@given(jobs=st.lists(st.tuples(st.sampled_from([4, LANES, 8]), st.sampled_from([None, "a", "b"]), st.integers(1, 3))))
def test_no_change_of_settings_and_back_gives_a_number_twice(jobs: list[tuple[int, str | None, int]]) -> None:
    """Whatever lanes and incarnation a job goes on with, among them those that it had before."""
    seen: list[bytes] = []
    snapshot = None
    for lanes, incarnation, records in jobs:
        harness = KeyedHarness(StampFunction(lanes, incarnation), snapshot)
        seen += [found.occurrence for _ in range(records) for found in harness.process((KEYS[1], 1, {}))]
        snapshot = harness.snapshot()
    assert len(set(seen)) == len(seen)


def test_a_lane_that_is_none_stops_the_job() -> None:
    """A number outside the lanes would collide with another lane's."""
    function = LaneFunction(lambda record: record, LANES, KEYS)
    assert list(function.process_element(5, None)) == [(KEYS[5], 5, 5)]
    for wrong in (-1, LANES):
        with pytest.raises(Misconfigured, match="is not one of 6"):
            list(function.process_element(wrong, None))


def test_only_stamped_records_have_a_stamp() -> None:
    """A stream that was not stamped is refused record by record, not taken for positions."""
    stamped: Any = Fleet(1).run([0])[0]
    assert ByStamp()(stamped) == stamped.occurrence
    with pytest.raises(Rejected, match="was not stamped"):
        ByStamp()({"lane": 0})

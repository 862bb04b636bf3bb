"""Shards lie evenly on subtasks, by Flink's own arithmetic."""

from collections import Counter

import pytest

pytest.importorskip("pyflink", reason="PyFlink is not installed here: make setup puts it into .venv-flink")

from oncesink.connectors.errors import Misconfigured
from oncesink.transforms.flink_shards import key_group, shard_keys
from pyflink.java_gateway import get_gateway

pytestmark = pytest.mark.flink


@pytest.mark.parametrize("shards", [1, 3, 12, 16, 128])
@pytest.mark.parametrize("max_parallelism", [128, 1000])
def test_each_shard_has_a_key_group_of_its_own(shards: int, max_parallelism: int) -> None:
    """Shard i of n lies in group ceil(i * max_parallelism / n)."""
    groups = [key_group(key, max_parallelism) for key in shard_keys(shards, max_parallelism)]
    assert groups == [-(-shard * max_parallelism // shards) for shard in range(shards)]


@pytest.mark.parametrize("subtasks", [1, 2, 3, 4, 5, 7, 12])
def test_subtasks_get_equal_parts(subtasks: int) -> None:
    """Whatever the parallelism, no subtask has more than one shard more than another."""
    load = Counter(key_group(key, 128) * subtasks // 128 for key in shard_keys(12, 128))
    assert len(load) == subtasks
    assert max(load.values()) - min(load.values()) <= 1


def test_key_groups_are_those_of_flink() -> None:
    """The arithmetic is Flink's: asked of its own class, for a key as PyFlink wraps it."""
    jvm = get_gateway().jvm
    assignment = jvm.org.apache.flink.runtime.state.KeyGroupRangeAssignment
    for key in (*shard_keys(16, 128), 2**31, 2**40 + 7, 2**62):
        row = jvm.org.apache.flink.types.Row(1)
        row.setField(0, jvm.java.lang.Long.valueOf(str(key)))
        assert assignment.assignToKeyGroup(row, 128) == key_group(key, 128)


def test_keys_never_change() -> None:
    """State is found under these keys after every update of the library."""
    assert shard_keys(4, 128) == (250, 13, 22, 113)


def test_more_shards_than_key_groups_are_refused() -> None:
    """Two shards in one key group could not be spread."""
    with pytest.raises(Misconfigured, match="shards=129 are more than max_parallelism=128"):
        shard_keys(129, 128)

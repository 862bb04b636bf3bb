"""A key has one shard, whoever asks."""

import hashlib
from collections import Counter

import pytest
from oncesink.connectors.errors import Rejected
from oncesink.transforms import Bitmap, Bloom, Stamped
from oncesink.transforms.numbers import shard_rule
from oncesink.transforms.shards import shard_of, shards_of

DIGESTS = [hashlib.blake2b(str(number).encode(), digest_size=16).digest() for number in range(16_000)]


@pytest.mark.parametrize("shards", [1, 3, 16, 64, 1000])
def test_one_key_and_a_batch_give_the_same(shards: int) -> None:
    """Whether keys are asked one by one or at once."""
    assert shards_of(DIGESTS[:999], shards).tolist() == [shard_of(digest, shards) for digest in DIGESTS[:999]]


def test_golden_vectors() -> None:
    """Filters in state and in files are found by these numbers: they never change."""
    assert [shard_of(bytes(range(start, start + 16)), 64) for start in (0, 1, 5)] == [0, 1, 5]
    assert [shard_of(bytes(range(start, start + 16)), 7) for start in (0, 100, 200)] == [1, 4, 0]


def test_keys_spread_evenly() -> None:
    """No shard of sixteen gets a fifth more than its part."""
    load = Counter(shard_of(digest, 16) for digest in DIGESTS)
    assert len(load) == 16
    assert max(load.values()) < 1200


def test_ids_choose_the_shard_where_the_filter_is_over_numbers() -> None:
    """So that the ids of a shard lie together; a record without one has no shard. Elsewhere the digest chooses."""
    by_id = shard_rule(Bitmap(id="id", base=30_000, capacity=10), 7)
    assert [by_id({"id": 30_000 + number}, DIGESTS[0]) for number in range(3)] == [(30_000 + n) % 7 for n in range(3)]
    assert by_id(Stamped(b"1", {"id": 30_005}), DIGESTS[0]) == 30_005 % 7
    with pytest.raises(Rejected, match="out_of_range"):
        by_id({"id": 1}, DIGESTS[0])
    for recipe in (None, Bloom(capacity=10, error_rate=0.1)):
        assert shard_rule(recipe, 7)({"id": 1}, DIGESTS[0]) == shard_of(DIGESTS[0], 7)

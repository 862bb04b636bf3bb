"""The bitmap: exact over ids, whatever they are, and never larger than it was allowed."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oncesink.connectors import MemoryLedger, MemoryTable, Rejected
from oncesink.transforms import Bitmap, Fields, Gate, OnceWriter, SourcePosition
from oncesink.transforms.membership import BitmapFilter, Bloom, FilterState, FilterUnusable, Keys
from oncesink.transforms.membership.pages import PAGE_BYTES, PAGE_IDS

from tests.unit.membership.filter_contract import FilterContract, keys

FAR = 2**63 - 1


def of(ids: Sequence[int]) -> Keys:
    """Return keys with these ids; a bitmap does not look at digests."""
    return Keys([bytes(16)] * len(ids), ids=array("q", ids))


class TestBitmap(FilterContract):
    """The suite of all filters."""

    recipe = Bitmap(id="order_id", base=30_000, capacity=1000)
    other = Bitmap(id="order_id", base=29_999, capacity=1000)
    foreign = Bloom(capacity=100, error_rate=0.01)
    golden = "a475d2b0746b8e68b32f801a0217bd9f7fa7ad310ec4c36c04777e997d4e695f"
    golden_log = "71b1307500000000000071b13175000000000000"


@settings(deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(0, 5 * PAGE_IDS), max_size=30), max_size=5),
    asked=st.lists(st.integers(0, 5 * PAGE_IDS), max_size=60),
    base=st.integers(0, FAR - 6 * PAGE_IDS),
)
def test_a_bitmap_is_a_set(batches: list[list[int]], asked: list[int], base: int) -> None:
    """No false positive and no false negative, across pages, with repeats in a batch, at either end of the range."""
    live = Bitmap(id="id", base=base, capacity=5 * PAGE_IDS + 1).create()
    added: set[int] = set()
    for batch in batches:
        live.add(of([base + each for each in batch]))
        added.update(batch)
    asked = [*asked, *added]
    assert live.query(of([base + each for each in asked])).tolist() == [each in added for each in asked]
    assert live.occupancy().set_bits == len(added)
    assert live.occupancy().estimated_error_rate == 0


def test_the_article_s_base() -> None:
    """With base 30000, id 30000 is bit 0."""
    live = Bitmap(id="id", base=30_000, capacity=100).create()
    live.add(of([30_000, 30_009]))
    assert live.to_bytes()[64 + 8 : 64 + 8 + 2] == b"\x01\x02"


def test_pages_are_taken_when_they_are_needed() -> None:
    """Ids far apart cost a page each, and a stored bitmap holds no page that was never written."""
    live = Bitmap(id="id", capacity=100 * PAGE_IDS).create()
    assert live.snapshot_bytes == 64
    live.add(of([5, 80 * PAGE_IDS, FAR]))
    assert live.snapshot_bytes == 64 + 3 * (8 + PAGE_BYTES)
    assert live.query(of([5, 6, 80 * PAGE_IDS, FAR, FAR - 1])).tolist() == [True, False, True, True, False]


def filled(*pages: int, most: int) -> BitmapFilter:
    """Return a bitmap of at most so many pages, into each of which one id came, in this order."""
    live = Bitmap(id="id", capacity=(most - 1) * PAGE_IDS).create()
    for page in pages:
        live.add(of([page * PAGE_IDS]))
    return live


def test_at_the_bound_the_lowest_ids_are_perhaps_known() -> None:
    """What was given up is asked of the ledger; what is kept stays exact; the memory stays as it was."""
    live = filled(0, 1, 2, 3, most=3)
    assert live.snapshot_bytes == 64 + 3 * (8 + PAGE_BYTES)
    lowest = of([0, 1, PAGE_IDS - 1])
    assert live.query(lowest).all()
    assert live.query(of([PAGE_IDS, PAGE_IDS + 1, 3 * PAGE_IDS])).tolist() == [True, False, True]
    assert live.record(of([1])) == b""
    again = live.recipe.load(live.to_bytes())
    assert again.query(lowest).all()


def test_late_low_ids_do_not_push_out_the_high_ones() -> None:
    """An id of long ago is perhaps known when it comes again."""
    live = filled(7, 8, 9, 1, most=3)
    assert live.query(of([7 * PAGE_IDS, 8 * PAGE_IDS, 9 * PAGE_IDS, PAGE_IDS])).all()
    assert not live.query(of([7 * PAGE_IDS + 1])).any()


def test_a_page_that_was_given_up_is_clean_when_it_is_used_again() -> None:
    """No id of a new page is known because its place had bits of another."""
    live = Bitmap(id="id", capacity=PAGE_IDS).create()
    for page in range(50):
        live.add(of([page * PAGE_IDS + page]))
    assert live.query(of([49 * PAGE_IDS + offset for offset in range(300)])).sum() == 1
    assert live.occupancy().set_bits == 2


def test_pages_far_apart_and_below_the_floor_are_found_by_search() -> None:
    """The same answers where a table of all pages in between would be too large."""
    far = [5, 80 * PAGE_IDS, 2**50, FAR]
    live = Bitmap(id="id", capacity=2 * PAGE_IDS).create()
    live.add(of(far))
    assert live.query(of(far)).all()
    assert (
        live.query(of([4, 80 * PAGE_IDS - 1, 80 * PAGE_IDS + 1, 2**50 + 1, FAR - 1])).tolist() == [True] + [False] * 4
    )
    assert live.query(of([2**49, 2**60])).tolist() == [False, False]


def test_more_pages_in_one_batch_than_there_may_be() -> None:
    """The highest stay."""
    live = Bitmap(id="id", capacity=PAGE_IDS).create()
    live.add(of([page * PAGE_IDS for page in range(10)]))
    assert live.query(of([8 * PAGE_IDS, 9 * PAGE_IDS])).all()
    assert not live.query(of([9 * PAGE_IDS + 1])).any()


@pytest.mark.parametrize("shards", [1, 3, 16])
def test_each_shard_keeps_its_ids_densely(shards: int) -> None:
    """Ids of a shard lie a bit apart, so that the shards together take no more than one bitmap for all."""
    recipe = Bitmap(id="id", base=7, capacity=PAGE_IDS).for_shards(shards)
    for shard in range(shards):
        ids = [each for each in range(7, 50_000) if each % shards == shard]
        live = recipe.create()
        live.add(of(ids[::2]))
        assert live.query(of(ids)).tolist() == [True, False] * (len(ids) // 2) + [True] * (len(ids) % 2)
        assert live.snapshot_bytes == 64 + 8 + PAGE_BYTES


def test_a_log_of_another_kind_is_put_aside() -> None:
    """Fingerprints that lie in state from a Bloom filter are not taken for ids."""
    log = FilterState(Bloom(capacity=1000, error_rate=0.01)).record(keys(*range(100)))
    state = FilterState(TestBitmap.recipe, log=[log])
    assert state.put_aside == ("log: a log that does not hold ids: it was written for another kind of filter",)
    assert state.filter.snapshot_bytes == 64


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (29_999, "out_of_range"),
        (-1, "out_of_range"),
        (2**63, "out_of_range"),
        ("30000", "wrong_type"),
        (30_000.0, "wrong_type"),
        (True, "wrong_type"),
        (None, "wrong_type"),
    ],
)
def test_records_without_a_fitting_id_are_named(value: object, reason: str) -> None:
    """Below the base, negative, too large, or no integer."""
    with pytest.raises(Rejected, match=reason) as caught:
        TestBitmap.recipe.number_of({"order_id": value})
    assert "order_id" in caught.value.detail


def test_numpy_integers_and_nested_fields_are_ids() -> None:
    """Whatever `Fields` takes."""
    assert TestBitmap.recipe.number_of({"order_id": np.int32(30_001)}) == 30_001
    assert Bitmap(id=("order", "id"), capacity=1).number_of({"order": {"id": 3}}) == 3


@pytest.mark.parametrize(
    "settings_", [{"base": -1, "capacity": 1}, {"base": 0.5, "capacity": 1}, {"capacity": 0}, {"capacity": True}]
)
def test_settings_that_are_none_are_refused(settings_: dict[str, int]) -> None:
    """The message names the setting."""
    with pytest.raises(FilterUnusable, match=r"(base|capacity)="):
        Bitmap(id="id", **settings_)


@pytest.mark.parametrize("many", [1, 100])
def test_in_a_gate_it_stands_where_a_bloom_filter_does(many: int) -> None:
    """New ids are claimed without a look, known ones are looked up, unfitting ones are rejected; one or many."""
    ledger = MemoryLedger()
    gate = Gate(
        scope="orders",
        key=Fields("order_id"),
        occurrence=SourcePosition("s", "offset"),
        ledger=ledger,
        membership=Bitmap(id="order_id", base=30_000, capacity=1000),
        rejected="output",
    )
    first = [{"order_id": 30_000 + n, "offset": n} for n in range(many)]
    second = [{**record, "offset": record["offset"] + 1000} for record in first]
    with OnceWriter(gate, MemoryTable(ledger)) as writer:
        assert len(writer.write(first).written) == many
        assert len(writer.write([*second, {"order_id": 29_999, "offset": 5000}]).duplicates) == many
        assert writer.metrics["filter_negative"] == writer.metrics["filter_positive"] == many  # type: ignore[index]
        assert writer.metrics["ledger_read"] == many  # type: ignore[index]
        (refused,) = writer.write([{"order_id": -1, "offset": 5001}]).rejected
        assert refused.reason == "out_of_range"

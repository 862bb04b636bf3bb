"""`oncesink plan`: figures that are those of the filters themselves, and nonsense refused in one line."""

import dataclasses
import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from oncesink.pipelines.cli import main
from oncesink.pipelines.plan import Plan, TierPlan, plan
from oncesink.pipelines.plan_filters import KINDS, Ask, FilterPlan
from oncesink.transforms.membership import Bitmap, Bloom, Cuckoo, FilterState, Keys

from tests.unit.membership.material import digests

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


def ask(**changes: Any) -> Ask:
    usual: dict[str, Any] = {
        "keys": 100_000,
        "error_rate": 0.001,
        "shards": 4,
        "retention": timedelta(days=7),
        "retry_interval": timedelta(minutes=10),
    }
    return Ask(**{**usual, **changes})


def status(*arguments: str) -> int:
    """Run the command in this process; return its exit status."""
    try:
        return main(arguments)
    except SystemExit as end:
        return int(end.code or 0)


def test_sizes_are_those_of_live_filters() -> None:
    """What is planned for a shard is what a shard then takes, in memory and in state."""
    bloom, bitmap, cuckoo, shared = plan(ask()).filters
    assert shared.mib_in_all == Bloom(capacity=100_000, error_rate=0.001).memory_bytes / (1 << 20)
    for planned, live in (
        (bloom, Bloom(capacity=25_000, error_rate=0.001).create()),
        (bitmap, Bitmap(id="id", capacity=25_000).create()),
        (cuckoo, Cuckoo(capacity=25_000, window=timedelta(days=1)).create()),
    ):
        assert planned.mib_a_shard * (1 << 20) == live.recipe.memory_bytes
        assert planned.mib_in_all == 4 * planned.mib_a_shard
    bloom_live = Bloom(capacity=25_000, error_rate=0.001).create()
    assert bloom.snapshot_bytes_a_shard == bloom_live.snapshot_bytes == len(bloom_live.to_bytes())
    state = FilterState(Bloom(capacity=25_000, error_rate=0.001))
    assert len(state.record(Keys(digests(10)))) == 10 * bloom.log_bytes_a_key


def test_a_filter_that_redis_cannot_hold_is_not_planned() -> None:
    """A value of Redis has 512 MiB."""
    kinds = [each.kind for each in plan(ask(keys=10_000_000_000, shards=1000)).filters]
    assert kinds == ["Bloom", "Bitmap", "Cuckoo"]


def test_a_full_bitmap_is_as_large_as_planned() -> None:
    """Its pages are taken when they are needed, and at most so many."""
    recipe = Bitmap(id="id", capacity=600_000)
    live = recipe.create()
    ids = range(0, 3 * 262_144, 262_144)
    live.add(Keys(digests(3), ids=list(ids)))
    planned = KINDS[1](ask(keys=600_000, shards=1))
    assert planned is not None
    assert planned.snapshot_bytes_a_shard >= len(live.to_bytes())


def test_reads_saved_are_those_of_a_full_filter() -> None:
    """Of absent keys at most the planned share is looked up."""
    planned = plan(ask(shards=1)).filters[0]
    live = Bloom(capacity=100_000, error_rate=0.001).create()
    live.add(Keys(digests(100_000)))
    asked = live.query(Keys(digests(200_000, seed=1))).mean()
    assert 1 - asked >= planned.reads_saved - 0.0003
    assert planned.hashes * 100_000 >= live.occupancy().set_bits


def test_a_hundred_million_keys_take_less_than_a_fifth_more_than_the_least() -> None:
    """171 MiB are the least that is possible at one in a thousand."""
    found = plan(ask(keys=100_000_000, shards=64))
    assert round(found.least_possible_mib) == 171
    assert found.filters[0].mib_in_all < 1.2 * found.least_possible_mib


def test_redis_keeps_what_comes_within_its_time_to_live() -> None:
    """Longer retry intervals cost memory in proportion, and never more than all keys."""
    short, long, longest = (
        plan(ask(retry_interval=each)).tiers[2].redis_mib
        for each in (timedelta(hours=1), timedelta(hours=10), timedelta(days=7))
    )
    assert long == pytest.approx(10 * short)
    assert longest == pytest.approx(100_000 * 245 / (1 << 20))


def test_json_has_the_documented_keys(capsys: pytest.CaptureFixture[str]) -> None:
    """Programs read it: names are added, never changed, and each is explained."""
    assert status("plan", "--keys", "1000", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    text = OPERATIONS.read_text(encoding="utf-8")
    explained = set(re.findall(r"`([a-z_0-9]+)`", text.partition("### The plan as JSON")[2].partition("\n## ")[0]))
    for part, kind in ((found, Plan), (found["filters"][0], FilterPlan), (found["tiers"][0], TierPlan)):
        assert set(part) == {field.name for field in dataclasses.fields(kind)}
        assert set(part) <= explained
    assert len(found["tiers"]) == 4


def test_a_person_gets_two_tables(capsys: pytest.CaptureFixture[str]) -> None:
    """Each filter and each choice of tiers with a word on when to take it."""
    assert status("plan", "--keys", "100000000", "--shards", "64") == 0
    text = capsys.readouterr().out
    for expected in ("Bloom", "191.7 MiB", "filter + index", "Redis + index", "begin with this", "171.4 MiB"):
        assert expected in text


@pytest.mark.parametrize(
    "arguments",
    [
        ["--keys", "0"],
        ["--keys", "-5"],
        ["--keys", "10", "--shards", "20"],
        ["--keys", "1000", "--shards", "0"],
        ["--keys", "1000", "--error-rate", "2"],
        ["--keys", "1000", "--error-rate", "0.00000001"],
        ["--keys", "1000000000000", "--shards", "1"],
        ["--keys", "1000", "--retention", "1h", "--retry-interval", "2h"],
        ["--keys", "1000", "--retention", "0s"],
    ],
)
def test_nonsense_is_refused_in_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is printed that could be taken for a plan."""
    assert status("plan", *arguments) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.count("\n") == 1

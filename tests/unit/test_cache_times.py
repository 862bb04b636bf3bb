"""A record's own time in the cache: never above the cache's, counted from the finish, on every way."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
import redis
from oncesink.connectors import (
    Cache,
    FaultyCache,
    LRUCache,
    ManualClock,
    MemoryCache,
    Misconfigured,
    RedisCache,
    ttl_for,
)
from oncesink.transforms import Bloom

from tests.servers import RedisServer
from tests.unit.scene import KINDS, Kind, Scene, record

MINUTE = timedelta(minutes=1)
TTL = 10 * MINUTE


def by_type(record: dict[str, Any]) -> timedelta:
    """Keep clicks for a minute, orders for an hour, mails not at all; refuse to say anything of the rest."""
    times: dict[str, timedelta] = {"click": MINUTE, "order": 60 * MINUTE, "mail": timedelta(0)}
    return times[record["type"]]


def scene_with(kind: Kind, **settings: Any) -> Scene:
    """Cache in memory, by the rule."""
    scene = Scene(kind)
    scene.settings |= settings
    scene.settings["cache"] = FaultyCache(MemoryCache(scene.name, ttl=TTL, ttl_by=by_type), scene.faults)
    return scene


def hits(scene: Scene, **fields: Any) -> bool:
    """Tell whether a second send of this record is answered by the cache."""
    before = scene.counts["cache_hits"]
    assert len(scene.write(record(at=99, **fields)).duplicates) == 1
    return bool(scene.counts["cache_hits"] > before)


@pytest.mark.parametrize("kind", KINDS)
def test_each_record_lives_for_its_own_time(kind: Kind) -> None:
    """What the rule gives beyond the cache's own time counts as that; what it gives nothing for is not cached."""
    scene = scene_with(kind)
    fields: list[dict[str, Any]] = [{"key": name[0], "type": name} for name in ("click", "order", "mail")]
    scene.write(*[record(**each) for each in fields])
    scene.clock.sleep(59)
    assert [hits(scene, **each) for each in fields] == [True, True, False]
    scene.clock.sleep(2)
    assert not hits(scene, **fields[0])
    scene.clock.sleep(600 - 62)
    assert hits(scene, **fields[1])
    scene.clock.sleep(2)
    assert not hits(scene, **fields[1])


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_filled_again_from_the_ledger_counts_from_the_finish(kind: Kind, filtered: bool) -> None:
    """A second send does not extend an entry, nor bring one back whose time is over."""
    scene = scene_with(kind, **({"membership": Bloom(capacity=100, error_rate=0.01)} if filtered else {}))
    scene.write(record("a", type="click"))
    scene.clock.sleep(30)
    scene.store.entries.clear()
    assert not hits(scene, key="a", type="click")
    scene.clock.sleep(29)
    assert hits(scene, key="a", type="click")
    scene.clock.sleep(2)
    assert [hits(scene, key="a", type="click") for _ in range(2)] == [False, False]


def test_a_rule_that_fails_costs_a_look_and_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """Counted each time, said once; nothing is kept, and nothing else is different."""
    scene = scene_with("external")
    with caplog.at_level(logging.WARNING, logger="oncesink"):
        scene.write(record("a", type="unknown"), record("b", type="unknown"), record("c", type="click"))
        assert not hits(scene, key="a", type="unknown")
        assert hits(scene, key="c", type="click")
    assert scene.counts["cache_errors"] == 3
    assert [each.message for each in caplog.records if "ttl_by" in each.message] == [
        "ttl_by gave no duration for a record, which is not cached"
    ]


def test_redis_itself_counts_the_shorter_time(redis_server: RedisServer) -> None:
    """Each entry expires by its own `PX`, in one script for all of them."""
    scene = Scene("drops_by_key")
    scene.settings["cache"] = RedisCache(redis_server.url, ttl=TTL, ttl_by=by_type)
    scene.write(*[record(name, type=name) for name in ("click", "order", "mail")])
    with closing(redis.Redis(port=redis_server.port)) as client:
        left = sorted(round(client.pttl(key) / 60_000) for key in client.keys("*"))
    assert left == [1, 10]


@pytest.mark.parametrize(
    "make",
    [
        lambda **given: MemoryCache("x", **given),
        lambda **given: LRUCache(entries=5, clock=ManualClock(), **given),
        lambda **given: RedisCache("redis://h", **given),
    ],
    ids=["memory", "lru", "redis"],
)
def test_every_cache_takes_a_rule_and_keeps_its_bound(make: Callable[..., Cache]) -> None:
    """The bound is what the gate compares with the retention, so that no rule can outlive a row."""
    assert make(ttl=TTL, ttl_by=by_type).ttl == TTL
    with pytest.raises(Misconfigured, match="ttl_by is a picklable function"):
        make(ttl=TTL, ttl_by=MINUTE)


def test_a_time_for_a_retry_interval() -> None:
    """The interval and a margin: between twelve and fifteen minutes for ten."""
    assert ttl_for(10 * MINUTE) == 12.5 * MINUTE
    assert ttl_for(timedelta(seconds=10)) == timedelta(seconds=70)
    assert ttl_for(10 * MINUTE, margin=5 * MINUTE) == 15 * MINUTE
    wrong: list[Any] = [600, timedelta(0), -MINUTE]
    for value in wrong:
        with pytest.raises(Misconfigured, match="retry_interval"):
            ttl_for(value)
        with pytest.raises(Misconfigured, match="margin"):
            ttl_for(MINUTE, margin=value or -MINUTE)

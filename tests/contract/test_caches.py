"""The cache suite on memory, LRU and Redis."""

import uuid

import pytest
import redis
from oncesink.connectors.clock import ManualClock
from oncesink.connectors.contract import Cache
from oncesink.connectors.lru_cache import LRUCache
from oncesink.connectors.memory import MemoryCache, memory_store
from oncesink.connectors.redis_cache import RedisCache

from tests.contract.cache_contract import TTL, CacheContract


class TestMemoryCache(CacheContract):
    """The fake is held to the same promises."""

    @pytest.fixture(autouse=True)
    def store(self) -> None:
        """Take a store of one's own, with a clock that tests set."""
        self.name = uuid.uuid4().hex
        self.clock = memory_store(self.name).clock = ManualClock(1000.0)

    def make(self) -> Cache:
        """Return a recipe on the store."""
        return MemoryCache(self.name, ttl=TTL)

    def elapse(self, seconds: float) -> None:
        """Move the store's clock."""
        self.clock.sleep(seconds)


class TestLRUCache(CacheContract):
    """Bounded memory of one process."""

    @pytest.fixture(autouse=True)
    def store(self) -> None:
        """Take a clock that tests set."""
        self.clock = ManualClock(1000.0)

    def make(self) -> Cache:
        """Return a recipe that is large enough for the suite."""
        return LRUCache(ttl=TTL, entries=10_000, clock=self.clock)

    def elapse(self, seconds: float) -> None:
        """Move the clock."""
        self.clock.sleep(seconds)


class TestRedisCache(CacheContract):
    """A real Redis."""

    @pytest.fixture(autouse=True)
    def store(self, redis_url: str) -> None:
        """Take an empty Redis."""
        self.url = redis_url

    def make(self) -> Cache:
        """Return a recipe with a prefix that is no ASCII."""
        return RedisCache(self.url, ttl=TTL, prefix="päckchen")

    def elapse(self, seconds: float) -> None:
        """Take the time from what every key has left."""
        with redis.Redis.from_url(self.url) as client:
            for key in client.scan_iter():
                left_ms = client.pttl(key)
                assert left_ms > 0, "every key of a cache has a time to live"
                client.pexpire(key, max(1, left_ms - round(seconds * 1000)))
                if left_ms <= seconds * 1000:
                    client.delete(key)

"""A Bloom filter that jobs share, on one plain Redis: its settings, and what is done to it from outside of jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import Final, TypeVar

from ...connectors.clock import Clock, SystemClock
from ...connectors.errors import Misconfigured
from ...connectors.redis_client import RedisClient, RedisEndpoint
from ...connectors.redis_settings import check_prefix, milliseconds
from ...connectors.secret import Secret
from ..metrics import Metrics
from .bloom import Bloom
from .contract import FilterTooLarge, Occupancy
from .redis_bloom_filter import RedisBloomFilter
from .redis_rotation import Keeper
from .rotation import Rotation

LARGEST_BYTES: Final = 512 << 20
"""A value in Redis is no longer than that."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RedisBloom:
    """Recipe of a Bloom filter in Redis that any number of jobs share under one `name`.

    `create_filter()`, or `oncesink filter create`, makes it once; it is never made by itself, since a filter that Redis
    lost must not come back empty. Capacity, error rate and generations as for `Generations(Bloom(...))`; each job
    looks at the fill now and then, and whoever finds it full switches all of them to the next generation.

    Delivery: a hint. While the filter is lost, or Redis is away, every key is perhaps known.
    Parallelism: any number of sessions, also of several machines; each has one connection.
    """

    url: str
    name: str
    _: KW_ONLY
    capacity: int
    error_rate: float
    rotation: Rotation = field(default_factory=Rotation)
    password: Secret | None = None
    prefix: str = "oncesink"
    budget: timedelta = timedelta(milliseconds=500)
    first_pause: timedelta = timedelta(seconds=1)
    longest_pause: timedelta = timedelta(seconds=30)
    clock: Clock = field(default_factory=SystemClock, repr=False, compare=False)
    """For the pauses, and for the time between two looks at the fill."""

    def __post_init__(self) -> None:
        milliseconds("budget", self.budget)
        check_prefix(self.prefix)
        if not 0 < len(self.name.encode()) <= 64 or ":" in self.name:
            raise Misconfigured(f"name={self.name!r} must have 1 to 64 bytes, and no colon")
        if not timedelta(0) < self.first_pause <= self.longest_pause:
            raise Misconfigured(f"pauses must grow: first_pause={self.first_pause}, longest_pause={self.longest_pause}")
        self.rotation.check_error(self.bloom.error_rate_at(self.rotation.alarm_at), self.error_rate)
        largest = self.bloom.resized(self.rotation.largest(self.capacity)).memory_bytes
        if largest > LARGEST_BYTES:
            raise FilterTooLarge(f"{self} grows to {largest >> 20} MiB, and a value in Redis has at most 512: lower it")
        endpoint = self.endpoint
        object.__setattr__(self, "url", endpoint.url)
        object.__setattr__(self, "password", endpoint.password)

    def __str__(self) -> str:
        return self.description

    @property
    def description(self) -> str:
        settings = f"capacity={self.capacity}, error_rate={self.error_rate}, {self.rotation.description}"
        return f"redis bloom({self.name}, {settings})"

    @property
    def bloom(self) -> Bloom:
        """Return the settings of the first generation."""
        return Bloom(capacity=self.capacity, error_rate=self.error_rate)

    @property
    def memory_bytes(self) -> int:
        """Return what all generations take in Redis when they have grown."""
        return self.rotation.keep * self.bloom.resized(self.rotation.largest(self.capacity)).memory_bytes

    @property
    def endpoint(self) -> RedisEndpoint:
        """Return where the Redis is."""
        seconds = self.budget.total_seconds()
        return RedisEndpoint(url=self.url, password=self.password, connect_seconds=seconds, call_seconds=seconds)

    @property
    def pointer_key(self) -> bytes:
        """Return the key that names the generations."""
        return f"{self.prefix}:f:{self.name}".encode()

    def keeper(self, client: RedisClient) -> Keeper:
        """Return what makes and switches the filter."""
        return Keeper(
            client=client,
            key=self.pointer_key,
            description=self.description,
            capacity=self.capacity,
            error_rate=self.error_rate,
            rotation=self.rotation,
        )

    def occupancy(self) -> Occupancy | None:
        """Return how full the filter is, None where Redis has lost it, or never had it. Raises `Unavailable`."""
        return self._kept(lambda keeper: keeper.occupancy())

    def create_filter(self) -> bool:
        """Make the filter, empty, if it is not there; tell whether it was made.

        Raises `FilterMismatch` where one of other settings is there, `FilterTooLarge` where Redis has no room for it.
        """
        return self._kept(lambda keeper: keeper.create())

    def rotate(self) -> None:
        """Begin the next generation now, for all jobs. Raises `FilterUnusable` where there is no filter."""
        self._kept(lambda keeper: keeper.rotate_by_hand())

    def open(self, metrics: Metrics) -> RedisBloomFilter:
        """Connect. Raises `Misconfigured` for a missing driver, a refused password, a filter of other settings."""
        session = RedisBloomFilter(self, metrics)
        session.probe()
        return session

    def _kept(self, call: Callable[[Keeper], T]) -> T:
        client = RedisClient(self.endpoint)
        try:
            return call(self.keeper(client))
        finally:
            client.close()

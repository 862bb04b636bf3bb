"""A Bloom filter that jobs share, on one plain Redis: its settings, and a session that asks and fills it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from ...connectors.breaker import Breaker
from ...connectors.clock import Clock, SystemClock
from ...connectors.errors import Misconfigured, OutcomeUnknown, Unavailable
from ...connectors.redis_client import RedisClient, RedisEndpoint
from ...connectors.redis_settings import check_prefix, milliseconds
from ...connectors.secret import Secret
from ..metrics import Metrics
from .bloom import Bloom
from .contract import FilterTooLarge, FilterUnusable, Occupancy
from .hashing import Keys
from .levels import tell
from .redis_filter_scripts import ADD, ASK, KEYS_A_CALL
from .redis_pointer import Places, Pointer, parse_pointer
from .redis_rotation import Keeper
from .rotation import Rotation

log = logging.getLogger("oncesink")

LARGEST_BYTES: Final = 512 << 20
"""A value in Redis is no longer than that."""

SWITCHES: Final = 5
"""How often a call is repeated because the filter was switched meanwhile."""

T = TypeVar("T")
Truths = npt.NDArray[np.bool_]


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


class RedisBloomFilter:
    """An open shared filter: one connection, one breaker. Belongs to one thread."""

    def __init__(self, recipe: RedisBloom, metrics: Metrics) -> None:
        self.recipe = recipe
        self._metrics = metrics
        self._client = RedisClient(recipe.endpoint)
        self._keeper = recipe.keeper(self._client)
        self._breaker = Breaker(
            "the shared filter",
            first_seconds=recipe.first_pause.total_seconds(),
            longest_seconds=recipe.longest_pause.total_seconds(),
            clock=recipe.clock,
        )
        self._pointer: Pointer | None = None
        self._known: set[bytes] = set()
        """Digests that the last query knew: adding them again would change nothing."""
        self._room = 0
        self._look_at = float("-inf")
        self._was_lost = False

    def probe(self) -> None:
        """Read the pointer. Raises `Misconfigured`; a Redis that is away only opens the breaker."""
        try:
            self._pointer = self._keeper.read()
        except (Unavailable, OutcomeUnknown):
            self._breaker.failed()
            return
        self._tell_loss(lost=self._pointer is None)

    def query(self, keys: Keys) -> Truths:
        self._known.clear()
        if not len(keys):
            return np.zeros(0, dtype=np.bool_)
        found = self._guarded(lambda: [self._ask(part) for part in _parts(keys)])
        if found is None or any(each is None for each in found):
            self._metrics.count("filter_unknown", len(keys))
            return np.ones(len(keys), dtype=np.bool_)
        answer: Truths = np.concatenate(found)
        self._known.update(digest for digest, known in zip(keys.digests, answer.tolist(), strict=True) if known)
        return answer

    def add(self, keys: Keys) -> None:
        fresh = np.array([digest not in self._known for digest in keys.digests], dtype=np.bool_)
        if not fresh.any():
            return
        new = keys if fresh.all() else keys.take(fresh)
        if self._guarded(lambda: self._fill(new)) is not None:
            self._room -= len(new)
            if self._room <= 0 or self.recipe.clock.monotonic() >= self._look_at:
                self._guarded(self._look)

    def put(self, keys: Keys) -> None:
        """Add keys, and raise what stands in the way: `Unavailable`, or `FilterUnusable` where the filter is lost.

        May be repeated: a key that was added is not added again.
        """
        for part in _parts(keys):
            if self._fill_part(part) is None:
                raise FilterUnusable(f"{self.recipe} is not in Redis: `oncesink filter create` makes it")
            self._room -= len(part)
            if self._room <= 0:
                self._look()

    def close(self) -> None:
        self._client.close()

    def __repr__(self) -> str:
        many = 0 if self._pointer is None else len(self._pointer.generations)
        return f"<{type(self).__name__} {self.recipe.name} {many} generations {self._client!r} {self._breaker!r}>"

    def _ask(self, keys: Keys) -> Truths | None:
        """Return the answers of one call, None where the filter is lost."""

        def call(pointer: Pointer) -> Any:
            places = [Places(each, keys.fingerprints[:, 0]) for each in pointer.generations]
            arguments: list[bytes | int] = []
            for each, its in zip(pointer.generations, places, strict=True):
                arguments += [each.size_bytes, its.blocks()]
            names = [each.key(self.recipe.pointer_key) for each in pointer.generations]
            reply = self._client.run(
                ASK, [self.recipe.pointer_key, *names], [pointer.pack(), *arguments], changes=False
            )
            if not isinstance(reply, list):
                return reply
            return np.logical_or.reduce([its.known(blocks) for its, blocks in zip(places, reply, strict=True)])

        found: Truths | None = self._through_switches(call)
        return found

    def _fill(self, keys: Keys) -> None:
        for part in _parts(keys):
            self._fill_part(part)

    def _fill_part(self, keys: Keys) -> Any:
        def call(pointer: Pointer) -> Any:
            newest = pointer.newest
            bits = Places(newest, keys.fingerprints[:, 0]).bits()
            names = [self.recipe.pointer_key, newest.key(self.recipe.pointer_key)]
            return self._client.run(ADD, names, [pointer.pack(), newest.size_bytes, bits], changes=True)

        return self._through_switches(call)

    def _through_switches(self, call: Callable[[Pointer], Any]) -> Any:
        """Call with the pointer as it is, and again where it was switched; return None where the filter is lost."""
        for _ in range(SWITCHES):
            if self._pointer is None:
                self._pointer = self._keeper.read()
            reply = None if self._pointer is None else call(self._pointer)
            if isinstance(reply, bytes):
                self._pointer = self._keeper.checked(parse_pointer(reply))
                continue
            self._tell_loss(lost=reply is None)
            return reply
        raise Unavailable("the shared filter is switched all the time")

    def _look(self) -> None:
        """Tell how full the filter is, rotate it if it is time to, and say when to look again."""
        done = self._keeper.look(self._pointer)
        if done is None:
            self._pointer = None
            return
        self._pointer, self._room = done.pointer, done.room
        self._look_at = self.recipe.clock.monotonic() + self._keeper.every_seconds
        tell([done.occupancy], self._metrics)

    def _guarded(self, call: Callable[[], Any]) -> Any:
        """Return what the call returns, None if Redis is away or the filter there cannot be used."""
        try:
            self._breaker.check()
            answer = call()
        except Unavailable as error:
            if error.retry_after_seconds is None:
                self._breaker.failed()
            log.debug("done without the shared filter: %s", error)
            return None
        except (OutcomeUnknown, Misconfigured) as error:
            self._breaker.failed()
            self._pointer = None
            log.warning("done without the shared filter: %s", error)
            return None
        self._breaker.succeeded()
        return [] if answer is None else answer

    def _tell_loss(self, *, lost: bool) -> None:
        if lost:
            self._pointer = None
        if lost and not self._was_lost:
            log.warning(
                "%s is not in Redis: every key is perhaps known until `oncesink filter create` makes it", self.recipe
            )
        self._was_lost = lost


def _parts(keys: Keys) -> Iterator[Keys]:
    """Cut a batch so that no call keeps Redis busy for long."""
    if len(keys) <= KEYS_A_CALL:
        yield keys
        return
    for at in range(0, len(keys), KEYS_A_CALL):
        yield keys.take(np.arange(at, min(at + KEYS_A_CALL, len(keys))))

"""A session of the filter that jobs share in Redis: it asks and fills it, and does without where Redis is away."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from ...connectors.breaker import Breaker
from ...connectors.errors import Misconfigured, OutcomeUnknown, Unavailable
from ...connectors.redis_client import RedisClient
from ..metrics import Metrics
from .contract import FilterUnusable
from .hashing import Keys
from .levels import tell
from .redis_filter_scripts import ASK, KEYS_A_CALL, PUT
from .redis_places import Blocks, Places, blocks_of, packed
from .redis_pointer import Pointer, SharedGeneration, parse_pointer

if TYPE_CHECKING:
    from .redis_bloom import RedisBloom

log = logging.getLogger("oncesink")

SWITCHES: Final = 5
"""How often a call is repeated because the filter was switched meanwhile."""

TURNS: Final = 20
"""How often blocks are read again because somebody else had changed them."""

Truths = npt.NDArray[np.bool_]


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
        self._held: dict[bytes, Blocks] = {}
        """Blocks of the newest generation, by its id, as the last query read them."""
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
        self._held.clear()
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
            reply = self._read(pointer, pointer.generations, [each.numbers for each in places])
            if not isinstance(reply, list):
                return reply
            self._held[pointer.newest.id] = blocks_of(places[-1].numbers, reply[-1])
            return np.logical_or.reduce([its.known(blocks) for its, blocks in zip(places, reply, strict=True)])

        found: Truths | None = self._through_switches(call)
        return found

    def _read(self, pointer: Pointer, some: Sequence[SharedGeneration], numbers: Sequence[list[int]]) -> Any:
        """Return the blocks of these numbers, one joined value a generation; another pointer; or nothing."""
        arguments: list[bytes | int] = []
        for each, its in zip(some, numbers, strict=True):
            arguments += [each.size_bytes, packed(its)]
        names = [each.key(self.recipe.pointer_key) for each in some]
        return self._client.run(ASK, [self.recipe.pointer_key, *names], [pointer.pack(), *arguments], changes=False)

    def _fill(self, keys: Keys) -> None:
        for part in _parts(keys):
            self._fill_part(part)

    def _fill_part(self, keys: Keys) -> int | None:
        """Set all bits of some keys; return 0, or None where the filter is lost."""
        for _ in range(TURNS):
            changed: int | None = self._through_switches(partial(self._put, keys))
            if not changed:
                return changed
        raise Unavailable("others write the same blocks of the shared filter all the time")

    def _put(self, keys: Keys, pointer: Pointer) -> Any:
        """Set the bits of keys; return in how many blocks somebody was quicker, another pointer, or nothing."""
        newest = pointer.newest
        places = Places(newest, keys.fingerprints[:, 0])
        # What the last query read is most probably still so, and where it is not that is found out.
        held = self._held.pop(newest.id, {})
        wanted = sorted(set(places.numbers))
        if not held.keys() >= set(wanted):
            reply = self._read(pointer, [newest], [wanted])
            if not isinstance(reply, list):
                return reply
            held = blocks_of(wanted, reply[0])
        change = places.change(held)
        if change is None:
            return 0
        names = [self.recipe.pointer_key, newest.key(self.recipe.pointer_key)]
        return self._client.run(PUT, names, [pointer.pack(), newest.size_bytes, *change], changes=True)

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

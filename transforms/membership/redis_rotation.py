"""Make a shared filter in Redis, look how full it is, and switch all who use it to the next generation."""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass
from typing import Final

from ...connectors.errors import OutcomeUnknown, Unavailable
from ...connectors.redis_check import read_info
from ...connectors.redis_client import RedisClient, Script
from .blocks import BLOCK_BITS, BLOCK_BYTES
from .contract import FilterMismatch, FilterTooLarge, FilterUnusable, Occupancy, together
from .redis_filter_scripts import SWITCH
from .redis_pointer import Pointer, SharedGeneration, new_generation, parse_pointer
from .rotation import Alarm, Cause, Rotation
from .sizing import estimated_load, false_positive_rate

log = logging.getLogger("oncesink")

SAMPLE_BYTES: Final = 1 << 20
"""How much of a generation is counted to tell its fill: keys spread evenly over all of it."""

ORPHAN_SECONDS: Final = 3600
"""Bits that a process made and did not come to name vanish after so long."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """What a look found, or made."""

    pointer: Pointer
    occupancy: Occupancy
    room: int
    """How many keys one job may add before it looks again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Keeper:
    """What looks after one shared filter, over one connection."""

    client: RedisClient
    key: bytes
    description: str
    capacity: int
    error_rate: float
    rotation: Rotation
    every_seconds: float = 60.0

    def read(self) -> Pointer | None:
        """Return the generations, None where there is no filter. Raises `FilterDamaged`, `FilterMismatch`."""
        stored = self.client.call("GET", self.key, changes=False)
        return None if stored is None else self.checked(parse_pointer(stored))

    def checked(self, pointer: Pointer) -> Pointer:
        """Return the pointer if it is of this filter's settings. Raises `FilterMismatch`."""
        if (pointer.first_capacity, pointer.error_rate) != (self.capacity, self.error_rate):
            made = f"capacity={pointer.first_capacity}, error_rate={pointer.error_rate}"
            raise FilterMismatch(
                f"the filter in Redis was made for {made}, and {self.description} is asked for: give it another name"
            )
        return pointer

    def create(self) -> bool:
        """Make the filter if it is not there."""
        if self.read() is not None:
            return False
        first = new_generation(self.capacity, self.error_rate, number=0, born=self.rotation.clock())
        made = self._switch(None, self._pointer((first,)), ())
        return made.newest.id == first.id

    def rotate_by_hand(self) -> None:
        """Begin the next generation. Raises `FilterUnusable` where there is no filter."""
        pointer = self.read()
        if pointer is None:
            raise FilterUnusable(f"{self.description} is not in Redis: make it with `oncesink filter create`")
        self._rotate(pointer, "hand", self.occupancy_of(pointer.newest))

    def look(self, pointer: Pointer | None) -> Look | None:
        """Count bits, and rotate where the newest generation is full, or old. Return None where the filter is lost."""
        pointer = self.read() if pointer is None else pointer
        if pointer is None:
            return None
        newest, now = self.occupancy_of(pointer.newest), self.rotation.clock()
        full = newest.used >= self.rotation.alarm_at
        slice_seconds = self.rotation.slice_seconds
        if full or (slice_seconds is not None and now - pointer.newest.born >= slice_seconds):
            pointer = self._rotate_if_there_is_room(pointer, "fill" if full else "age", newest)
            newest = self.occupancy_of(pointer.newest)
        return Look(
            pointer=pointer, occupancy=self._together(pointer, newest), room=self._room(pointer.newest, newest.used)
        )

    def occupancy_of(self, generation: SharedGeneration) -> Occupancy:
        """Return how full one generation is, from a part of its bits."""
        bits = generation.size_bytes * 8
        count = min(generation.size_bytes, SAMPLE_BYTES)
        begin = random.randrange(0, generation.size_bytes - count + 1, BLOCK_BYTES)  # noqa: S311 - nothing secret
        found = self.client.call("BITCOUNT", generation.key(self.key), begin, begin + count - 1, changes=False)
        share = int(found) / (count * 8)
        load = estimated_load(max(1 - share, 1 / bits), generation.probes)
        return Occupancy(
            capacity_keys=generation.capacity,
            estimated_keys=load * bits / BLOCK_BITS,
            estimated_error_rate=false_positive_rate(load, generation.probes),
            set_bits=round(share * bits),
            bits=bits,
        )

    def occupancy(self) -> Occupancy | None:
        """Return how full the filter is, all generations together; None where it is lost."""
        pointer = self.read()
        return None if pointer is None else self._together(pointer, self.occupancy_of(pointer.newest))

    def _together(self, pointer: Pointer, newest: Occupancy) -> Occupancy:
        each = [*map(self.occupancy_of, pointer.generations[:-1]), newest]
        return together(each, window_seconds=max(self.rotation.clock() - pointer.generations[0].born, 0.0))

    def _room(self, newest: SharedGeneration, used: float) -> int:
        # Others add as well: a quarter of what is left, so that four jobs that begin together are in time.
        left = (self.rotation.alarm_at - used) * newest.capacity
        return max(int(left / 4), newest.capacity // 100, 1)

    def _rotate_if_there_is_room(self, pointer: Pointer, cause: Cause, newest: Occupancy) -> Pointer:
        try:
            return self._rotate(pointer, cause, newest)
        except FilterTooLarge as error:
            # A filter that is too full errs more often, and a job that stops does nothing at all.
            log.warning("stays with its generation at %.0f%%: %s", 100 * newest.used, error)
            return pointer

    def _rotate(self, pointer: Pointer, cause: Cause, occupancy: Occupancy) -> Pointer:
        """Switch to the next generation, unless somebody else did; return what is there then."""
        rotation, now, old = self.rotation, self.rotation.clock(), pointer.newest
        capacity = old.capacity if cause == "age" else rotation.next_capacity(self.capacity, old.capacity)
        following = new_generation(capacity, self.error_rate, number=old.number + 1, born=now)
        kept = self._kept(pointer, now)
        gone = pointer.generations[: len(pointer.generations) - len(kept)]
        found = self._switch(pointer, self._pointer((*kept, following)), gone)
        if found.newest.id != following.id:
            return found
        alarm = Alarm(
            filter=self.description,
            number=old.number,
            occupancy=occupancy,
            next_capacity=capacity,
            given_up=len(gone),
        )
        if cause == "fill":
            rotation.sound(alarm)
        else:
            log.info("%s (by %s)", alarm, cause)
        return found

    def _kept(self, pointer: Pointer, now: float) -> tuple[SharedGeneration, ...]:
        """Return the generations that stay beside a new one."""
        kept = pointer.generations[max(len(pointer.generations) + 1 - self.rotation.keep, 0) :]
        window, slice_seconds = self.rotation.window, self.rotation.slice_seconds
        if window is None or slice_seconds is None:
            return kept
        oldest = now - window.total_seconds()
        return tuple(each for each in kept if each.born + slice_seconds > oldest)

    def _pointer(self, generations: tuple[SharedGeneration, ...]) -> Pointer:
        return Pointer(first_capacity=self.capacity, error_rate=self.error_rate, generations=generations)

    def _switch(self, old: Pointer | None, new: Pointer, gone: tuple[SharedGeneration, ...]) -> Pointer:
        """Make the newest generation's bits and switch to it; return the pointer that is there afterwards."""
        bits = new.newest.key(self.key)
        self._require_room(new.newest.size_bytes)
        # One step: bits that nobody came to name do not stay.
        self.client.run(_ALLOCATE, [bits], [new.newest.size_bytes - 1, ORPHAN_SECONDS], changes=True)
        names = [self.key, bits, *(each.key(self.key) for each in gone)]
        try:
            reply = self.client.run(SWITCH, names, [b"" if old is None else old.pack(), new.pack()], changes=True)
        except OutcomeUnknown:
            found = self.read()
            if found is None:
                raise
            return found
        if reply == b"":
            raise Unavailable(f"{self.description} was lost while it was to be switched")
        return self.checked(parse_pointer(reply)) if isinstance(reply, bytes) else new

    def _require_room(self, size_bytes: int) -> None:
        info = read_info(self.client)
        most = int(info.get("maxmemory", 0)) or int(info.get("total_system_memory", 0))
        left = most - int(info.get("used_memory", 0))
        if most and size_bytes > left:
            raise FilterTooLarge(
                f"{self.description} needs {size_bytes >> 10:,} KiB more, and Redis has {max(left, 0) >> 10:,} KiB"
                " left: raise maxmemory, lower its capacity, or keep fewer generations"
            )


_ALLOCATE = Script(
    """
    redis.call('SETRANGE', KEYS[1], ARGV[1], '\\0')
    return redis.call('EXPIRE', KEYS[1], ARGV[2])
    """
)
"""Keys: the bits. Arguments: the place of the last byte, how long they stay while nobody names them."""

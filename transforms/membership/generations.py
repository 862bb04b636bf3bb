"""Filters that follow each other: keys go into the newest, and all of them are asked."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from .bloom import Bloom
from .contract import (
    FilterMismatch,
    FilterTooLarge,
    FilterUnusable,
    MembershipFilter,
    MembershipRecipe,
    Occupancy,
    together,
)
from .generations_snapshot import Part, Stored, is_stored, read, snapshot_bytes, write
from .hashing import Keys
from .rotation import Alarm, Cause, Rotation

log = logging.getLogger("oncesink")

LOOKS = 100
"""A filter's fill is looked at whenever a hundredth of its capacity came, at the most: reading all of it costs time."""

Truths = npt.NDArray[np.bool_]


@runtime_checkable
class GrowingFilter(MembershipFilter, Protocol):
    """A filter that tells which log entries it knows."""

    def known(self, entries: bytes) -> Truths: ...


@runtime_checkable
class GrowingRecipe(MembershipRecipe, Protocol):
    """Settings of which larger ones can be made. `Bloom` is."""

    @property
    def capacity(self) -> int: ...

    @property
    def error_rate(self) -> float: ...

    def resized(self, capacity: int) -> GrowingRecipe: ...

    def error_rate_at(self, used: float) -> float:
        """Return the error rate to expect when this share of the capacity is used."""
        ...

    def create(self) -> GrowingFilter: ...

    def load(self, snapshot: bytes) -> GrowingFilter: ...


@dataclass(frozen=True, slots=True)
class Generations:
    """Settings of generations: `Generations(Bloom(capacity=1_000_000, error_rate=0.001), Rotation(keep=4))`.

    `first` is the filter that begins. Together the generations err at most twice as often as it is asked to, which is
    checked. When the oldest is given up its keys cost a claim that finds its row.
    """

    first: GrowingRecipe
    rotation: Rotation = field(default_factory=Rotation)

    def __post_init__(self) -> None:
        if not isinstance(self.first, GrowingRecipe):
            raise FilterUnusable(f"generations are made of filters such as Bloom(...), not of {self.first!r}")
        rate = self.first.error_rate_at(self.rotation.alarm_at)
        self.rotation.check_error(rate, self.first.error_rate)

    def __str__(self) -> str:
        return self.description

    @property
    def description(self) -> str:
        return f"generations({self.first.description}, {self.rotation.description})"

    @property
    def memory_bytes(self) -> int:
        """Return what all generations take when they have grown; the first alone takes less."""
        return self.rotation.keep * self.first.resized(self.rotation.largest(self.first.capacity)).memory_bytes

    def create(self) -> GenerationsFilter:
        newest = Generation(self.first, self.first.create(), born=self.rotation.clock(), number=0)
        return GenerationsFilter(self, [newest])

    def load(self, snapshot: bytes) -> GenerationsFilter:
        """Return the filter that was stored, or the one generation that a single filter's snapshot is."""
        if isinstance(self.first, Bloom) and not is_stored(snapshot):
            alone = Generation(self.first, self.first.load(snapshot), born=self.rotation.clock(), number=0)
            return GenerationsFilter(self, [alone])
        stored = read(snapshot)
        if stored.first_capacity != self.first.capacity:
            made = f"a first capacity of {stored.first_capacity}"
            raise FilterMismatch(f"the stored filter was made for {made}, and {self} is asked for: rebuild it")
        live = [
            Generation(recipe := self.first.resized(part.capacity), recipe.load(part.snapshot), part.born, part.number)
            for part in stored.parts[-self.rotation.keep :]
        ]
        return GenerationsFilter(self, live)


@dataclass(slots=True)
class Generation:
    """One filter of several. `born` is when it began, in seconds since 1970."""

    recipe: GrowingRecipe
    filter: GrowingFilter
    born: float
    number: int


class GenerationsFilter:
    """Live generations, made by `Generations.create` or `Generations.load`. It belongs to one thread."""

    __slots__ = ("_live", "_room", "recipe", "revision")

    def __init__(self, recipe: Generations, live: list[Generation]) -> None:
        self.recipe = recipe
        self.revision = 0
        self._live = live
        self._room = 0
        """How many new keys the newest takes before its fill is looked at again."""
        self._look()

    def __repr__(self) -> str:
        newest = self._live[-1]
        return f"<GenerationsFilter {len(self._live)} live, number {newest.number} the newest: {newest.filter!r}>"

    @property
    def entry_bytes(self) -> int:
        return self._live[-1].filter.entry_bytes

    @property
    def snapshot_bytes(self) -> int:
        return snapshot_bytes(each.filter.snapshot_bytes for each in self._live)

    def query(self, keys: Keys) -> Truths:
        self._grow_old()
        answer = self._live[-1].filter.query(keys)
        for each in self._live[-2::-1]:
            answer |= each.filter.query(keys)
        return answer

    def add(self, keys: Keys) -> None:
        self.record(keys)

    def record(self, keys: Keys) -> bytes:
        fresh = ~self.query(keys)
        if not fresh.any():
            return b""
        new = keys.take(fresh)
        entries = []
        for piece in self._pieces(len(new)):
            part = new if len(new) == len(piece) else new.take(np.arange(piece.start, piece.stop))
            self._live[-1].filter.add(part)
            entries.append(self._live[-1].filter.entries(part))
        return b"".join(entries)

    def entries(self, keys: Keys) -> bytes:
        return self._live[-1].filter.entries(keys)

    def replay(self, entries: bytes) -> None:
        width = self.entry_bytes
        known = np.zeros(len(entries) // width, dtype=np.bool_)
        for each in self._live:
            known |= each.filter.known(entries)
        fresh = np.frombuffer(entries, dtype=f"V{width}")[~known]
        for piece in self._pieces(len(fresh)):
            self._live[-1].filter.replay(fresh[piece.start : piece.stop].tobytes())

    def rotate(self, cause: Cause = "hand") -> None:
        """Begin a new generation now."""
        newest, rotation = self._live[-1], self.recipe.rotation
        occupancy = newest.filter.occupancy()
        grows = cause != "age"
        capacity = newest.recipe.capacity
        if grows:
            capacity = rotation.next_capacity(self.recipe.first.capacity, capacity)
        given_up = self._give_up(len(self._live) + 1 - rotation.keep)
        given_up += self._begin(newest, capacity)
        self.revision += 1
        alarm = Alarm(
            filter=self.recipe.description,
            number=newest.number,
            occupancy=occupancy,
            next_capacity=self._live[-1].recipe.capacity,
            given_up=given_up,
        )
        if cause == "fill":
            rotation.sound(alarm)
        else:
            log.info("%s (by %s)", alarm, cause)

    def occupancy(self) -> Occupancy:
        """Return how full all generations are together, and what their keys cost together."""
        age = max(self.recipe.rotation.clock() - self._live[0].born, 0.0)
        return together([each.filter.occupancy() for each in self._live], window_seconds=age)

    def to_bytes(self) -> bytes:
        parts = [Part(each.number, each.born, each.recipe.capacity, each.filter.to_bytes()) for each in self._live]
        return write(Stored(first_capacity=self.recipe.first.capacity, parts=parts))

    def _pieces(self, count: int) -> Iterator[range]:
        """Cut keys that are to be added so that the fill is looked at in time."""
        begin = 0
        while begin < count:
            end = min(begin + self._room, count)
            yield range(begin, end)
            self._room -= end - begin
            begin = end
            if self._room <= 0:
                self._look()

    def _look(self) -> None:
        """Rotate if the newest is full, and say how many keys may come before the next look."""
        newest, alarm_at = self._live[-1], self.recipe.rotation.alarm_at
        used = newest.filter.occupancy().used
        if used >= alarm_at:
            self.rotate("fill")
            newest, used = self._live[-1], 0.0
        capacity = newest.recipe.capacity
        self._room = max(int((alarm_at - used) * capacity), capacity // LOOKS, 1)

    def _grow_old(self) -> None:
        rotation = self.recipe.rotation
        if rotation.slice_seconds is None or rotation.window is None:
            return
        now, newest = rotation.clock(), self._live[-1]
        if now - newest.born >= rotation.slice_seconds:
            if newest.filter.occupancy().set_bits:
                self.rotate("age")
                self._look()
            else:
                newest.born = now
        # No key went into a generation once the next one was born, or it was due.
        oldest = now - rotation.window.total_seconds()
        while len(self._live) > 1 and min(self._live[1].born, self._live[0].born + rotation.slice_seconds) <= oldest:
            self._give_up(1)
            self.revision += 1

    def _begin(self, newest: Generation, capacity: int) -> int:
        """Append an empty generation; return how many had to be given up for it."""
        given_up = 0
        recipe = newest.recipe.resized(capacity)
        while True:
            try:
                live = recipe.create()
                break
            except FilterTooLarge:
                # The job must go on: what there is room for is what the oldest took.
                if not self._live:
                    raise
                log.warning("no memory for %s: giving up the oldest generation for one of its size", recipe.description)
                recipe = self._live[0].recipe
                given_up += self._give_up(1)
        born = self.recipe.rotation.clock()
        self._live.append(Generation(recipe, live, born=born, number=newest.number + 1))
        return given_up

    def _give_up(self, count: int) -> int:
        count = max(count, 0)
        del self._live[:count]
        return count

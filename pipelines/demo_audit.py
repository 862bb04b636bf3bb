"""Count what is lost, twice and wrong, from the source data and the tables alone: with nothing of the library.

    lost   flights of the CSV that are not in the table
    twice  rows beyond the first, summed over the flights
    wrong  rows whose content no delivery had
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

Flight = tuple[str, str, str]
"""Hour, carrier, number: unique in the source."""

_KEY = ("time_hour", "carrier", "flight")
_POSITION = ("source", "topic", "partition", "offset")


@dataclass(frozen=True, kw_only=True, slots=True)
class Count:
    """What a table came to."""

    rows: int
    lost: int
    twice: int
    wrong: int


class Truth:
    """What should be there: each flight's content from the CSV, and which flight was delivered at each position."""

    def __init__(self, archive: Path, deliveries: Path, *, limit: int | None) -> None:
        self.content: dict[Flight, str] = {}
        for names, row in _csv(archive, limit):
            fields = dict(zip(names, row, strict=True))
            self.content[_flight(fields)] = _joined(fields[name] for name in sorted(fields))
        self.delivered: dict[str, Flight] = {}
        self.lines = 0
        with deliveries.open("rb") as file:
            for line in file:
                event = json.loads(line)
                self.delivered[_joined(event[name] for name in _POSITION)] = _flight(event)
                self.lines += 1

    @property
    def distinct(self) -> int:
        """Return the number of flights."""
        return len(self.content)

    def count(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Count:
        """Compare a table with it."""
        order = [columns.index(name) for name in sorted(set(columns) - set(_POSITION))]
        key = [columns.index(name) for name in _KEY]
        position = [columns.index(name) for name in _POSITION]
        found: set[Flight] = set()
        total = wrong = 0
        for row in rows:
            total += 1
            hour, carrier, number = (str(row[index]) for index in key)
            flight = (hour, carrier, number)
            right = self.delivered.get(_joined(row[index] for index in position)) == flight
            if not right or self.content.get(flight) != _joined(row[index] for index in order):
                wrong += 1
            found.add(flight)
        return Count(rows=total, lost=len(self.content.keys() - found), twice=total - len(found), wrong=wrong)


def _csv(archive: Path, limit: int | None) -> Iterator[tuple[list[str], list[str]]]:
    with zipfile.ZipFile(archive) as opened, opened.open("flights.csv") as file:
        rows = csv.reader(io.TextIOWrapper(file, encoding="utf-8", newline=""))
        names = next(rows)
        for row in islice(rows, limit):
            yield names, row


def _flight(fields: dict[str, Any]) -> Flight:
    hour, carrier, number = (str(fields[name]) for name in _KEY)
    return hour, carrier, number


def _joined(values: Iterable[Any]) -> str:
    """Join values as the CSV writes them: what is absent is NA there."""
    return "|".join(["NA" if value is None else str(value) for value in values])

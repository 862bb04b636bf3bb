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
from operator import itemgetter
from pathlib import Path

KEY = ("time_hour", "carrier", "flight")
"""Unique in the source."""

POSITION = ("source", "topic", "partition", "offset")
CONTENT = (*KEY, "tailnum", "origin", "dest", "dep_delay", "arr_delay", "air_time", "distance")


@dataclass(frozen=True, kw_only=True, slots=True)
class Count:
    """What a table came to."""

    rows: int
    lost: int
    twice: int
    wrong: int


class Truth:
    """What should be there, as texts of values joined by `|`: each flight's key and content, and each delivery."""

    def __init__(self, archive: Path, deliveries: Path, *, limit: int | None) -> None:
        self.content = dict(_flights(archive, limit))
        self.delivered: set[str] = set()
        self.lines = 0
        with deliveries.open("rb") as file:
            for line in file:
                self.delivered.add(self._delivery(line))
                self.lines += 1

    @property
    def distinct(self) -> int:
        """Return the number of flights."""
        return len(self.content)

    def count(self, rows: Iterable[Sequence[str]]) -> Count:
        """Compare a table with it; of each row come the texts of `KEY` and of `POSITION` with `CONTENT`."""
        found: set[str] = set()
        total = wrong = 0
        for key, row in rows:
            total += 1
            wrong += row not in self.delivered
            found.add(key)
        return Count(rows=total, lost=len(self.content.keys() - found), twice=total - len(found), wrong=wrong)

    def _delivery(self, line: bytes) -> str:
        """Return where a delivery stood, and the content that the source gives for its flight."""
        event = json.loads(line)
        position = "|".join([str(value) for value in _POSITION_OF(event)])
        return f"{position}|{self.content['|'.join([str(value) for value in _KEY_OF(event)])]}"


_POSITION_OF = itemgetter(*POSITION)
_KEY_OF = itemgetter(*KEY)


def _flights(archive: Path, limit: int | None) -> Iterator[tuple[str, str]]:
    """Yield each flight's key and content. The source writes NA for what is absent, as the texts of rows do."""
    with zipfile.ZipFile(archive) as opened, opened.open("flights.csv") as file:
        rows = csv.reader(io.TextIOWrapper(file, encoding="utf-8", newline=""))
        header = next(rows)
        key = itemgetter(*[header.index(name) for name in KEY])
        content = itemgetter(*[header.index(name) for name in CONTENT])
        for row in islice(rows, limit):
            yield "|".join(key(row)), "|".join(content(row))

"""The quick way from a batch of flat records to keys, occurrences and contents: column by column.

A plan is made for one shape (the set of a dict's names), encodes each field once, and gives what the recipes give, byte
for byte. Where it cannot, the recipes are asked: nested paths, and all that is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from operator import itemgetter
from typing import Any

from ..connectors.errors import Rejected
from .canonical import encode
from .keys import MAX_OCCURRENCE_BYTES, Fields, KeyRecipe, OccurrenceRecipe, SourcePosition

Columns = tuple[list[bytes], list[bytes] | None, list[bytes] | None]
"""Keys, occurrences and contents of a batch, as canonical bytes."""


class Irregular(Exception):
    """The recipes must be asked about this batch."""


class Plan:
    """Encode batches of records of one shape.

    `without` are the names that are no content; None where contents are not wanted.
    """

    def __init__(
        self, names: Iterable[str], key: Fields, occurrence: SourcePosition | None, without: frozenset[str] | None
    ) -> None:
        self._width = len(names := sorted(names))
        kept = [] if without is None else [name for name in names if name not in without]
        positions = () if occurrence is None else occurrence.paths
        order = sorted({*map(_flat, key.paths), *map(_flat, positions), *kept})
        place = {name: index for index, name in enumerate(order)}
        self._values = itemgetter(*order) if len(order) > 1 else lambda record: (record[order[0]],)
        self._key = [place[_flat(path)] for path in key.paths]
        self._occurrence = None if occurrence is None else [place[_flat(path)] for path in positions]
        self._source = "" if occurrence is None else f"l{len(positions) + 1}:{encode(occurrence.source)}"
        self._kept = None if without is None else [place[name] for name in kept]
        self._template = f"m{len(kept)}:" + "".join(f"s{len(name)}:{name.replace('%', '%%')}%s" for name in kept)

    def __call__(self, records: Sequence[dict[str, Any]]) -> Columns:
        """Return what the recipes return for these records, in order. Raises `Irregular`."""
        if any(map(self._width.__ne__, map(len, records))):
            raise Irregular
        try:
            columns = [_texts(column) for column in zip(*map(self._values, records), strict=True)]
            return self._keys(columns), self._occurrences(columns), self._contents(columns, len(records))
        except (KeyError, UnicodeEncodeError, Rejected) as error:
            raise Irregular from error

    def _contents(self, columns: Sequence[list[str]], many: int) -> list[bytes] | None:
        if self._kept is None:
            return None
        if not self._kept:
            return [self._template.encode()] * many
        template = self._template
        return [(template % row).encode() for row in zip(*[columns[index] for index in self._kept], strict=True)]

    def _keys(self, columns: Sequence[list[str]]) -> list[bytes]:
        picked = [columns[index] for index in self._key]
        if not all(_NO_KEY.isdisjoint(column) for column in picked):
            raise Irregular
        if len(picked) == 1:
            return [("l1:" + text).encode() for text in picked[0]]
        head = f"l{len(picked)}:"
        return [(head + "".join(row)).encode() for row in zip(*picked, strict=True)]

    def _occurrences(self, columns: Sequence[list[str]]) -> list[bytes] | None:
        if self._occurrence is None:
            return None
        picked = [columns[index] for index in self._occurrence]
        if any("n;" in column for column in picked):
            raise Irregular
        occurrences = [(self._source + "".join(row)).encode() for row in zip(*picked, strict=True)]
        if max(map(len, occurrences)) > MAX_OCCURRENCE_BYTES:
            raise Irregular
        return occurrences


def plannable(key: KeyRecipe, occurrence: OccurrenceRecipe | None) -> bool:
    """Tell whether there can be plans for these recipes at all."""
    return type(key) is Fields and not key.nfc and (occurrence is None or type(occurrence) is SourcePosition)


def make_plan(
    record: dict[str, Any], key: KeyRecipe, occurrence: OccurrenceRecipe | None, without: frozenset[str] | None
) -> Plan | None:
    """Return a plan for records of this one's shape, None where there can be none."""
    if type(key) is not Fields or key.nfc or not (occurrence is None or isinstance(occurrence, SourcePosition)):
        return None
    paths = (*key.paths, *(occurrence.paths if occurrence is not None else ()))
    if not all(isinstance(name, str) for name in record) or not all(path in record for path in paths):
        return None
    return Plan(record, key, occurrence, without)


def _texts(column: tuple[Any, ...]) -> list[str]:
    """Return the canonical text of each value (see `canonical.py`). Raises `Rejected`."""
    kinds = set(map(type, column))
    quick = _ENCODERS.get(kinds.pop()) if len(kinds) == 1 else None
    if quick is None:
        return [encode(value, 1) for value in column]
    distinct = tuple(set(column))
    if 4 * len(distinct) > len(column):
        return quick(column)
    # A topic, a partition, a currency: few values, many times.
    return list(map(dict(zip(distinct, quick(distinct), strict=True)).__getitem__, column))


def _floats(column: tuple[float, ...]) -> list[str]:
    if not all(map(isfinite, column)):
        raise Irregular
    return [f"f{(value + 0.0).hex()};" for value in column]


def _flat(path: object) -> str:
    assert isinstance(path, str)
    return path


_NO_KEY = frozenset({"n;", "s0:", "b0:", "l0:", "m0:"})
"""Texts of values that are no key: the recipes say why."""

_ENCODERS: dict[type, Callable[[tuple[Any, ...]], list[str]]] = {
    str: lambda column: [f"s{len(value)}:{value}" for value in column],
    # Twice as fast as with a format specifier.
    int: lambda column: ["i%x;" % value for value in column],  # noqa: UP031
    float: _floats,
    bool: lambda column: ["t;" if value else "F;" for value in column],
    type(None): lambda column: ["n;"] * len(column),
}

"""What of a record goes into which column of a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

from .contract import Write
from .errors import Rejected
from .moments import in_utc
from .rows import RECORD_ERRORS, Path, fields_of
from .versioned import Versioned, is_true

Columns = Mapping[str, "Path | Callable[[Any], object]"]
"""Which part of a record goes into which column: a field's path, or a picklable function of the record.

A record on which a function raises a look-up, type, value or arithmetic error is rejected as `wrong_type`.
"""


class Default:
    """Marks a column that the record does not mention."""


DEFAULT = Default()

_MISSING = object()


class Values(NamedTuple):
    """One row of values for each write, all of the same columns."""

    names: tuple[str, ...]
    rows: Sequence[Sequence[object]]


class TableValues:
    """Reads records for one table.

    Without `columns` the fields of a record go where they are called, and fields that a record lacks get the column's
    default. With them a record that lacks the field of a column is rejected, unless the column is among `optional`:
    then it gets its default. `required` columns must be in each record. Where records are `versioned`, those that say
    that the row is deleted may lack all but key and version.
    """

    def __init__(
        self,
        table: str,
        there: Sequence[str],
        *,
        columns: Columns | None = None,
        occurrence_column: str | None = None,
        required: tuple[str, ...] = (),
        optional: tuple[str, ...] = (),
        versioned: Versioned | None = None,
    ) -> None:
        self._table = table
        self._there = frozenset(there)
        self._occurrence_column = occurrence_column
        self._required = required
        self._deleted = versioned.deleted if versioned is not None else None
        self._optional = frozenset((*optional, self._deleted))
        self._always = frozenset((*required, versioned.by if versioned is not None else None))
        self._columns = None if columns is None else dict(columns)
        self._pick = _picker(list((columns or {}).values()))
        self._getters = [_getter(name, part) for name, part in (columns or {}).items()]

    @property
    def chosen(self) -> Columns:
        """What goes into the columns, but for the occurrence's; nothing where fields go where they are called."""
        return self._columns or {}

    def read(self, writes: Sequence[Write]) -> Values:
        """Read the records. Raises `Rejected` where one has a field without a column, or lacks a required one."""
        records = [write.record for write in writes]
        values = self._by_name(records) if self._columns is None else self._chosen(records)
        if self._occurrence_column is None:
            return values
        rows = [(*row, write.occurrence) for row, write in zip(values.rows, writes, strict=True)]
        return Values((*values.names, self._occurrence_column), rows)

    def _chosen(self, records: Sequence[Any]) -> Values:
        names = tuple(self._columns or ())
        if self._pick is not None:
            try:
                return Values(names, [self._pick(fields_of(record)) for record in records])
            except KeyError:
                # The general way says which field is missing, or that it may be.
                pass
        return Values(names, [self._complete(names, [get(record) for get in self._getters]) for record in records])

    def _complete(self, names: Sequence[str], row: list[object]) -> list[object]:
        """Put defaults where fields are missing that may be. Raises `Rejected` for another one."""
        missing = [index for index, value in enumerate(row) if value is _MISSING]
        for index in missing:
            row[index] = DEFAULT
        needed = [names[index] for index in missing if names[index] not in self._optional]
        if self._deleted is not None and is_true(row[names.index(self._deleted)]):
            needed = [name for name in needed if name in self._always]
        if needed:
            raise self._no_field(next((name for name in needed if name in self._required), needed[0]))
        return row

    def _no_field(self, name: str) -> Rejected:
        path = (self._columns or {})[name]
        if name in self._required:
            return Rejected("no_key", f"the record has no field {path!r}, which is the key of {self._table}")
        return Rejected(
            "no_field", f"the record has no field {path!r} for column {name}: name it in optional= if it may be missing"
        )

    def _by_name(self, records: Sequence[Any]) -> Values:
        fields = [fields_of(record) for record in records]
        first = fields[0].keys()
        if all(each.keys() == first for each in fields):
            names = tuple(first)
            self._check(first)
            if len(names) == 1:
                return Values(names, [tuple(each.values()) for each in fields])
            return Values(names, list(map(itemgetter(*names), fields)))
        for each in fields:
            self._check(each.keys())
        names = tuple(dict.fromkeys(name for each in fields for name in each))
        return Values(names, [[each.get(name, DEFAULT) for name in names] for each in fields])

    def _check(self, names: Any) -> None:
        for name in self._required:
            if name not in names:
                raise Rejected("no_key", f"the record has no field {name!r}, which is the key of {self._table}")
        unknown = sorted(str(name) for name in names if name not in self._there)
        if unknown or not names:
            what = f"table {self._table} has no column {', '.join(unknown)}" if unknown else "the record has no fields"
            raise Rejected("wrong_type", f"{what}: name what goes where with columns=")


def _picker(parts: Sequence[Path | Callable[[Any], object]]) -> Callable[[Any], Sequence[object]] | None:
    """Return what picks top-level fields at once, or None where there are too few of them, or others than such."""
    names = [part for part in parts if isinstance(part, str)]
    return itemgetter(*names) if len(names) == len(parts) > 1 else None


def _getter(column: str, part: Path | Callable[[Any], object]) -> Callable[[Any], object]:
    return partial(_computed, column, part) if callable(part) else partial(_field, part)


def _computed(column: str, function: Callable[[Any], object], record: Any) -> object:
    try:
        return function(record)
    except RECORD_ERRORS as error:
        raise Rejected(
            "wrong_type", f"the function of column {column} raised {type(error).__name__}: {error}"
        ) from error


def _field(path: Path, record: Any) -> object:
    value = record
    for name in (path,) if isinstance(path, str) else path:
        value = _MISSING if value is None else fields_of(value).get(name, _MISSING)
        if value is _MISSING:
            break
    return value


def json_text(value: object) -> str:
    """Write a nested value as JSON. Raises `Rejected` (`wrong_type`, `not_finite`)."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except TypeError as error:
        raise Rejected("wrong_type", f"not JSON: {error}") from error
    except RecursionError as error:
        raise Rejected("wrong_type", "not JSON: nested too deep") from error
    except ValueError as error:
        raise Rejected("not_finite", f"not JSON: {error}") from error


def utc(value: datetime) -> str:
    """Write a date-time as SQL does; an aware one as UTC. Raises `Rejected` (`out_of_range`)."""
    return in_utc(value).isoformat(" ")

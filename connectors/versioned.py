"""Rows that go forward only: a version that is older than the row's changes nothing.

Shared by the tables of all databases: what a record's version is, which of several in a batch is the newest, and what a
tombstone keeps. The upsert itself is each database's own.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Any, Literal, TypeVar

from .errors import Misconfigured, Rejected
from .moments import in_utc
from .rows import Path

Kind = Literal["integer", "datetime"]
"""What a version column holds."""

Version = Any
"""A whole number, or a `datetime` in UTC without a time zone: as it is compared, never both in one table."""

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Versioned:
    """Let a table take a record only if its version is above that of the row: `Versioned(by="version")`.

    `by` names the column of the version: whole numbers, or date-times with microseconds. `deleted` names a column of 0
    and 1: a record with 1 (or True) there deletes. Its row stays, as a tombstone: key, version and 1, the rest at its
    defaults; so an older record that arrives late does not bring it back, and a newer one does.
    """

    by: str
    _: KW_ONLY
    deleted: str | None = None

    def __post_init__(self) -> None:
        for name, value in (("by", self.by), ("deleted", self.deleted or self.by)):
            if not isinstance(value, str) or not value:
                raise Misconfigured(f"Versioned: {name} is the name of a column, not {value!r}")
        if self.by == self.deleted:
            raise Misconfigured(f"Versioned: {self.by} cannot be both by= and deleted=")

    def __str__(self) -> str:
        return f"newest by {self.by}" + (f", deleted by {self.deleted}" if self.deleted else "")


def refuse_unfit(
    table: str,
    versioned: Versioned | None,
    *,
    unique: tuple[str, ...],
    columns: Mapping[str, object] | None,
    optional: tuple[str, ...],
) -> None:
    """Raise `Misconfigured` for settings of a table that contradict each other."""
    unknown = [name for name in optional if name not in (columns or ())]
    if unknown:
        raise Misconfigured(f"optional= names columns of columns=; {', '.join(unknown)} of {table} is not among them")
    needed = [name for name in (*unique, *((versioned.by,) if versioned else ())) if name in optional]
    if needed:
        raise Misconfigured(
            f"key and version of {table} are in every record: take {', '.join(needed)} out of optional="
        )
    if versioned is None:
        return
    if not unique:
        raise Misconfigured(f"versioned= needs unique=(column, ...): the key of {table} whose versions are compared")
    named = [versioned.by, *((versioned.deleted,) if versioned.deleted else ())]
    if columns is None:
        raise Misconfigured(
            f"versioned= needs columns=: each version replaces these columns of {table}, and all of them"
        )
    missing = [name for name in (*unique, *named) if name not in columns]
    if missing:
        raise Misconfigured(f"columns= must also fill {', '.join(missing)} of {table}, which versioned= goes by")
    if not set(named).isdisjoint(unique):
        raise Misconfigured(f"the key of {table} is the same in all versions: {unique} cannot hold {', '.join(named)}")


def path_of(versioned: Versioned | None, columns: Mapping[str, Path | Callable[[Any], object]] | None) -> Path | None:
    """Return where a record's version stands, None where a function makes it."""
    part = None if versioned is None else (columns or {}).get(versioned.by)
    return None if callable(part) else part


def version_of(value: object, kind: Kind, column: str) -> Version:
    """Return a version as it is compared. Raises `Rejected` for none, and for one of another kind."""
    if value is None:
        raise Rejected("no_field", f"the record has no version: {column} is None")
    if kind == "integer" and isinstance(value, int) and not isinstance(value, bool):
        return value
    if kind == "datetime" and isinstance(value, datetime):
        return in_utc(value)
    raise Rejected("wrong_type", f"{column} holds versions of kind {kind}, and not a {type(value).__name__}: {value!r}")


def is_true(value: object) -> bool:
    """Tell whether the value of a `deleted` column says so."""
    return isinstance(value, int) and value == 1


def buried(
    names: Sequence[str],
    rows: Sequence[Sequence[object]],
    versioned: Versioned,
    *,
    keep: Container[str],
    default: object,
) -> Sequence[Sequence[object]]:
    """Return the rows with 0 or 1 in `deleted`; tombstones keep the columns in `keep`. Raises `Rejected`."""
    if versioned.deleted is None:
        return rows
    place = names.index(versioned.deleted)
    out = []
    for row in rows:
        value = row[place]
        if is_true(value):
            row = [each if name in keep else default for name, each in zip(names, row, strict=True)]  # noqa: PLW2901
        elif not (value is None or value is default or (isinstance(value, int) and value == 0)):
            raise Rejected(
                "wrong_type", f"{versioned.deleted} says with 0 or 1 whether a row is deleted, not {value!r}"
            )
        out.append([*row[:place], int(is_true(value)), *row[place + 1 :]])
    return out


def newest(keys: Sequence[Key], versions: Sequence[Version]) -> dict[Key, int]:
    """Return, for each key, where its newest version stands; the first of equal ones."""
    found: dict[Key, int] = {}
    for index, key in enumerate(keys):
        best = found.setdefault(key, index)
        if versions[index] > versions[best]:
            found[key] = index
    return found

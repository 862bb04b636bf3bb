"""Settings of the wrong kind are told by name, with what is wanted, where Python would raise a TypeError later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from typing import Any

from .errors import Misconfigured


def check_durations(recipe: Any) -> None:
    """Refuse whatever is no `timedelta` in a field that is one. Raises `Misconfigured`."""
    for each in fields(recipe):
        value = getattr(recipe, each.name)
        optional = each.type == "timedelta | None"
        if (optional or each.type == "timedelta") and not (
            isinstance(value, timedelta) or (optional and value is None)
        ):
            raise Misconfigured(
                f"{type(recipe).__name__}: {each.name} is a duration such as timedelta(minutes=10), not {value!r}"
            )


def check_columns(columns: object, **names: object) -> None:
    """Refuse columns that are no mapping to fields or functions, and names that are no tuple."""
    if columns is not None and not (isinstance(columns, Mapping) and columns and all(map(_fits, columns.items()))):
        wanted = 'a field, a path or a function for each column: {"order_id": "id", "city": ("address", "city")}'
        raise Misconfigured(f"columns= is {wanted}, not {columns!r}")
    for setting, value in names.items():
        if not isinstance(value, tuple) or not all(isinstance(name, str) and name for name in value):
            raise Misconfigured(f'{setting}= is a tuple of columns, such as ("order_id",), not {value!r}')


def _fits(item: tuple[object, object]) -> bool:
    column, part = item
    path = part if isinstance(part, tuple) else (part,)
    is_path = bool(path) and all(isinstance(name, str) and name for name in path)
    return isinstance(column, str) and bool(column) and (is_path or callable(part))

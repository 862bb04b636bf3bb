"""Values and names as SQLite takes them."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from .errors import Rejected
from .table_values import Default, json_text, utc

DECIMAL_DIGITS = 1000
"""Two letters of an exponent could ask for gigabytes of zeros."""


def _same(value: Any) -> Any:
    return value


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise Rejected("not_finite", f"a table cannot hold {value!r}")
    return value


def _decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise Rejected("not_finite", f"a table cannot hold {value!r}")
    if max(abs(value.adjusted()), len(value.as_tuple().digits)) >= DECIMAL_DIGITS:
        raise Rejected("out_of_range", f"a decimal number of {DECIMAL_DIGITS} digits or more")
    return format(value, "f")


_BY_TYPE: dict[type, Callable[[Any], Any]] = {
    str: _same,
    int: _same,
    bool: int,
    float: _finite,
    bytes: _same,
    bytearray: bytes,
    memoryview: bytes,
    type(None): _same,
    Default: _same,
    Decimal: _decimal,
    datetime: utc,
    date: date.isoformat,
    time: time.isoformat,
    UUID: str,
    dict: json_text,
    list: json_text,
    tuple: json_text,
}


class _Converters(dict[type, Callable[[Any], Any]]):
    """Finds the function of a subclass once."""

    def __missing__(self, kind: type) -> Callable[[Any], Any]:
        if issubclass(kind, Enum):
            found: Callable[[Any], Any] = lambda value: self[type(value.value)](value.value)  # noqa: E731
        else:
            found = next((_BY_TYPE[basic] for basic in kind.__mro__ if basic in _BY_TYPE), _refuse)
        self[kind] = found
        return found


def _refuse(value: object) -> Any:
    raise Rejected("wrong_type", f"a table cannot hold a {type(value).__name__}")


CONVERTERS = _Converters(_BY_TYPE)


def quoted(name: str) -> str:
    """Return a column's or table's name between double quotes."""
    return '"' + name.replace('"', '""') + '"'

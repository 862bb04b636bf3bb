"""Values as SQL text, safe under the `sql_mode` that every session sets (a backslash escapes)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, TypeVar
from uuid import UUID

from .errors import Misconfigured, Rejected
from .table_values import Default, json_text, utc

MAX_STATEMENT_ROWS = 5000
"""From about 30,000 values in an IN list on, MySQL gives up range access and reads the whole table."""

NUMBER_DIGITS = 65
"""A number with more is read as one of 65 nines, without a warning."""

DECIMALS = 72
"""What stands further behind the point is not read."""

_BEYOND = 10**NUMBER_DIGITS

Item = TypeVar("Item")


def binary(value: bytes) -> str:
    """Return a binary string; also for text in columns of binary type."""
    return f"x'{value.hex()}'"


def binary_or_null(value: bytes | None) -> str:
    """Return a binary string, or NULL."""
    return "NULL" if value is None else f"x'{value.hex()}'"


def binaries(values: Iterable[bytes]) -> str:
    """Return the inside of an IN list."""
    return ",".join([f"x'{value.hex()}'" for value in values])


def text(value: str) -> str:
    """Return a character string."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def quoted(name: str) -> str:
    """Return a column's or table's name between backticks."""
    return "`" + name.replace("`", "``") + "`"


def encoded(statement: str) -> bytes:
    """Return a statement as it is sent. Raises `Rejected` (`not_unicode`)."""
    try:
        return statement.encode()
    except UnicodeEncodeError as error:
        raise Rejected("not_unicode", f"a text has lone surrogates: {error.reason}") from error


def literal(value: object) -> str:
    """Return any value that a table takes. Raises `Rejected` (`wrong_type`, `not_finite`, `out_of_range`)."""
    return LITERALS[type(value)](value)


def cut(build: Callable[[Sequence[Item]], str], items: Sequence[Item], *, limit_bytes: int) -> list[str]:
    """Build ASCII statements over consecutive items, each within what the server takes."""
    if len(items) <= MAX_STATEMENT_ROWS:
        statement = build(items)
        if len(statement) <= limit_bytes:
            return [statement]
        if len(items) == 1:
            raise Misconfigured(f"max_allowed_packet must be above {len(statement)} bytes for what is to be stored")
    half = len(items) // 2
    return cut(build, items[:half], limit_bytes=limit_bytes) + cut(build, items[half:], limit_bytes=limit_bytes)


def _float(value: float) -> str:
    if not math.isfinite(value):
        raise Rejected("not_finite", f"a table cannot hold {value!r}")
    # Not `repr`, which a subclass may have changed; nor `str`, for the integers.
    digits = float.__repr__(value)
    # Without an exponent MySQL reads a decimal, which it then rounds in its own way.
    return digits if "e" in digits else digits + "e0"


def _int(value: int) -> str:
    if -_BEYOND < value < _BEYOND:
        return int.__repr__(value)
    raise _too_long()


def _decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise Rejected("not_finite", f"a table cannot hold {value!r}")
    if value.adjusted() >= NUMBER_DIGITS:
        raise _too_long()
    return format(value, "f" if value.as_tuple().exponent >= -DECIMALS else f".{DECIMALS}f")  # type: ignore[operator]


def _too_long() -> Rejected:
    return Rejected("out_of_range", f"a number of MySQL has at most {NUMBER_DIGITS} digits before its point")


def _time(value: time) -> str:
    if value.tzinfo is not None:
        raise Rejected("wrong_type", "a time of day with a time zone means nothing without its date")
    return f"'{value.isoformat()}'"


def _timedelta(value: timedelta) -> str:
    microseconds = value // timedelta(microseconds=1)
    seconds, rest = divmod(abs(microseconds), 1_000_000)
    sign = "-" if microseconds < 0 else ""
    return f"'{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{rest:06d}'"


def _json(value: object) -> str:
    return text(json_text(value))


_BY_TYPE: dict[type, Callable[[Any], str]] = {
    str: text,
    int: _int,
    float: _float,
    bool: lambda value: "1" if value else "0",
    type(None): lambda _: "NULL",
    Default: lambda _: "DEFAULT",
    bytes: binary,
    bytearray: binary,
    memoryview: binary,
    Decimal: _decimal,
    datetime: lambda value: f"'{utc(value)}'",
    date: lambda value: f"'{value.isoformat()}'",
    time: _time,
    timedelta: _timedelta,
    UUID: lambda value: f"'{value}'",
    dict: _json,
    list: _json,
    tuple: _json,
}


class _Literals(dict[type, Callable[[Any], str]]):
    """Finds the function of a subclass once: an enum by its value, anything else by what it derives from."""

    def __missing__(self, kind: type) -> Callable[[Any], str]:
        found = self._of_enum if issubclass(kind, Enum) else self._inherited(kind)
        self[kind] = found
        return found

    @staticmethod
    def _of_enum(value: Enum) -> str:
        return literal(value.value)

    @staticmethod
    def _inherited(kind: type) -> Callable[[Any], str]:
        return next((_BY_TYPE[basic] for basic in kind.__mro__ if basic in _BY_TYPE), _refuse)


def _refuse(value: object) -> str:
    raise Rejected("wrong_type", f"a table cannot hold a {type(value).__name__}")


LITERALS = _Literals(_BY_TYPE)
"""For loops over many values: `LITERALS[type(value)](value)`."""

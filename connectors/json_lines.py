"""Write any record as one line of JSON, so that a person or a program can read it back. Never refuses one.

What JSON has no form for stands as an object of one field that names the kind: `{"base64": ...}` for bytes,
`{"float": "nan"}`, `{"datetime": "2026-01-31T12:00:00+00:00"}`, `date`, `time`, `timedelta` (seconds as text),
`decimal`, `uuid`, `integer` (hexadecimal, beyond 600 digits), `set`, `pairs` (a mapping whose keys are not text), and
`repr` for everything else. Rows, NamedTuples and dataclasses stand as the objects of their fields. Text is escaped to
ASCII, and so a lone surrogate survives.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from .rows import fields_of

MAX_DEPTH = 64
_LONGEST_INTEGER_BITS = 2_000
"""A process may forbid decimal forms of more than 640 digits (`sys.set_int_max_str_digits`)."""


def json_line(record: Any) -> bytes:
    """Return the line, its end included."""
    return json.dumps(_plain(record, 0), separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def _plain(value: Any, depth: int) -> Any:
    """Return the value made of what JSON knows."""
    if depth > MAX_DEPTH:
        return {"repr": _shown(value)}
    try:
        return _converted(value, depth)
    except Exception:  # noqa: BLE001 - a record's own methods may raise anything, and the line must be written
        return {"repr": _shown(value)}


def _converted(value: Any, depth: int) -> Any:
    for kinds, convert in _CONVERTERS:
        if isinstance(value, kinds):
            return convert(value, depth)
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        return _plain(value.item(), depth + 1)
    return _mapping(fields_of(value), depth)


def _mapping(value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    if all(isinstance(name, str) for name in value):
        return {name: _plain(each, depth + 1) for name, each in value.items()}
    return {"pairs": [[_plain(name, depth + 1), _plain(each, depth + 1)] for name, each in value.items()]}


def _sequence(value: Any, depth: int) -> Any:
    if hasattr(value, "_fields"):
        return _mapping(fields_of(value), depth)
    return [_plain(each, depth + 1) for each in value]


def _integer(value: int, depth: int) -> Any:
    return int(value) if value.bit_length() < _LONGEST_INTEGER_BITS else {"integer": hex(value)}


def _float(value: float, depth: int) -> Any:
    return float(value) if math.isfinite(value) else {"float": repr(float(value))}


def _bytes(value: bytes | bytearray | memoryview, depth: int) -> dict[str, str]:
    return {"base64": base64.b64encode(bytes(value)).decode("ascii")}


def _shown(value: Any) -> str:
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - as above
        return f"<{type(value).__name__} whose repr raised {type(error).__name__}>"


_CONVERTERS: tuple[tuple[type | tuple[type, ...], Callable[[Any, int], Any]], ...] = (
    ((bool, type(None)), lambda value, depth: value),
    (str, lambda value, depth: str.__str__(value)),
    (int, _integer),
    (float, _float),
    ((bytes, bytearray, memoryview), _bytes),
    (dt.datetime, lambda value, depth: {"datetime": value.isoformat()}),
    (dt.date, lambda value, depth: {"date": value.isoformat()}),
    (dt.time, lambda value, depth: {"time": value.isoformat()}),
    (dt.timedelta, lambda value, depth: {"timedelta": str(value / dt.timedelta(seconds=1))}),
    (Decimal, lambda value, depth: {"decimal": str(value)}),
    (uuid.UUID, lambda value, depth: {"uuid": str(value)}),
    (Mapping, _mapping),
    ((list, tuple), _sequence),
    ((set, frozenset), lambda value, depth: {"set": [_plain(each, depth + 1) for each in sorted(value, key=_shown)]}),
)

"""One way to read a record, whatever it is made of.

| record | its fields |
|---|---|
| mapping | its items |
| NamedTuple | by `_fields` |
| dataclass | its fields |
| object with `as_dict()` (`beam.Row`, PyFlink's named `Row`) | what that returns |
| bytes, str | those of the JSON object that it holds |
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

from .errors import Rejected

Path = str | tuple[str, ...]
"""A field's name, or the names on the way to a nested one."""

RECORD_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a user's function raises over a record that it was not written for: that record is rejected."""


def fields_of(record: Any) -> Mapping[str, Any]:
    """Return the record's fields by name. Raises `Rejected` (`wrong_type`, `not_json`)."""
    kind = type(record)
    if kind is dict:
        return record  # type: ignore[no-any-return]
    reader = _READERS.get(kind)
    if reader is None:
        reader = _READERS[kind] = _reader_for(record)
    return reader(record)


def field(record: Any, path: Path) -> Any:
    """Return the value at a path, None where any step is missing. Raises `Rejected` as `fields_of` does."""
    if isinstance(path, str):
        return fields_of(record).get(path)
    value = record
    for name in path:
        value = fields_of(value).get(name)
        if value is None:
            return None
    return value


def decode_json(text: bytes | str) -> Mapping[str, Any]:
    """Parse a JSON object. Raises `Rejected`: `not_json`, or `wrong_type` for another JSON value."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Rejected("not_json", str(error)) from error
    except RecursionError as error:
        raise Rejected("not_json", "nested too deep") from error
    if not isinstance(value, dict):
        raise Rejected("wrong_type", f"a JSON object is wanted, not {type(value).__name__}")
    return value


def _reader_for(record: Any) -> Callable[[Any], Mapping[str, Any]]:
    if isinstance(record, Mapping):
        return lambda it: it
    if isinstance(record, (bytes, str)):
        return decode_json
    if isinstance(record, (bytearray, memoryview)):
        return lambda it: decode_json(bytes(it))
    if isinstance(record, tuple) and hasattr(record, "_fields"):
        return lambda it: dict(zip(it._fields, it, strict=True))
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        names = [each.name for each in dataclasses.fields(record)]
        return lambda it: {name: getattr(it, name) for name in names}
    if callable(getattr(record, "as_dict", None)):
        return _as_dict
    raise Rejected("wrong_type", f"a record cannot be a {type(record).__name__}")


def _as_dict(record: Any) -> Mapping[str, Any]:
    try:
        fields = record.as_dict()
    except RECORD_ERRORS as error:
        told = f"{type(error).__name__}: {error}"
        raise Rejected("wrong_type", f"{type(record).__name__} has no named fields: {told}") from error
    if not isinstance(fields, Mapping) or not all(isinstance(name, str) for name in fields):
        raise Rejected("wrong_type", f"{type(record).__name__} has no named fields")
    return fields


_READERS: dict[type, Callable[[Any], Mapping[str, Any]]] = {}

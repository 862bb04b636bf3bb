"""Read canonical bytes back, by the grammar in the docstring of `canonical.py`: what can be read back is injective."""

from __future__ import annotations

import dataclasses
import datetime as dt
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

Meaning = tuple[Any, ...]
"""What a value means: its kind, and what it equals among values of that kind. Hashable, compared with ==."""

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


def meaning(value: Any) -> Meaning:
    """Return the meaning of a value of any kind that has canonical bytes."""
    if value is None or isinstance(value, (bool, int, float, Decimal, str, uuid.UUID)):
        return (type(value).__name__, value)
    if isinstance(value, dt.datetime):
        return _time(value)
    if isinstance(value, dt.date):
        return ("date", value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return ("bytes", bytes(value))
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return ("list", *map(meaning, value))
    return ("record", *sorted((name, meaning(each)) for name, each in _fields(value).items()))


def _time(value: dt.datetime) -> Meaning:
    if value.tzinfo is None:
        return ("naive", value)
    since = value - EPOCH
    return ("instant", (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)


def _fields(record: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(record):
        return {each.name: getattr(record, each.name) for each in dataclasses.fields(record)}
    if hasattr(record, "_asdict"):
        return dict(record._asdict())
    return dict(record.as_dict() if hasattr(record, "as_dict") else record)


def read_back(canonical_bytes: bytes) -> Meaning:
    """Return the meaning that canonical bytes have; all of them must be used up."""
    reader = _Reader(canonical_bytes.decode())
    found = reader.value()
    assert reader.at == len(reader.text), f"{reader.text[reader.at :]!r} is left over"
    return found


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def take(self, count: int) -> str:
        self.at += count
        assert self.at <= len(self.text), "it ends too early"
        return self.text[self.at - count : self.at]

    def until(self, mark: str) -> str:
        found = self.take(self.text.index(mark, self.at) - self.at)
        self.take(1)
        return found

    def counted(self) -> str:
        return self.take(int(self.until(":")))

    def value(self) -> Meaning:
        kind = self.take(1)
        if kind == "s":
            return ("str", self.counted())
        if kind == "b":
            return ("bytes", self.counted().encode("latin-1"))
        if kind == "l":
            return ("list", *[self.value() for _ in range(int(self.until(":")))])
        if kind == "m":
            return ("record", *[self.field() for _ in range(int(self.until(":")))])
        return _scalar(kind, self.until(";"))

    def field(self) -> tuple[str, Meaning]:
        assert self.take(1) == "s", "a field's name is text"
        return self.counted(), self.value()


def _scalar(kind: str, text: str) -> Meaning:
    readers: dict[str, Callable[[], Meaning]] = {
        "n": lambda: ("NoneType", None),
        "t": lambda: ("bool", True),
        "F": lambda: ("bool", False),
        "i": lambda: ("int", int(text, 16)),
        "f": lambda: ("float", float.fromhex(text)),
        "d": lambda: ("Decimal", Decimal(text)),
        "u": lambda: ("UUID", uuid.UUID(text)),
        "T": lambda: ("instant", int(text)),
        "N": lambda: ("naive", dt.datetime.fromisoformat(text)),
        "D": lambda: ("date", dt.date.fromisoformat(text)),
    }
    return readers[kind]()

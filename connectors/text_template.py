"""Text with places for parts of a record: `order:{order_id}`."""

from __future__ import annotations

from string import Formatter
from typing import Any
from uuid import UUID

from .errors import Misconfigured, Rejected
from .rows import field

Piece = tuple[str, str | None]
"""Literal text, and the name of the field that follows it, if one does."""


def pieces(text: str) -> list[Piece]:
    """Return the parts of a template. Raises `Misconfigured`, without the text, where a place is not a bare name."""
    try:
        found = list(Formatter().parse(text))
    except ValueError as error:
        raise Misconfigured(f"this is not a template such as order:{{order_id}}: {error}") from None
    if any(spec or conversion or name == "" for _, name, spec, conversion in found):
        raise Misconfigured("a place in a template is a field's name in braces, without a format: {order_id}")
    return [(literal, name) for literal, name, _, _ in found]


def text_at(record: Any, name: str) -> str:
    """Return the value of a field, nested by dots, as text. Raises `Rejected` for what has no plain form as one."""
    value = field(record, tuple(name.split(".")))
    if value is None or value == "":
        raise Rejected("no_key", f"no value at {name}")
    if isinstance(value, bool) or not isinstance(value, (str, int, UUID)):
        raise Rejected("wrong_type", f"{name} is a {type(value).__name__}; text and whole numbers have one form")
    return str(value)


def filled(parts: list[Piece], record: Any) -> str:
    """Return the text of one record. Raises `Rejected` where a value is missing."""
    return "".join(literal if name is None else literal + text_at(record, name) for literal, name in parts)

"""The quick way from a flat dict to its key, occurrence and content: each field is encoded once.

A plan is made for one shape (the names of a dict, in their order) and gives what the recipes would give, byte for
byte; where it cannot, it says so and the recipes are asked: nested paths, values of rare kinds, and everything that
is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from .canonical import encode
from .keys import MAX_OCCURRENCE_BYTES, Fields, KeyRecipe, OccurrenceRecipe, SourcePosition

_Picker = Callable[[Sequence[str]], tuple[str, ...]]

Planned = tuple[bytes, bytes | None, bytes]
"""Key, occurrence and content, as canonical bytes."""


class Plan:
    """Encode records of one shape. Raises `KeyError` or `UnicodeEncodeError` where the recipes must be asked."""

    __slots__ = ("_content", "_key", "_key_texts", "_occurrence", "_occurrence_texts", "_template", "_values")

    def __init__(
        self, names: tuple[str, ...], key: Fields, occurrence: SourcePosition | None, without: frozenset[str]
    ) -> None:
        order = sorted(names)
        place = {name: index for index, name in enumerate(order)}
        kept = [name for name in order if name not in without]
        self._values = _pick(order)
        self._key_texts = _pick([place[_flat(path)] for path in key.paths])
        self._key = f"l{len(key.paths)}:"
        self._content = _pick([place[name] for name in kept])
        self._template = f"m{len(kept)}:" + "".join(f"s{len(name)}:{name.replace('%', '%%')}%s" for name in kept)
        self._occurrence: str | None = None
        if occurrence is not None:
            self._occurrence_texts = _pick([place[_flat(path)] for path in occurrence.paths])
            self._occurrence = f"l{len(occurrence.paths) + 1}:{encode(occurrence.source)}"

    def __call__(self, record: dict[str, Any]) -> Planned:
        """Return what the recipes return for this record."""
        texts = [_ENCODERS[value.__class__](value) for value in self._values(record)]
        key = self._key_texts(texts)
        if not _ABSENT.isdisjoint(key):
            raise KeyError
        occurrence = None
        if self._occurrence is not None:
            position = self._occurrence_texts(texts)
            occurrence = (self._occurrence + "".join(position)).encode()
            if "n;" in position or len(occurrence) > MAX_OCCURRENCE_BYTES:
                raise KeyError
        return (self._key + "".join(key)).encode(), occurrence, (self._template % self._content(texts)).encode()


def make_plan(
    record: dict[str, Any], key: KeyRecipe, occurrence: OccurrenceRecipe | None, without: frozenset[str]
) -> Plan | None:
    """Return a plan for records of this one's shape, None where there can be none."""
    if type(key) is not Fields or key.nfc or not (occurrence is None or type(occurrence) is SourcePosition):
        return None
    paths = (*key.paths, *(occurrence.paths if occurrence is not None else ()))
    if not all(isinstance(name, str) for name in record) or not all(path in record for path in paths):
        return None
    return Plan(tuple(record), key, occurrence, without)


def _flat(path: object) -> str:
    assert isinstance(path, str)
    return path


def _pick(places: Sequence[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Return an `itemgetter` that gives a tuple whatever the number of places."""
    if len(places) > 1:
        return itemgetter(*places)
    if places:
        only = itemgetter(places[0])
        return lambda sequence: (only(sequence),)
    return lambda sequence: ()


def _finite(value: float) -> str:
    if not math.isfinite(value):
        raise KeyError(value)
    return f"f{(value + 0.0).hex()};"


_ABSENT = frozenset({"n;", "s0:", "b0:"})
"""Texts of values that are no key: the recipes say why."""

_ENCODERS: dict[type, Callable[[Any], str]] = {
    str: lambda value: f"s{len(value)}:{value}",
    int: "i{:x};".format,
    float: _finite,
    bool: {True: "t;", False: "F;"}.__getitem__,
    type(None): lambda value: "n;",
}

"""Recipes that read keys and occurrences off records.

A key is the identity of the effect; an occurrence is where this delivery stands in its source. Both are canonical bytes
(`canonical.py`). Recipes are small frozen values: they pickle, compare, and describe themselves for the scopes table.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ..connectors.errors import Misconfigured, Reason, Rejected
from ..connectors.rows import RECORD_ERRORS, Path, fields_of
from ..connectors.rows import field as read
from .canonical import encode, encode_fields, to_utf8

MAX_OCCURRENCE_BYTES = 255

_EMPTY = frozenset({"s0:", "b0:", "l0:", "m0:"})
"""Texts of values in which nothing stands."""


@runtime_checkable
class KeyRecipe(Protocol):
    """Reads a record's key. `description` must change whenever the same record would get another key."""

    @property
    def description(self) -> str: ...

    def __call__(self, record: Any) -> bytes:
        """Return canonical bytes. Raises `Rejected`."""
        ...


@runtime_checkable
class OccurrenceRecipe(Protocol):
    """Reads a record's occurrence, at most 255 bytes. `reads` are the top-level fields it looks at."""

    @property
    def description(self) -> str: ...

    @property
    def reads(self) -> frozenset[str]: ...

    def __call__(self, record: Any) -> bytes:
        """Return canonical bytes. Raises `Rejected`."""
        ...


@dataclass(frozen=True, slots=True, init=False)
class Fields:
    """The values of one or more fields: `Fields("order_id", "version")`, nested ones as tuples of names.

    A record in which one of them is missing or None, or in which all are empty, has no key and is rejected.
    `nfc=True` brings text into Unicode's normal form C first, for producers that do not agree on it.
    """

    paths: tuple[Path, ...]
    nfc: bool

    def __init__(self, *paths: Path, nfc: bool = False) -> None:
        _check_paths("Fields", paths)
        object.__setattr__(self, "paths", paths)
        object.__setattr__(self, "nfc", nfc)

    @property
    def description(self) -> str:
        return f"Fields({', '.join(map(_name, self.paths))}{', nfc' if self.nfc else ''})"

    def __call__(self, record: Any) -> bytes:
        if type(record) is dict and len(self.paths) == 1:
            # Most keys are one text or number of a flat record: the same bytes, in a quarter of the time.
            value = record.get(self.paths[0])
            if type(value) is int:
                return b"l1:i%x;" % value
            if type(value) is str and value and value.isascii():
                return b"l1:s%d:%b" % (len(value), value.encode())
        return self._encoded(record)

    def _encoded(self, record: Any) -> bytes:
        values = _values(record, self.paths, "no_key")
        if self.nfc:
            values = [unicodedata.normalize("NFC", v) if isinstance(v, str) else v for v in values]
        texts = [encode(value, 1) for value in values]
        if _EMPTY.issuperset(texts):
            raise Rejected("no_key", f"{self.description} is empty")
        return to_utf8(f"l{len(texts)}:" + "".join(texts))


@dataclass(frozen=True, slots=True)
class Header:
    """A header's value, such as the UUID that a producer gave the message once.

    The record's field `headers` holds (name, bytes) pairs, as Kafka clients give them (the last of a name counts),
    or a mapping.
    """

    name: str
    headers: Path = "headers"

    @property
    def description(self) -> str:
        return f"Header({self.name} in {_name(self.headers)})"

    def __call__(self, record: Any) -> bytes:
        held = read(record, self.headers) or ()
        try:
            found = [value for name, value in (held.items() if hasattr(held, "items") else held) if name == self.name]
        except (TypeError, ValueError) as error:
            raise Rejected("wrong_type", f"{_name(self.headers)} holds no pairs of name and value") from error
        if not found or found[-1] is None:
            raise Rejected("no_key", f"no header {self.name!r}")
        text = encode(to_utf8(found[-1]) if isinstance(found[-1], str) else found[-1], 1)
        if text in _EMPTY:
            raise Rejected("no_key", f"header {self.name!r} is empty")
        return to_utf8(f"l1:{text}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A hash of the whole record but the fields in `without`: those that differ between two sends of one thing."""

    without: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        return f"Content(without {', '.join(sorted(self.without)) or 'nothing'})"

    def __call__(self, record: Any) -> bytes:
        fields = {name: value for name, value in fields_of(record).items() if name not in self.without}
        if not fields:
            raise Rejected("no_key", f"{self.description}: nothing is left of the record")
        return blake2b(to_utf8(encode_fields(fields)), digest_size=32).digest()


@dataclass(frozen=True, slots=True)
class Computed:
    """What a function of the record returns: any value that has canonical bytes; None means that there is no key.

    The function must be picklable. Raise `version` when it starts to return something else. A record on which it
    raises a look-up, type, value or arithmetic error is rejected as `wrong_type`.
    """

    function: Callable[[Any], Any]
    name: str = field(kw_only=True)
    version: int = field(kw_only=True, default=1)

    @property
    def description(self) -> str:
        return f"Computed({self.name} v{self.version})"

    def __call__(self, record: Any) -> bytes:
        try:
            value = self.function(record)
        except RECORD_ERRORS as error:
            raise Rejected("wrong_type", f"{self.name} raised {type(error).__name__}: {error}") from error
        text = encode(value, 1)
        if value is None or text in _EMPTY:
            raise Rejected("no_key", f"{self.name} returned {value!r}")
        return to_utf8(f"l1:{text}")


@dataclass(frozen=True, slots=True, init=False)
class SourcePosition:
    """Where the delivery stands: a source label, and the fields that hold its position.

    The label says who reads, from which cluster, which incarnation of the topic: `SourcePosition("orders@eu-1/3",
    "topic", "partition", "offset")`. Only one live reader may use a label. It is not part of the scope's meaning.
    """

    source: str
    paths: tuple[Path, ...]

    def __init__(self, source: str, *paths: Path) -> None:
        _check_paths("SourcePosition", paths)
        if not source:
            raise Misconfigured("SourcePosition needs a source label: who reads, from which cluster")
        object.__setattr__(self, "source", source)
        object.__setattr__(self, "paths", paths)

    @property
    def description(self) -> str:
        return f"SourcePosition({', '.join(map(_name, self.paths))})"

    @property
    def reads(self) -> frozenset[str]:
        return frozenset(path if isinstance(path, str) else path[0] for path in self.paths)

    def __call__(self, record: Any) -> bytes:
        return fit_occurrence(to_utf8(encode([self.source, *_values(record, self.paths, "no_position")])))


class Stamped(NamedTuple):
    """A record with the occurrence that `Stamp` gave it, on its way to the gate, which takes the record out again."""

    occurrence: bytes
    record: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ByStamp:
    """What a `Stamp` step put on the record (as `Stamped`): the occurrence of records that have no position.

    As a *key*, for records that have nothing to be known by, it takes `stable_order=True`, by which you say that a
    replay brings the records of a lane in the order in which they came first. Otherwise one record would come back
    with the number of another, and be dropped for it.
    """

    stable_order: bool = False

    @property
    def description(self) -> str:
        return "ByStamp(stable_order)" if self.stable_order else "ByStamp()"

    @property
    def reads(self) -> frozenset[str]:
        return frozenset()

    def __call__(self, record: Any) -> bytes:
        if not isinstance(record, Stamped) or not record.occurrence:
            reason: Reason = "no_key" if self.stable_order else "no_position"
            raise Rejected(reason, "the record was not stamped: put Stamp() before the gate")
        return fit_occurrence(record.occurrence)


def fit_occurrence(canonical_bytes: bytes) -> bytes:
    """Return an occurrence that fits its column: as it is up to 255 bytes, else `#` and its BLAKE2b-256."""
    if len(canonical_bytes) <= MAX_OCCURRENCE_BYTES:
        return canonical_bytes
    return b"#" + blake2b(canonical_bytes, digest_size=32).digest()


def checkpoint_subtask_key(uuid: str, checkpoint_id: int, subtasks: int, subtask: int) -> str:
    """Name a batch commit: `uuid_(checkpoint_id * subtasks + subtask)`.

    It names a batch, not a record: every record of a subtask between two checkpoints gets the same one, and the
    numbers collide when the number of subtasks changes under one uuid. For records use `Stamp`.
    """
    if not 0 <= subtask < subtasks:
        raise ValueError(f"subtask {subtask} is not one of {subtasks}")
    if checkpoint_id < 0:
        raise ValueError(f"checkpoint_id {checkpoint_id} is negative")
    return f"{uuid}_{checkpoint_id * subtasks + subtask}"


def _values(record: Any, paths: tuple[Path, ...], reason: Any) -> list[Any]:
    fields = fields_of(record)
    values = [fields.get(path) if isinstance(path, str) else read(fields, path) for path in paths]
    for path, value in zip(paths, values, strict=True):
        if value is None:
            raise Rejected(reason, f"no value at {_name(path)}")
    return values


def _name(path: Path) -> str:
    return path if isinstance(path, str) else ".".join(path)


def _check_paths(kind: str, paths: tuple[Path, ...]) -> None:
    if not paths:
        raise Misconfigured(f"{kind} needs at least one field")
    for path in paths:
        names = (path,) if isinstance(path, str) else path
        if not names or not isinstance(names, tuple) or not all(isinstance(name, str) and name for name in names):
            raise Misconfigured(f"{kind}: a field is a name or a tuple of names, not {path!r}")

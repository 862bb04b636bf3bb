"""What of a record, and of a sink's answer, is stored in the ledger's row: bounded, and read back as it was."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from ..connectors.errors import Misconfigured, Rejected
from ..connectors.rows import fields_of
from .metrics import Metrics

log = logging.getLogger("oncesink")

ResultKind = Literal["off", "bytes", "json"]

_NAME_BYTES = 32
_BYTES = b"\x00"
"""In front of a record that is bytes; no JSON text begins so."""
_PLAIN = frozenset({str, int, float, bool, type(None)})


@runtime_checkable
class Serialiser(Protocol):
    """Turns a record into bytes and back. `name` is stored with each: what another one wrote is not read."""

    @property
    def name(self) -> str: ...

    def dumps(self, record: Any) -> bytes:
        """Return the record as bytes. Raises `Rejected` for one that would not come back as it is."""
        ...

    def loads(self, stored: bytes) -> Any:
        """Return the record. Raises `ValueError`."""
        ...


@dataclass(frozen=True, slots=True)
class Json:
    """Records as JSON, those that are bytes as they are.

    NamedTuples, dataclasses and rows come back as dicts of their fields. A value that JSON would change (a tuple, a
    date, a key that is no text) is refused, since another record would be written than the one that was sent.
    """

    @property
    def name(self) -> str:
        return "json"

    def dumps(self, record: Any) -> bytes:
        """Return the record as bytes. Raises `Rejected`."""
        if isinstance(record, (bytes, bytearray, memoryview)):
            return _BYTES + bytes(record)
        value = record if isinstance(record, str) else fields_of(record)
        plain = dict(value) if isinstance(value, Mapping) and type(value) is not dict else value
        text = _json(plain)
        if not _is_flat(plain) and _loaded(text) != plain:
            raise Rejected("wrong_type", "JSON would change this record: redrive= wants a serialiser of your own")
        return _utf8(text)

    def loads(self, stored: bytes) -> Any:
        """Return the record. Raises `ValueError`."""
        return stored[1:] if stored[:1] == _BYTES else json.loads(stored.decode())


class RecordStore:
    """The records of one gate, each with the name of its serialiser in front."""

    def __init__(self, serialiser: Serialiser | Literal["json"], limit_bytes: int) -> None:
        self._serialiser: Serialiser = Json() if serialiser == "json" else serialiser
        self._head = self._serialiser.name.encode() + b"\n"
        self._limit_bytes = limit_bytes

    def pack(self, record: Any) -> bytes:
        """Return what the row keeps. Raises `Rejected`, as `too_large` over the bound."""
        stored = self._serialiser.dumps(record)
        if len(stored) > self._limit_bytes:
            raise Rejected(
                "too_large", f"a record of {len(stored)} bytes to be stored, over payload_bytes={self._limit_bytes}"
            )
        return self._head + stored

    def unpack(self, payload: bytes) -> Any:
        """Return the record. Raises `ValueError` for what another serialiser wrote, or nobody can read."""
        name, newline, stored = payload.partition(b"\n")
        if name + newline != self._head:
            raise ValueError(f"it was stored by {name[:_NAME_BYTES]!r}, and the gate has {self._serialiser.name!r}")
        return self._serialiser.loads(stored)


class ResultStore:
    """The results of one gate. One that cannot be stored is dropped, not its effect: counted, with one warning."""

    def __init__(self, kind: ResultKind, limit_bytes: int, metrics: Metrics) -> None:
        self._kind = kind
        self._limit_bytes = limit_bytes
        self._metrics = metrics
        self._dropped: list[str] = []

    def encode(self, result: Any) -> bytes | None:
        """Return what the row keeps of a sink's result."""
        if result is None or self._kind == "off" or (self._kind == "bytes" and not isinstance(result, bytes)):
            return None
        try:
            stored = result if self._kind == "bytes" else _json_bytes(result)
        except (Rejected, ValueError) as error:
            self._drop(str(error))
            return None
        if len(stored) > self._limit_bytes:
            self._drop(f"too large: {len(stored)} bytes, over result_bytes={self._limit_bytes}")
            return None
        return stored

    def decode(self, stored: bytes) -> Any:
        """Return a stored result as the sink gave it; bytes that an earlier setting stored come back as they are."""
        if self._kind != "json":
            return stored
        try:
            return _loaded(stored)
        except (Rejected, ValueError):
            return stored

    @property
    def decodes(self) -> bool:
        """Whether `decode` changes anything."""
        return self._kind == "json"

    def warn(self, scope: str) -> None:
        """Say once what was dropped since the last time."""
        if self._dropped:
            log.warning(
                "scope %r: %d results are not stored, their effects are there; the first one: %s",
                scope,
                len(self._dropped),
                self._dropped[0],
            )
            self._dropped = []

    def _drop(self, why: str) -> None:
        self._metrics.count("results_dropped")
        self._dropped.append(why)


def check_stored(serialiser: object, results: object) -> None:
    """Raise `Misconfigured` for what is no serialiser, or has no name that can stand in front of its bytes."""
    if results not in ("off", "bytes", "json"):
        raise Misconfigured(f"results is 'off', 'bytes' or 'json', not {results!r}")
    if serialiser is None or serialiser == "json":
        return
    if not isinstance(serialiser, Serialiser):
        raise Misconfigured(f"redrive is None, 'json' or a serialiser with name, dumps and loads, not {serialiser!r}")
    name = serialiser.name
    if not 0 < len(name.encode()) <= _NAME_BYTES or "\n" in name:
        raise Misconfigured(f"a serialiser's name has 1 to {_NAME_BYTES} bytes in one line, not {name!r}")


def _is_flat(value: Any) -> bool:
    if type(value) is not dict:
        return type(value) is str
    return set(map(type, value)) == {str} and set(map(type, value.values())) <= _PLAIN


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except TypeError as error:
        raise Rejected("wrong_type", f"no JSON: {error}") from error
    except RecursionError as error:
        raise Rejected("wrong_type", "no JSON: nested too deep") from error
    except ValueError as error:
        raise Rejected("not_finite", f"no JSON: {error}") from error


def _loaded(text: str | bytes) -> Any:
    """Parse JSON. Raises `ValueError`; `Rejected` where it is nested too deep for that."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise Rejected("not_json", "nested too deep") from error


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Rejected("not_unicode", f"a text has lone surrogates: {error.reason}") from error


def _json_bytes(result: Any) -> bytes:
    """Return JSON; bytes that are JSON already stay as they are."""
    if isinstance(result, bytes):
        _loaded(result)
        return result
    return _utf8(_json(result))

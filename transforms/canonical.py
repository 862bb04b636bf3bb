"""Canonical bytes of a value: equal exactly when the values are equal and of one kind. Format 1, frozen.

    None  n;                    bool  t; F;                  int  i<hex>;          float  f<float.hex()>; (-0.0 is 0.0)
    str   s<code points>:<text> bytes b<bytes>:<Latin-1>     UUID u<hex>;          Decimal d<digits>e<exponent>;
    aware datetime  T<microseconds since 1970 UTC>;          naive N<iso>;         date   D<iso>;
    list, tuple     l<items>:<items>                         record  m<fields>:<name, value by name>

The text is encoded as UTF-8. What a record is made of (dict, Row, NamedTuple, dataclass) does not matter, nor does
the order of its fields. `1`, `1.0`, `"1"` and `True` differ. A subclass counts as its kind, whatever it prints as (an
`Enum` of text as its text), and a numpy scalar as the Python value that it equals. Everything else is refused:
`not_finite` (NaN, infinities), `not_unicode` (lone surrogates), `wrong_type`.
"""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from ..connectors.errors import Rejected
from ..connectors.rows import fields_of

FORMAT = 1
MAX_DEPTH = 64

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_MICROSECOND = dt.timedelta(microseconds=1)
_Encoder = Callable[[Any, int], str]


def canonical(value: Any) -> bytes:
    """Return the canonical bytes of a value. Raises `Rejected`."""
    return to_utf8(encode(value))


def to_utf8(text: str) -> bytes:
    """Encode as UTF-8. Raises `Rejected` (`not_unicode`) for lone surrogates."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Rejected("not_unicode", f"a lone surrogate at code point {error.start}") from error


def encode(value: Any, depth: int = 0) -> str:
    """Return the canonical text of a value; encoded as UTF-8 it is the canonical bytes."""
    encoder = _ENCODERS.get(type(value))
    if encoder is None:
        encoder = _encoder_for(value)
    return encoder(value, depth)


def encode_fields(fields: Mapping[str, Any], depth: int = 0) -> str:
    """Return the canonical text of a record with these fields."""
    if depth > MAX_DEPTH:
        raise Rejected("wrong_type", f"nested deeper than {MAX_DEPTH}")
    try:
        names = sorted(fields)
    except TypeError as error:
        raise Rejected("wrong_type", "field names must be text") from error
    parts = [f"m{len(names)}:"]
    depth += 1
    for name in names:
        if not isinstance(name, str):
            raise Rejected("wrong_type", f"field names must be text, not {type(name).__name__}")
        parts.append(f"s{len(name)}:{name}" if type(name) is str else encode(name))
        value = fields[name]
        encoder = _ENCODERS.get(type(value))
        parts.append(encoder(value, depth) if encoder else encode(value, depth))
    return "".join(parts)


def _encode_list(values: Any, depth: int) -> str:
    if depth > MAX_DEPTH:
        raise Rejected("wrong_type", f"nested deeper than {MAX_DEPTH}")
    return f"l{len(values)}:" + "".join([encode(value, depth + 1) for value in values])


def _encode_float(value: float, depth: int) -> str:
    if not math.isfinite(value):
        raise Rejected("not_finite", f"{value} equals nothing that could be found again")
    return f"f{(value + 0.0).hex()};"


def _encode_decimal(value: Decimal, depth: int) -> str:
    if not value.is_finite():
        raise Rejected("not_finite", f"{value} equals nothing that could be found again")
    text = str(value)
    if "E" in text:
        _, digits, exponent = value.as_tuple()
        coefficient, power = "".join(map(str, digits)), int(exponent)
    else:
        whole, _, fraction = text.removeprefix("-").partition(".")
        coefficient, power = whole + fraction, -len(fraction)
    coefficient = coefficient.lstrip("0")
    bare = coefficient.rstrip("0")
    sign = "-" if text[0] == "-" else ""
    return f"d{sign}{bare}e{power + len(coefficient) - len(bare)};" if bare else "d0e0;"


def _encode_datetime(value: dt.datetime, depth: int) -> str:
    if value.tzinfo is None:
        return f"N{value.isoformat()};"
    if value.utcoffset() is None:
        return f"N{value.replace(tzinfo=None).isoformat()};"
    return f"T{(value - _EPOCH) // _MICROSECOND};"


def _encode_bytes(value: bytes, depth: int) -> str:
    raw = bytes(value)
    return f"b{len(raw)}:{raw.decode('latin-1')}"


def _encoder_for(value: Any) -> _Encoder:
    """Find the encoder of a kind that is not in the table: numpy scalars, subclasses, records."""
    for kind, plain in _PLAIN.items():
        if isinstance(value, kind):
            return lambda it, depth: _ENCODERS[kind](plain(it), depth)
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return _encode_list
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        return _encode_scalar
    return lambda it, depth: encode_fields(fields_of(it), depth)


def _encode_scalar(value: Any, depth: int) -> str:
    plain = value.item()
    if not isinstance(plain, _SCALARS.get(value.dtype.kind, ())):
        # No time at all comes out as None, finer times than microseconds as bare numbers.
        raise Rejected("wrong_type", f"a numpy value of type {value.dtype} has no exact form")
    return encode(plain, depth)


def _whole_microseconds(value: dt.datetime) -> dt.datetime:
    if getattr(value, "nanosecond", 0) != 0:
        raise Rejected("wrong_type", f"{value!r} has no exact form: it is no time, or one with nanoseconds")
    return value


_ENCODERS: dict[type, _Encoder] = {
    type(None): lambda value, depth: "n;",
    bool: lambda value, depth: "t;" if value else "F;",
    int: lambda value, depth: f"i{value:x};",
    float: _encode_float,
    str: lambda value, depth: f"s{len(value)}:{value}",
    bytes: _encode_bytes,
    bytearray: _encode_bytes,
    memoryview: _encode_bytes,
    uuid.UUID: lambda value, depth: f"u{value.hex};",
    Decimal: _encode_decimal,
    dt.datetime: _encode_datetime,
    dt.date: lambda value, depth: f"D{value.isoformat()};",
    list: _encode_list,
    tuple: _encode_list,
    dict: encode_fields,
}


def _same(value: Any) -> Any:
    return value


_PLAIN: dict[type, Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    str: str.__str__,
    bytes: _same,
    bytearray: _same,
    dt.datetime: _whole_microseconds,
    dt.date: _same,
    Decimal: _same,
    uuid.UUID: _same,
}
"""What subclasses extend, and how to get the plain value."""

_SCALARS: dict[str, type | tuple[type, ...]] = {
    "b": bool,
    "i": int,
    "u": int,
    "f": float,
    "M": (dt.date, dt.datetime),
}
"""By numpy's code of a kind, what its values become."""

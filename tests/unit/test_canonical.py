"""The canonical form: two values have the same bytes exactly when they are equal and of one kind. Frozen."""

# Naive times are values like any other here.
# ruff: noqa: DTZ001

from __future__ import annotations

import datetime as dt
import enum
import math
import uuid
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Mapping
from dataclasses import make_dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from oncesink.connectors.errors import Reason, Rejected
from oncesink.transforms.canonical import MAX_DEPTH, canonical

from tests.unit.canonical_reader import meaning, read_back

UTC = dt.timezone.utc
ID = uuid.UUID("12345678-1234-5678-1234-567812345678")

zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)))
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.binary()
    | st.uuids()
    | st.dates()
    | st.datetimes(timezones=st.none() | zones)
)
# Texts that look like the encoding itself, and values that equal each other across kinds.
traps: st.SearchStrategy[Any] = st.sampled_from(
    [
        "",
        "a",
        "b",
        "ab",
        "s1:a",
        "1:",
        ";",
        "i1;",
        "l1:",
        "é",
        "é",
        0,
        1,
        -1,
        True,
        False,
        0.0,
        -0.0,
        1.0,
        None,
        b"",
        b"1",
        b"\xc3\xa9",
        "1",
        Decimal(1),
        Decimal("1.0"),
        Decimal("1E+2"),
        Decimal(100),
        dt.date(1970, 1, 1),
        dt.datetime(1970, 1, 1),
        dt.datetime(1970, 1, 1, tzinfo=UTC),
        ID,
        str(ID),
        ID.hex,
        ID.bytes,
        ID.int,
    ]
)


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values and containers of values."""
    names = st.sampled_from(["", "a", "b", "a:", "s1:b"]) | st.text(max_size=3)
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4), max_leaves=8
    )


class Row:
    """What Beam and PyFlink call a row: named fields behind `as_dict`."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._values = dict(fields)

    def as_dict(self) -> dict[str, Any]:
        return self._values


def named_tuple(fields: Mapping[str, Any]) -> Any:
    return namedtuple("Made", fields)(**fields)  # noqa: PYI024 - the names are known at run time only


def data_class(fields: Mapping[str, Any]) -> Any:
    return make_dataclass("Made", [(name, Any) for name in fields])(**fields)


FORMS: list[Callable[[Mapping[str, Any]], Any]] = [dict, OrderedDict, MappingProxyType, Row, named_tuple, data_class]


class Colour(str, enum.Enum):
    RED = "red"


class Size(int, enum.Enum):
    FIVE = 5


class Level(enum.IntEnum):
    FIVE = 5


class Shouting(str):
    """Text that shows itself as something else."""

    __slots__ = ()

    def __str__(self) -> str:
        return "no"

    def __format__(self, spec: str) -> str:
        return "no"


@given(nested(scalars | traps))
def test_canonical_bytes_can_be_read_back(value: Any) -> None:
    """The encoding is injective over its whole domain: a reader gets from the bytes what the value means."""
    assert read_back(canonical(value)) == meaning(value)


@given(nested(traps), nested(traps))
@example(["a", "bc"], ["ab", "c"])
@example([["a"], []], [["a", []]])
@example({"a": 1}, ["a", 1])
def test_two_values_have_the_same_bytes_exactly_when_they_mean_the_same(left: Any, right: Any) -> None:
    """Different kinds differ, whatever Python's == says of 1, 1.0 and True."""
    assert (canonical(left) == canonical(right)) is (meaning(left) == meaning(right))


@given(
    st.dictionaries(st.from_regex("[a-z][a-z0-9]{0,5}", fullmatch=True).map("f_".__add__), scalars, max_size=5),
    st.randoms(),
)
def test_neither_order_nor_kind_of_a_record_matters(fields: dict[str, Any], random: Any) -> None:
    """A dict, a row, a NamedTuple and a dataclass with equal fields are one record, at the top and inside."""
    fields = {name.replace("f_", "x"): value for name, value in fields.items()}
    order = list(fields)
    random.shuffle(order)
    shuffled = {name: fields[name] for name in order}
    assert {canonical(form(shuffled)) for form in FORMS} == {canonical(fields)}
    assert {canonical([form(shuffled)]) for form in FORMS} == {canonical([fields])}


@given(st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 1, 1), timezones=zones), zones)
def test_an_instant_is_the_same_in_every_zone(instant: dt.datetime, zone: dt.timezone) -> None:
    """Aware times are compared by the instant."""
    assert canonical(instant.astimezone(zone)) == canonical(instant)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, b"n;"),
        (True, b"t;"),
        (False, b"F;"),
        (0, b"i0;"),
        (1, b"i1;"),
        (-255, b"i-ff;"),
        (2**64, b"i10000000000000000;"),
        ("1", b"s1:1"),
        ("", b"s0:"),
        ("é€😀", "s3:é€😀".encode()),
        (b"1", b"b1:1"),
        (b"\x00\xff", b"b2:\x00\xc3\xbf"),
        (bytearray(b"1"), b"b1:1"),
        (memoryview(b"1"), b"b1:1"),
        (memoryview(np.array([1], dtype="<u4").data), b"b4:\x01\x00\x00\x00"),
        (1.0, b"f0x1.0000000000000p+0;"),
        (0.1, b"f0x1.999999999999ap-4;"),
        (0.0, b"f0x0.0p+0;"),
        (-0.0, b"f0x0.0p+0;"),
        (5e-324, b"f0x0.0000000000001p-1022;"),
        (Decimal(1), b"d1e0;"),
        (Decimal("1.0"), b"d1e0;"),
        (Decimal("1E0"), b"d1e0;"),
        (Decimal("-120.50"), b"d-1205e-1;"),
        (Decimal("1E+999999"), b"d1e999999;"),
        (Decimal("-0.00"), b"d0e0;"),
        (ID, b"u12345678123456781234567812345678;"),
        (dt.date(2024, 2, 29), b"D2024-02-29;"),
        (dt.datetime(2024, 2, 29, 12, 30), b"N2024-02-29T12:30:00;"),
        (dt.datetime(2024, 2, 29, 12, 30, 0, 1), b"N2024-02-29T12:30:00.000001;"),
        (dt.datetime(2024, 2, 29, 12, 30, tzinfo=UTC), b"T1709209800000000;"),
        (dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), b"T-1;"),
        (dt.datetime(2024, 2, 29, 13, 30, tzinfo=ZoneInfo("Europe/Berlin")), b"T1709209800000000;"),
        ([], b"l0:"),
        ((1, "a"), b"l2:i1;s1:a"),
        ([1, "a"], b"l2:i1;s1:a"),
        ({}, b"m0:"),
        ({"b": 1, "a": [None]}, b"m2:s1:al1:n;s1:bi1;"),
        ({"€": {"": ""}}, "m1:s1:€m1:s0:s0:".encode()),
    ],
)
def test_golden_vectors(value: Any, expected: bytes) -> None:
    """Format 1 is frozen: a change of these bytes would make every record of every user new."""
    assert canonical(value) == expected


def test_a_very_large_integer_is_a_key_like_any_other() -> None:
    """Python's limit on decimal digits does not apply."""
    large = 10**5000
    assert canonical(large) != canonical(large + 1)
    assert read_back(canonical(large)) == meaning(large)


@pytest.mark.parametrize(
    "distinct",
    [
        [1, 1.0, "1", b"1", True, Decimal(1), [1]],
        [0, 0.0, "", b"", False, None, Decimal(0), [], {}],
        ["é", "e\u0301", "é".encode()],
        [ID, str(ID), ID.hex, ID.bytes, ID.int],
        [dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, tzinfo=UTC), dt.date(2024, 1, 1), "2024-01-01"],
        [["a", "bc"], ["ab", "c"], ["abc"], [["a"], "bc"], [["a", "bc"]]],
        [{"a": 1, "b": 2}, {"a": 2, "b": 1}, ["a", 1, "b", 2], [["a", 1], ["b", 2]], {"a": 1, "b": 2, "c": None}],
        [0.1 + 0.2, 0.3],
    ],
)
def test_what_looks_alike_differs(distinct: list[Any]) -> None:
    """Each of these was merged by somebody's key."""
    assert len({canonical(value) for value in distinct}) == len(distinct)


@pytest.mark.parametrize(
    ("value", "same"),
    [
        (Colour.RED, "red"),
        (Size.FIVE, 5),
        (Level.FIVE, 5),
        (Shouting("yes"), "yes"),
        ({Colour.RED: 1}, {"red": 1}),
        ({Shouting("yes"): 1}, {"yes": 1}),
        (np.str_("text"), "text"),
        (np.bytes_(b"raw"), b"raw"),
        (np.bool_(True), True),
        (np.int8(-1), -1),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (np.float32(0.5), 0.5),
        (np.float64(0.1), 0.1),
        (np.array(7), 7),
        (np.datetime64("2024-02-29"), dt.date(2024, 2, 29)),
        (np.datetime64("2024-02-29T01:02:03.000004"), dt.datetime(2024, 2, 29, 1, 2, 3, 4)),
    ],
)
def test_a_value_of_another_library_or_a_subclass_is_the_plain_value(value: Any, same: Any) -> None:
    """A record must not change its key because it went through a data frame or an Enum."""
    assert canonical(value) == canonical(same)


class NotATime(dt.datetime):
    """What pandas gives for a missing time: a datetime with no moment."""

    nanosecond = math.nan


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (math.nan, "not_finite"),
        (math.inf, "not_finite"),
        (-math.inf, "not_finite"),
        (np.float32("nan"), "not_finite"),
        (Decimal("NaN"), "not_finite"),
        (Decimal("sNaN"), "not_finite"),
        (Decimal("-Infinity"), "not_finite"),
        ("\ud800", "not_unicode"),
        ({"\udfff": 1}, "not_unicode"),
        ({1: "a"}, "wrong_type"),
        ({None: "a"}, "wrong_type"),
        ({"a": 1, 2: "b"}, "wrong_type"),
        ({b"a": 1}, "wrong_type"),
        ({1, 2}, "wrong_type"),
        (object(), "wrong_type"),
        (1j, "wrong_type"),
        (dt.timedelta(1), "wrong_type"),
        (dt.time(1), "wrong_type"),
        (dict, "wrong_type"),
        (np.array([1, 2]), "wrong_type"),
        (np.datetime64("NaT"), "wrong_type"),
        (np.datetime64(1, "ns"), "wrong_type"),
        (np.timedelta64(1, "ns"), "wrong_type"),
        (np.longdouble(1), "wrong_type"),
        (np.complex64(1), "wrong_type"),
        (np.array(None, dtype=object), "wrong_type"),
        (NotATime(2024, 1, 1), "wrong_type"),
    ],
)
def test_what_equals_nothing_or_has_no_form_is_refused(value: Any, reason: Reason) -> None:
    """It is refused with its reason, alone and inside of a record; it never shares the bytes of something else."""
    for wrapped in (value, [value], {"field": value}):
        with pytest.raises(Rejected) as caught:
            canonical(wrapped)
        assert caught.value.reason == reason


@pytest.mark.parametrize(
    "wrap",
    [lambda value: [value], lambda value: {"a": value}, lambda value: [{"a": value}]],
    ids=["lists", "records", "both"],
)
def test_nesting_has_a_bound_and_it_is_not_the_interpreters(wrap: Any) -> None:
    """Deep input is refused as a record, and never ends the process."""
    value: Any = 1
    for _ in range(MAX_DEPTH // 2):
        value = wrap(value)
    canonical(value)
    for _ in range(100_000):
        value = wrap(value)
    with pytest.raises(Rejected, match="nested deeper"):
        canonical(value)
    while isinstance(value, (list, dict)):
        value = value[0] if isinstance(value, list) else value["a"]


def test_the_bound_of_nesting_is_exact() -> None:
    """One container stands at each depth from 0 to the bound."""
    value: Any = 1
    for _ in range(MAX_DEPTH + 1):
        value = [value]
    canonical(value)
    with pytest.raises(Rejected, match="nested deeper"):
        canonical([value])

"""The quick way, column by column, gives what the recipes give, byte for byte, and accepts nothing that they refuse."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oncesink.connectors import MemoryLedger
from oncesink.connectors.contract import Scope, Use
from oncesink.transforms import Batch, ByStamp, Content, Fields, Gate, Refused, SourcePosition, Stamped
from oncesink.transforms.canonical import canonical
from oncesink.transforms.plan import make_plan
from oncesink.transforms.prepare import MAX_SHAPES, SMALL, Item, Preparer

SCOPE = Scope(name="orders", use=Use.WRITE)
NAMES = ["a", "b", "o", "%", "%s", "100%%", "a:", "é", "\ud800", ""]


class Colour(str, Enum):
    RED = "red"


class Size(int, Enum):
    FIVE = 5


class Quiet(str):
    """Text that shows itself as nothing."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return ""


odd: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        "",
        b"",
        0,
        1,
        -1,
        True,
        False,
        0.0,
        -0.0,
        1.0,
        math.nan,
        math.inf,
        "n;",
        "s0:",
        "�",
        "%s",
        10**5000,
        Colour.RED,
        Size.FIVE,
        Quiet("a"),
        np.int64(7),
        np.str_("a"),
        np.float64("nan"),
        Decimal("1.0"),
        b"\xff",
        [],
        {},
        [1, "a"],
        {"b": 1},
        (1,),
        {1, 2},
        "x" * 300,
        object,
    ]
)
values = odd | st.integers() | st.text(max_size=5) | st.floats()
records = st.dictionaries(st.sampled_from(NAMES), values, max_size=6)
keys = st.sampled_from([Fields("a"), Fields("a", "b"), Fields("b", "a", "a"), Fields(Colour.RED, "a"), Fields("é")])
occurrences = st.sampled_from(
    [
        None,
        SourcePosition("s", "o"),
        SourcePosition("%s", "o", "b"),
        SourcePosition(Colour.RED, "a"),
        SourcePosition("s" * 250, "o"),
    ]
)
bounds = st.sampled_from([Batch(), Batch(key_bytes=12), Batch(record_bytes=40), Batch(key_bytes=1, record_bytes=1)])


strangers: st.SearchStrategy[Any] = st.sampled_from(
    [None, 7, "{", b'{"a": "A1", "o": 1}', MappingProxyType({"a": "A1", "o": 1}), Stamped(b"1", {"a": 1}), {}, {1: "a"}]
)


def as_json(record: dict[str, Any]) -> Any:
    """Return a record as JSON where it has such a form."""
    try:
        return json.dumps(record)
    except (TypeError, ValueError):
        return record


def as_bytes(record: dict[str, Any]) -> Any:
    """Return a record as the bytes of JSON where it has such a form."""
    text = as_json(record)
    return text.encode() if isinstance(text, str) else record


def as_tuple(record: dict[str, Any]) -> Any:
    """Return a record as a NamedTuple, which has names of its own where a record's would be none."""
    usual = [name.isidentifier() and not name.startswith("_") for name in record]
    fields = [(name if fits else f"n{n}", object) for n, (name, fits) in enumerate(zip(record, usual, strict=True))]
    kind: Any = NamedTuple("Record", fields)  # type: ignore[misc]
    return kind(*record.values())


kinds = st.sampled_from([dict, as_json, as_bytes, as_tuple])


def preparer(key: Any = None, occurrence: Any = None, batch: Batch | None = None, *, hashed: bool = True) -> Preparer:
    gate = Gate(
        scope="orders",
        key=key or Fields("a"),
        occurrence=occurrence,
        ledger=MemoryLedger() if hashed else None,
        batch=batch or Batch(),
    )
    return Preparer(gate, SCOPE)


@given(keys, occurrences, bounds, st.booleans(), st.data())
@settings(max_examples=400, deadline=None)
def test_a_batch_gets_what_each_record_gets_by_itself(
    key: Any, occurrence: Any, batch: Batch, hashed: bool, data: Any
) -> None:
    """Whatever stands in the fields, whatever stands beside it, and whatever taught the plan."""
    prepare = preparer(key, occurrence, batch, hashed=hashed)
    names = data.draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=5))
    usual = st.fixed_dictionaries(dict.fromkeys(names, values))
    of_one_kind = st.builds(lambda kind, record: kind(record), st.just(data.draw(kinds)), usual)
    pool = data.draw(st.lists(of_one_kind | of_one_kind | usual | records | strangers, min_size=1, max_size=4))
    chosen = data.draw(st.lists(st.sampled_from(range(len(pool))), min_size=1, max_size=2 * SMALL + 2))
    batch_of_records = [pool[index] for index in chosen]
    for _ in range(2):
        assert prepare.batch(batch_of_records) == [prepare(record) for record in batch_of_records]


@settings(deadline=None)
@given(st.permutations(NAMES[:-2]), st.lists(values, min_size=len(NAMES) - 2, max_size=len(NAMES) - 2))
def test_the_order_of_the_fields_does_not_matter(names: list[str], values: list[Any]) -> None:
    """One plan serves records whose fields came in different orders."""
    prepare = preparer(Fields("a", "%"), SourcePosition("s", "o"))
    record = dict(zip(names, values, strict=True))
    turned = dict(reversed(record.items()))
    first, second = prepare.batch([record, turned])
    assert first == prepare(record)
    assert second[1:] == first[1:]


@pytest.mark.parametrize("value", ["text", 7, 1.5, True, None], ids=repr)
def test_usual_records_take_the_quick_way(value: Any) -> None:
    """Otherwise these tests would prove nothing, and the gate would be slow."""
    records = [{"a": "A1", "o": 12, "value": value}, {"o": 13, "a": "A2", "value": "other"}]
    plan = make_plan(records[0], Fields("a"), SourcePosition("s", "o"), frozenset({"o"}))
    assert plan is not None
    keys, occurrences, contents = plan(records)
    assert keys == [b"l1:s2:A1", b"l1:s2:A2"]
    assert occurrences == [b"l2:s1:sic;", b"l2:s1:sid;"]
    assert contents == [b"m2:s1:as2:A1s5:value" + canonical(value), b"m2:s1:as2:A2s5:values5:other"]


@pytest.mark.parametrize(
    ("key", "occurrence"),
    [
        (Fields("a", nfc=True), None),
        (Fields(("a", "b")), None),
        (Content(), None),
        (Fields("absent"), None),
        (Fields("a"), SourcePosition("s", "absent")),
        (Fields("a"), SourcePosition("s", ("o", "p"))),
    ],
    ids=str,
)
def test_what_a_plan_cannot_do_is_left_to_the_recipes(key: Any, occurrence: Any) -> None:
    """Nested paths, normal forms, other recipes and absent fields."""
    record = {"a": {"b": "e\u0301"}, "o": {"p": 1}}
    assert make_plan(record, key, occurrence, frozenset()) is None
    prepare = preparer(key, occurrence)
    assert prepare.batch([record, record]) == [prepare(record)] * 2


@pytest.mark.parametrize("value", [None, "", b"", [], {}, math.nan, math.inf, "\ud800", {1}, [math.nan]], ids=ascii)
def test_a_plan_never_accepts_what_the_recipes_refuse(value: Any) -> None:
    """Neither in the key nor in the position, and the good ones around it go on."""
    prepare = preparer(Fields("a"), SourcePosition("s", "o"))
    good = [{"a": f"A{number}", "o": number} for number in range(3 * SMALL)]
    place = SMALL + 1
    for bad in ({"a": value, "o": 1}, {"a": 1, "o": None}, {"a": 1, "o": math.nan}):
        found = prepare.batch([*good[:place], bad, *good[place:]])
        assert [type(each) for each in found] == [Item] * place + [Refused] + [Item] * (len(good) - place)


@pytest.mark.parametrize("source", ["s", "%", Colour.RED], ids=repr)
@pytest.mark.parametrize(
    "odd",
    [
        {"extra": 1},
        {"o": "x" * 300},
        {"a": "x" * 2000},
        {"value": "x" * 2**20},
        {"a": Quiet("a")},
        {"value": np.int64(1)},
        {"o": 10**5000},
        {"value": [1]},
        {"�": 1},
        {Colour.RED: 1},
    ],
    ids=[
        "wider",
        "long occurrence",
        "long key",
        "large",
        "subclass",
        "numpy",
        "large number",
        "list",
        "surrogate",
        "Enum",
    ],
)
def test_one_odd_record_changes_nothing_for_the_others(source: str, odd: dict[str, Any]) -> None:
    """It may have more fields, or what is too long for its column, or what only the recipes can read."""
    prepare = preparer(Fields("a"), SourcePosition(source, "o"))
    usual = [{"a": f"A{number}", "o": number, "value": 0.5} for number in range(SMALL)]
    for batch in (
        [usual[0], {**usual[1], **odd}],
        [*usual, {**usual[0], **odd}, *usual],
        [{**usual[0], **odd}, *usual],
    ):
        assert prepare.batch(batch) == [prepare(record) for record in batch]


def test_a_batch_of_nothing_is_nothing() -> None:
    """An empty flush is none."""
    assert preparer().batch([]) == []


def test_a_stream_of_ever_new_shapes_does_not_fill_the_memory() -> None:
    """The plans start over, and the results stay the same."""
    prepare = preparer()
    for number in range(2 * MAX_SHAPES + 1):
        record = {"a": "A1", f"field {number}": number}
        assert prepare.batch([record]) == [prepare(record)]
        assert len(prepare._plans) <= MAX_SHAPES


@pytest.mark.parametrize("hashed", [True, False])
@pytest.mark.parametrize("kind", [as_json, as_bytes, as_tuple, MappingProxyType], ids=lambda kind: kind.__name__)
def test_records_of_any_flat_kind_are_read_once(kind: Any, hashed: bool) -> None:
    """Their fields go the quick way, and what comes out is the same, with the record as it came."""
    prepare = preparer(occurrence=SourcePosition("s", "o"), hashed=hashed)
    sent = [kind({"a": f"A{number}", "o": number, "b": 0.5}) for number in range(2 * SMALL)]
    assert prepare.batch(sent) == [prepare(record) for record in sent]
    assert bool(prepare._plans) is (kind is not MappingProxyType)
    mixed = [*sent, kind({"a": None, "o": 1, "b": 1}), "{", {"a": "A", "o": 7, "b": 0}, kind({"a": "x"})]
    assert prepare.batch(mixed) == [prepare(record) for record in mixed]


def test_the_record_goes_on_as_it_came() -> None:
    """A refused one too; of a stamped one what was stamped."""
    prepare = preparer()
    sent: list[Any] = [{"a": "A1"}, {"a": None}, b'{"a": 1}']
    assert all(out.record is record for out, record in zip(prepare.batch(sent), sent, strict=True))
    stamped = preparer(occurrence=ByStamp()).batch([Stamped(b"1", sent[0]), Stamped(b"2", sent[1])])
    assert [out.record for out in stamped] == sent[:2]

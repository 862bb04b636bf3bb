"""Keys and occurrences: what a record is, and where its delivery stands."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oncesink.connectors.errors import Misconfigured, Reason, Rejected
from oncesink.transforms import (
    ByStamp,
    Computed,
    Content,
    Fields,
    Header,
    SourcePosition,
    Stamped,
    checkpoint_subtask_key,
)
from oncesink.transforms.canonical import canonical
from oncesink.transforms.keys import MAX_OCCURRENCE_BYTES, KeyRecipe, OccurrenceRecipe, fit_occurrence


def refused(recipe: Any, record: Any) -> Reason:
    """Return why a recipe refuses a record."""
    with pytest.raises(Rejected) as caught:
        recipe(record)
    return caught.value.reason


def by_id(record: Any) -> Any:
    return record["id"]


class Field(str, Enum):
    ID = "id"


class Order(NamedTuple):
    id: str
    version: int


@dataclass
class Nested:
    order: Order


def test_golden_vectors() -> None:
    """The key bytes of each recipe are frozen, as the canonical form is."""
    record = {"id": "A1", "version": 7, "headers": [("uuid", b"\x01\x02")], "topic": "t", "offset": 3}
    assert Fields("id")(record) == b"l1:s2:A1"
    assert Fields("id", "version")(record) == b"l2:s2:A1i7;"
    assert Header("uuid")(record) == b"l1:b2:\x01\x02"
    assert Computed(by_id, name="by id")(record) == b"l1:s2:A1"
    assert SourcePosition("s", "topic", "offset")(record) == b"l3:s1:ss1:ti3;"
    without = ("headers", "topic", "offset")
    assert Content(without=without)(record).hex() == (
        "e429d64751c3b0286c8840084c0d1e270a234b63c1357b729cf72e4d9391891d"
    )


def test_fields_do_not_run_into_each_other() -> None:
    """("a", "bc") is not ("ab", "c"), and the order of the fields in the recipe counts."""
    recipe = Fields("x", "y")
    assert recipe({"x": "a", "y": "bc"}) != recipe({"x": "ab", "y": "c"})
    assert recipe({"x": "a", "y": "b"}) != Fields("y", "x")({"x": "a", "y": "b"})


@given(st.lists(st.tuples(st.text(max_size=4), st.integers() | st.text(max_size=4)), min_size=2, max_size=2))
def test_two_records_share_a_key_exactly_when_their_fields_are_equal(pair: list[tuple[str, Any]]) -> None:
    """No two orders get one key, and no order two."""
    recipe = Fields("x", "y")
    left, right = ({"x": x, "y": y} for x, y in pair)
    if all(any(value not in ("", None) for value in record.values()) for record in (left, right)):
        assert (recipe(left) == recipe(right)) is (left == right)


@given(value=st.text(min_size=1, max_size=8) | st.integers() | st.booleans() | st.binary(min_size=1, max_size=8))
def test_the_quick_way_to_a_key_comes_to_the_same_bytes(value: Any) -> None:
    """A flat record takes it, a nested one does not."""
    expected = canonical([value]).removeprefix(b"l1:")
    assert Fields("id")({"id": value}) == b"l1:" + expected
    assert Fields(("order", "id"))({"order": {"id": value}}) == b"l1:" + expected
    assert Fields("id", "line")({"id": value, "line": 1}) == b"l2:" + expected + b"i1;"


def test_the_kind_of_record_does_not_matter() -> None:
    """Dict, NamedTuple, dataclass and JSON give one key; paths go through each of them."""
    expected = Fields(("order", "id"))({"order": {"id": "A1", "version": 7}})
    for record in (
        Nested(Order("A1", 7)),
        {"order": Order("A1", 7)},
        '{"order": {"id": "A1"}}',
        b'{"order":{"id":"A1"}}',
    ):
        assert Fields(("order", "id"))(record) == expected


def test_a_field_may_be_named_by_an_enum() -> None:
    """An Enum of text is text."""
    assert Fields(Field.ID)({"id": "A1"}) == Fields("id")({"id": "A1"})


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"id": None},
        {"id": ""},
        {"id": b""},
        {"id": []},
        {"id": {}},
        {"ID": "A1"},
        b"{}",
        {"id": np.str_("")},
    ],
    ids=repr,
)
def test_a_record_without_a_key_is_refused(record: Any) -> None:
    """Never one shared null key, under which everything after the first is a duplicate."""
    assert refused(Fields("id"), record) == "no_key"


def test_a_missing_part_is_no_key_and_an_empty_one_may_be_part_of_one() -> None:
    """Order "A1" of no version is not an order; an empty suffix beside an id is fine."""
    recipe = Fields("id", "suffix")
    assert refused(recipe, {"id": "A1"}) == "no_key"
    assert refused(recipe, {"id": "A1", "suffix": None}) == "no_key"
    assert refused(recipe, {"id": "", "suffix": ""}) == "no_key"
    assert recipe({"id": "A1", "suffix": ""}) == b"l2:s2:A1s0:"
    assert refused(Fields(("a", "b")), {"a": None}) == "no_key"
    assert refused(Fields(("a", "b")), {"a": {}}) == "no_key"


@pytest.mark.parametrize("value", [0, 0.0, False, "0", " "], ids=repr)
def test_zero_false_and_a_space_are_keys(value: Any) -> None:
    """Only what is absent is absent."""
    assert Fields("id")({"id": value}) == b"l1:" + canonical(value)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"id": float("nan")}, "not_finite"),
        ({"id": "\ud800"}, "not_unicode"),
        ({"id": {1, 2}}, "wrong_type"),
        ({"id": np.array([1, 2])}, "wrong_type"),
        ({"id": np.datetime64("NaT")}, "wrong_type"),
        (7, "wrong_type"),
        (None, "wrong_type"),
        ("[1]", "wrong_type"),
        ("{", "not_json"),
        (b"\xff", "not_json"),
        ("", "not_json"),
        ("[" * 100_000, "not_json"),
    ],
    ids=lambda value: ascii(value)[:20],
)
def test_bad_input_has_its_reason(record: Any, reason: Reason) -> None:
    """Nothing but `Rejected` comes out of a recipe, so that one bad record never ends a job."""
    assert refused(Fields("id"), record) == reason
    assert refused(Content(), record) == reason


def test_nfc_is_opt_in() -> None:
    """Two spellings of é are two keys, unless asked for."""
    composed, decomposed = {"id": "é"}, {"id": "e\u0301"}
    assert Fields("id")(composed) != Fields("id")(decomposed)
    assert Fields("id", nfc=True)(composed) == Fields("id", nfc=True)(decomposed) == Fields("id")(composed)
    assert Fields("id", nfc=True)({"id": 1}) == Fields("id")({"id": 1})
    assert Fields("id", nfc=True).description != Fields("id").description


@pytest.mark.parametrize(
    "headers",
    [
        [("trace", b"9"), ("uuid", b"u1")],
        [("uuid", b"old"), ("uuid", b"u1")],
        {"uuid": b"u1"},
        [("uuid", "old"), ("uuid", "u1")],
    ],
    ids=["pairs", "the last counts", "mapping", "text"],
)
def test_a_header_is_a_key(headers: Any) -> None:
    """Kafka clients give pairs, with the last of a name counting; text and its bytes are the same header."""
    assert Header("uuid")({"headers": headers}) == b"l1:b2:u1"
    assert Header("uuid", ("meta", "h"))({"meta": {"h": headers}}) == b"l1:b2:u1"


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        (None, "no_key"),
        ([], "no_key"),
        ([("other", b"1")], "no_key"),
        ([("uuid", b"")], "no_key"),
        ([("uuid", "")], "no_key"),
        ([("uuid", None)], "no_key"),
        ([("uuid", b"1"), ("uuid", None)], "no_key"),
        ([("uuid", "\ud800")], "not_unicode"),
        ("uuid", "wrong_type"),
        (5, "wrong_type"),
        ([5], "wrong_type"),
    ],
    ids=repr,
)
def test_a_missing_or_broken_header_is_refused(headers: Any, reason: Reason) -> None:
    """A message without the producer's UUID has no key."""
    assert refused(Header("uuid"), {"headers": headers}) == reason


def test_content_is_the_whole_record_but_what_is_left_out() -> None:
    """Two sends of the same thing are one, wherever they stand; a record of which nothing is left is none."""
    recipe = Content(without=("offset",))
    assert recipe({"a": 1, "offset": 1}) == recipe({"offset": 2, "a": 1}) == Content()({"a": 1})
    assert recipe({"a": 1}) != recipe({"a": 2})
    assert len(recipe({"a": 1})) == 32
    assert refused(recipe, {"offset": 1}) == "no_key"
    assert refused(recipe, {}) == "no_key"


def test_a_computed_key_is_what_the_function_returns() -> None:
    """It has the same bytes as the field itself; a value that has no canonical bytes is refused."""
    recipe = Computed(by_id, name="by id")
    assert recipe({"id": "A1"}) == Fields("id")({"id": "A1"})
    assert Computed(by_id, name="by id", version=2).description == "Computed(by id v2)"
    for value, reason in [
        (None, "no_key"),
        ("", "no_key"),
        (b"", "no_key"),
        (float("nan"), "not_finite"),
        (np.array([1, 2]), "wrong_type"),
    ]:
        assert refused(recipe, {"id": value}) == reason


@pytest.mark.parametrize("record", [{}, None, 3, "text"], ids=repr)
def test_a_function_that_fails_on_a_record_refuses_it(record: Any) -> None:
    """Its error is a reason, not the end of the job."""
    assert refused(Computed(by_id, name="by id"), record) == "wrong_type"


def test_a_source_position_holds_label_and_fields() -> None:
    """An offset repeats in every partition: the partition is part of it, and so is who reads."""
    recipe = SourcePosition("a", "topic", "partition", "offset")
    here = {"topic": "t", "partition": 0, "offset": 7}
    assert recipe(here) == recipe({**here, "value": 1})
    others = [{**here, "partition": 1}, {**here, "offset": 8}, {**here, "topic": "u"}, {**here, "offset": "7"}]
    assert len({recipe(here), SourcePosition("b", "topic", "partition", "offset")(here), *map(recipe, others)}) == 6
    assert recipe.reads == {"topic", "partition", "offset"}
    assert SourcePosition("a", ("meta", "offset")).reads == {"meta"}
    assert recipe.description == SourcePosition("b", "topic", "partition", "offset").description


@pytest.mark.parametrize("record", [{"topic": "t"}, {"topic": "t", "offset": None}, {}], ids=repr)
def test_a_record_without_its_position_is_refused(record: Any) -> None:
    """It would equal every other record without one."""
    assert refused(SourcePosition("a", "topic", "offset"), record) == "no_position"


@given(st.text(max_size=400), st.text(max_size=400))
def test_an_occurrence_always_fits_its_column(left: str, right: str) -> None:
    """What is too long is hashed, and stays distinct."""
    recipe = SourcePosition("files", "path")
    found = [recipe({"path": path}) for path in (left, right)]
    assert all(len(each) <= MAX_OCCURRENCE_BYTES for each in found)
    assert (found[0] == found[1]) is (left == right)


def test_the_limit_of_an_occurrence_is_exact() -> None:
    """255 bytes stay as they are; the hash of 256 is frozen."""
    assert fit_occurrence(b"x" * 255) == b"x" * 255
    assert fit_occurrence(b"x" * 256).hex() == ("23cb9d468022b930d52da4d9b0226ef9c997e0acc119eeb08afefb8219bc53972b")


def test_a_stamp_is_an_occurrence() -> None:
    """`Stamp` wraps the record; a record that was not stamped, or with nothing, has no position."""
    assert ByStamp()(Stamped(b"7f_12", {"id": 1})) == b"7f_12"
    assert len(ByStamp()(Stamped(b"7" * 300, {}))) == 33
    assert ByStamp().reads == frozenset()
    for record in ({"id": 1}, Stamped(b"", {"id": 1}), (b"7f_12", {"id": 1})):
        assert refused(ByStamp(), record) == "no_position"
        assert refused(ByStamp(stable_order=True), record) == "no_key"


def test_checkpoint_subtask_key_names_a_batch() -> None:
    """The plain formula: distinct for subtasks and checkpoints of one parallelism, and only there."""
    assert checkpoint_subtask_key("u", 5, 4, 3) == "u_23"
    names = {checkpoint_subtask_key("u", checkpoint, 4, subtask) for checkpoint in range(50) for subtask in range(4)}
    assert len(names) == 200
    assert checkpoint_subtask_key("u", 2, 4, 2) == checkpoint_subtask_key("u", 5, 2, 0), "it collides after a rescale"


@pytest.mark.parametrize(("checkpoint", "subtasks", "subtask"), [(1, 4, 4), (1, 4, -1), (-1, 4, 0), (1, 0, 0)])
def test_checkpoint_subtask_key_refuses_what_is_no_subtask(checkpoint: int, subtasks: int, subtask: int) -> None:
    """A number out of range would name another subtask's batch."""
    with pytest.raises(ValueError, match=r"subtask|checkpoint"):
        checkpoint_subtask_key("u", checkpoint, subtasks, subtask)


@pytest.mark.parametrize("paths", [(), ("",), ((),), (("a", ""),), (("a", 1),), (5,), (["a"],)], ids=repr)
def test_a_recipe_that_names_no_field_is_refused(paths: Any) -> None:
    """At once, not when the first record comes."""
    with pytest.raises(Misconfigured, match="Fields"):
        Fields(*paths)
    with pytest.raises(Misconfigured, match="SourcePosition"):
        SourcePosition("a", *paths)


def test_a_position_needs_a_label() -> None:
    """Two sources without one would take each other's records for replays."""
    with pytest.raises(Misconfigured, match="source label"):
        SourcePosition("", "offset")


RECIPES: list[Any] = [
    Fields("a", ("b", "c")),
    Fields("a", nfc=True),
    Header("uuid"),
    Content(without=("b", "a")),
    Computed(by_id, name="by id"),
    SourcePosition("a", "topic", ("meta", "offset")),
    ByStamp(),
    ByStamp(stable_order=True),
]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: type(recipe).__name__ + recipe.description)
def test_recipes_are_values(recipe: Any) -> None:
    """They pickle, compare, hash, and fulfil their protocol."""
    copy = pickle.loads(pickle.dumps(recipe))
    assert copy == recipe
    assert hash(copy) == hash(recipe)
    assert isinstance(recipe, OccurrenceRecipe if hasattr(recipe, "reads") else KeyRecipe)


def test_a_description_changes_with_the_key() -> None:
    """The scopes table compares it: an order of names that does not matter does not show."""
    assert len({each.description for each in RECIPES}) == len(RECIPES)
    assert Content(without=("b", "a")).description == Content(without=("a", "b")).description
    assert Fields("a", "b").description != Fields("b", "a").description
    assert Fields(("a", "b")).description != Fields("a", "b").description

"""What `redrive=` stores of a record, and what comes back of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from oncesink.connectors.errors import Misconfigured, Rejected
from oncesink.transforms import Batch, Json, Reconciled

from tests.unit.doubt_scene import external, left_open, run
from tests.unit.scene import record

NESTED: list[Any] = []
for _ in range(100_000):
    NESTED = [NESTED]


class TestStoring:
    """What `redrive=` puts into a claim."""

    def test_by_default_rows_hold_no_record(self) -> None:
        """Nobody pays for what was not asked for."""
        scene = left_open(external(redrive=None), record("A", 0), applied=False)
        assert [row.claim.payload for row in scene.store.rows.values()] == [None]

    def test_a_record_that_is_too_large_is_named_and_the_rest_goes_on(self) -> None:
        """Its row could not be redriven, so there is none."""
        scene = external(batch=Batch(payload_bytes=100))
        results = scene.write(record("A", 0, text="x" * 100), record("B", 1), record("A", 2))
        assert [(one.record["offset"], one.reason) for one in results.rejected] == [(0, "too_large")]
        assert "payload_bytes=100" in results.rejected[0].detail
        assert sorted(scene.written_keys) == ["A", "B"]

    @pytest.mark.parametrize("on_replay", ["write", "probe"])
    def test_another_occurrence_that_writes_brings_its_own_record(self, on_replay: str) -> None:
        """Occurrence, hash and record of a row are always of one delivery: who dies then is redriven, not the first."""
        scene = left_open(external(on_replay), record("A", 0, n=1), applied=False)
        left_open(scene, record("A", 1, n=2), applied=False)
        assert run(scene) == Reconciled(listed=1, written=1)
        assert [effect.record for effect in scene.effects] == [record("A", 1, n=2)]
        assert scene.effects[0].occurrence == b"l2:s1:si1;"

    def test_a_probe_that_finds_the_effect_keeps_the_first_ones_record(self) -> None:
        """The row was never the prober's."""
        scene = left_open(external(), record("A", 0, n=1), applied=True)
        payload = [row.claim for row in scene.store.rows.values()]
        assert scene.write(record("A", 1, n=1)).duplicates
        assert [row.claim for row in scene.store.rows.values()] == payload

    def test_a_second_send_that_cannot_be_stored_leaves_the_row_alone(self) -> None:
        """It is refused before it takes anything over."""
        scene = left_open(external(batch=Batch(payload_bytes=100)), record("A", 0), applied=False)
        rows = dict(scene.store.rows)
        assert scene.write(record("A", 1, text="x" * 100)).rejected[0].reason == "too_large"
        assert scene.store.rows == rows


class TestJson:
    """The serialiser that is there."""

    @pytest.mark.parametrize(
        "value",
        [
            {"a": 1, "b": "ü\u2028", "c": None, "d": True, "e": 1.0},
            {"a": [1, {"b": [[]]}], "c": {"": {}}},
            {"big": 2**200, "small": 5e-324},
            "text",
            b"\x00\xff raw",
            b'{"a":1}',
            b"",
        ],
    )
    def test_what_comes_back_is_what_was_stored(self, value: Any) -> None:
        """Types and all."""
        again = Json().loads(Json().dumps(value))
        assert again == value
        assert repr(again) == repr(value)

    @pytest.mark.parametrize(
        ("value", "reason"),
        [
            ({"a": (1, 2)}, "wrong_type"),
            ({"a": {1: 2}}, "wrong_type"),
            ({"a": timedelta(1)}, "wrong_type"),
            ({"a": b"x"}, "wrong_type"),
            ({"a": float("nan")}, "not_finite"),
            ({"a": "\ud800"}, "not_unicode"),
            ({"a": NESTED}, "wrong_type"),
            (7, "wrong_type"),
        ],
    )
    def test_what_would_come_back_otherwise_is_refused(self, value: Any, reason: str) -> None:
        """Another record would be written than the one that was sent."""
        with pytest.raises(Rejected) as refused:
            Json().dumps(value)
        assert refused.value.reason == reason

    @pytest.mark.parametrize("serialiser", [7, "pickle", object()])
    def test_what_is_no_serialiser_is_refused(self, serialiser: Any) -> None:
        """At once, where it stands."""
        with pytest.raises(Misconfigured, match="redrive is"):
            external(redrive=serialiser).gate  # noqa: B018

"""`Reconciler`: open rows that nobody brings again are settled by the same table as records."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from oncesink.connectors.callable_sink import CallableSink
from oncesink.connectors.contract import ALREADY, Answer, Write
from oncesink.connectors.errors import Misconfigured
from oncesink.connectors.faults import Fault
from oncesink.connectors.memory import MemoryLedger
from oncesink.connectors.memory_sinks import MemorySink, MemoryTable
from oncesink.transforms import Duplicate, Fields, Gate, Reconciled, Reconciler, SourcePosition, Written

from tests.unit.doubt_scene import OVER_SECONDS, external, left_open, reconciler, run
from tests.unit.scene import GRACE_SECONDS, LEASE_SECONDS, Scene, record


class TestSettling:
    """Each open row whose lease and grace are over comes to an end."""

    @pytest.mark.parametrize("redrive", ["json", None])
    def test_what_is_there_is_finished(self, redrive: Any) -> None:
        """For the occurrence that had claimed it: its replay is told so, another one is a duplicate."""
        scene = left_open(external(redrive=redrive), record("A", 0), record("B", 1), applied=True)
        assert run(scene) == Reconciled(listed=2, there=2)
        assert scene.written_keys == ["A", "B"]
        assert scene.open_rows == 0
        assert scene.write(record("A", 0)).written == [Written(record("A", 0), replayed=True)]
        assert scene.write(record("B", 2)).duplicates == [Duplicate(record("B", 2))]

    @pytest.mark.parametrize(
        ("on_replay", "kind"), [("probe", "external"), ("write", "external"), ("", "drops_by_key")]
    )
    def test_what_is_not_there_is_written_from_its_row(self, on_replay: str, kind: Any) -> None:
        """The very record, under the very occurrence; then it is finished."""
        sent = record("A", 0, nested={"a": [1, 2.5, None, "ü"]})
        scene = left_open(external(on_replay, kind=kind), sent, applied=False)
        assert run(scene) == Reconciled(listed=1, written=1)
        assert [effect.record for effect in scene.effects] == [sent]
        assert scene.write(sent).written == [Written(sent, replayed=True)]
        assert scene.write(record("A", 1)).rejected[0].reason == "conflict"
        assert len(scene.effects) == 1

    def test_without_a_stored_record_what_is_missing_is_named(self) -> None:
        """It stays open, so that its replay still finds its claim; the report says what has to be sent again."""
        scene = left_open(external(redrive=None), record("A", 0), applied=False)
        (digest,) = scene.store.rows
        found = run(scene)
        assert (found.listed, found.missing, found.clean) == (1, 1, False)
        assert found.keys[0][0] == digest.hex()
        assert "holds no record" in found.keys[0][1]
        assert scene.written_keys == []
        scene.clock.sleep(OVER_SECONDS)
        assert run(scene).missing == 1
        assert scene.write(record("A", 0)).written == [Written(record("A", 0))]

    def test_rows_of_before_redrive_are_not_invented(self) -> None:
        """They hold no record: asked for, never written."""
        scene = left_open(external(redrive=None), record("A", 0), record("B", 1), applied=False)
        scene.settings["redrive"] = "json"
        assert run(scene).missing == 2
        scene.clock.sleep(OVER_SECONDS)
        scene.settings["on_replay"] = "write"
        assert run(scene).parked == 2
        assert scene.written_keys == []

    def test_park_only_tells(self) -> None:
        """The rows stay as they were, at every pass."""
        scene = left_open(external("park"), record("A", 0), applied=True)
        rows = dict(scene.store.rows)
        for _ in range(2):
            found = run(scene)
            assert (found.listed, found.parked, len(found.keys)) == (1, 1, 1)
        assert scene.store.rows == rows

    def test_a_lease_that_runs_is_left_alone(self) -> None:
        """And so is the grace behind it; its clock is the store's."""
        scene = left_open(external(), record("A", 0), applied=False, over=False)
        scene.clock.sleep(LEASE_SECONDS + GRACE_SECONDS)
        assert run(scene) == Reconciled()
        scene.clock.sleep(0.001)
        assert run(scene).written == 1

    def test_without_an_occurrence_a_row_speaks_for_its_claim_too(self) -> None:
        """None equals nothing, but the row is its own."""
        scene = external(occurrence=None)
        left_open(scene, record("A", None), applied=True)
        scene.on("sink", "write", Fault.CRASH_BEFORE)
        scene.dies(record("B", None))
        scene.clock.sleep(OVER_SECONDS)
        rows = {digest: row.claim for digest, row in scene.store.rows.items()}
        assert run(scene) == Reconciled(listed=2, there=1, written=1)
        assert {digest: row.claim for digest, row in scene.store.rows.items()} == rows
        assert scene.written_keys == ["A", "B"]

    def test_older_generations_are_told_and_not_touched(self) -> None:
        """They were left behind on purpose; what they mean may have changed."""
        scene = left_open(external(), record("A", 0), applied=False)
        scene.settings["generation"] = 2
        left_open(scene, record("A", 0), applied=False)
        assert run(scene) == Reconciled(listed=1, written=1, older_generations=1)
        assert len(scene.effects) == 1
        assert scene.open_rows == 1

    def test_the_sink_that_remembers_for_a_while_is_asked_afterwards(self) -> None:
        """Young rows are sent again; old ones go by `on_replay`."""
        limits: dict[str, Any] = {"remembers": timedelta(seconds=100)}
        settings = {"on_replay": "probe", "parked": "output", "redrive": "json"}
        scene = left_open(Scene("drops_by_key", settings, limits), record("A", 0), applied=True)
        assert run(scene) == Reconciled(listed=1, there=1)
        assert scene.counts["probed"] == 0
        left_open(scene, record("B", 1), applied=True).clock.sleep(100)
        assert run(scene) == Reconciled(listed=1, there=1)
        assert scene.counts["probed"] == 1
        assert scene.written_keys == ["A", "B"]

    def test_refused_for_ever_stays_and_is_named(self) -> None:
        """Its row is all that is left of it: nobody gives it back."""
        scene = external(kind="drops_by_key")
        left_open(scene, record("A", 0), applied=False)
        scene.sink_settings["refuses"] = lambda it: "it is bad"
        object.__setattr__(scene.sink, "inner", scene._usual_sink())
        found = run(scene)
        assert (found.parked, scene.open_rows) == (1, 1)
        assert "it is bad" in found.keys[0][1]

    def test_a_record_that_cannot_be_read_is_not_written(self, caplog: pytest.LogCaptureFixture) -> None:
        """Another serialiser wrote it: the row is treated as one without a record, and the log says why."""
        scene = left_open(external(redrive=Upper()), record("A", 0), applied=False)
        scene.settings["redrive"] = "json"
        with caplog.at_level(logging.WARNING):
            assert run(scene).missing == 1
        assert "stored by b'upper'" in caplog.text

    def test_the_answer_of_a_probe_gives_the_result(self) -> None:
        """What the sink tells of an effect is stored, as if its first answer had arrived."""
        scene = left_open(external(results="json"), record("A", 0), applied=True)
        scene.on("sink", "probe")
        with reconciler(scene) as one:
            one._session._way._sink = _Telling({"id": 7})  # type: ignore[attr-defined]
            assert one.run().there == 1
        assert scene.write(record("A", 0)).written == [Written(record("A", 0), True, {"id": 7})]


class _Telling:
    def __init__(self, result: Any) -> None:
        self._result = result

    def probe(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer]:
        return [ALREADY._replace(result=self._result) for _ in writes]


class Upper:
    """A serialiser of one's own."""

    name = "upper"

    def dumps(self, record: Any) -> bytes:
        return json.dumps(record).upper().encode()

    def loads(self, stored: bytes) -> Any:
        return json.loads(stored.lower())


def test_it_is_counted_by_the_names_that_all_share() -> None:
    """And a gauge says how many rows a pass found when it began."""
    scene = left_open(external(), record("A", 0), record("B", 1), applied=False)
    run(scene)
    names = ("rows_in_doubt", "in_doubt", "taken_over", "probed", "written", "ledger_finished")
    assert [scene.counts[name] for name in names] == [2] * 6


LEDGER = MemoryLedger("refusals")
USUAL: dict[str, Any] = {"scope": "orders", "key": Fields("id"), "occurrence": SourcePosition("s", "offset")}


def send(writes: Sequence[Write]) -> None:
    """Write nothing."""


@pytest.mark.parametrize(
    ("settings", "sink", "said"),
    [
        ({"ledger": LEDGER}, MemoryTable(LEDGER), "never in doubt"),
        (
            {"ledger": LEDGER, "observe": True, "rejected": "output", "redrive": "json", "on_replay": "write"},
            MemorySink(),
            "reconcile without it",
        ),
        ({}, MemorySink(drops_by_key=True), "has no ledger"),
        ({"ledger": LEDGER}, MemorySink(drops_by_key=True), "redrive='json'"),
        ({"ledger": LEDGER, "on_replay": "write"}, MemorySink(), "redrive='json'"),
        ({"ledger": LEDGER, "on_replay": "probe"}, CallableSink(send, name="mails"), "cannot be asked"),
    ],
)
def test_what_can_never_be_settled_is_refused_at_start(settings: dict[str, Any], sink: Any, said: str) -> None:
    """With one line that says why, and what to do."""
    with pytest.raises(Misconfigured, match=said):
        Reconciler(Gate(**USUAL, **settings), sink)

"""`Reconciler`: open rows that nobody brings again are settled by the same table as records."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from oncesink.connectors.callable_sink import CallableSink
from oncesink.connectors.contract import ALREADY, Answer, Write
from oncesink.connectors.errors import Misconfigured, Rejected, Unavailable
from oncesink.connectors.faults import Crash, Fault
from oncesink.connectors.memory import MemoryLedger
from oncesink.connectors.memory_sinks import MemorySink, MemoryTable
from oncesink.transforms import Batch, Duplicate, Fields, Gate, Json, Reconciled, Reconciler, SourcePosition, Written
from oncesink.transforms.retry import Immediately

from tests.unit.scene import ATTEMPTS, GRACE_SECONDS, LEASE_SECONDS, Scene, record

OVER_SECONDS = LEASE_SECONDS + GRACE_SECONDS + 1


def external(on_replay: str = "probe", *, redrive: Any = "json", kind: Any = "external", **settings: Any) -> Scene:
    if kind != "external":
        return Scene(kind, {"redrive": redrive, **settings})
    return Scene(kind, {"on_replay": on_replay, "parked": "output", "redrive": redrive, **settings})


def left_open(scene: Scene, *records: Any, applied: bool, over: bool = True) -> Scene:
    """Let a writer die in the sink's call, before or after it was applied; then let lease and grace go by."""
    scene.on("sink", "write", Fault.CRASH_AFTER if applied else Fault.CRASH_BEFORE)
    scene.dies(*records)
    if over:
        scene.clock.sleep(OVER_SECONDS)
    return scene


def reconciler(scene: Scene, **settings: Any) -> Reconciler:
    usual: dict[str, Any] = {"attempts": Immediately(ATTEMPTS), "metrics": scene.counts, "seed": 1}
    return Reconciler(scene.gate, scene.sink, clock=scene.clock, **{**usual, **settings})


def run(scene: Scene) -> Reconciled:
    with reconciler(scene) as one:
        return one.run()


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


class TestMany:
    """Pages, and several at work."""

    def test_pages_go_to_the_end_and_each_row_is_settled_once(self) -> None:
        """Rows that stay open do not stop it: the next page begins behind them."""
        scene = external(redrive=None, batch=Batch(rows=4))
        for number in range(5):
            left_open(scene, *[record(f"{number}-{n}", n) for n in range(4)], applied=number % 2 == 0, over=False)
        scene.clock.sleep(OVER_SECONDS)
        seen: list[int] = []
        with reconciler(scene) as one:
            assert one.overdue() == 20
            assert one.look() == {"write": 0, "probe": 20, "park": 0}
            found = one.run(lambda so_far: seen.append(so_far.listed))
        assert (found.listed, found.there, found.missing, len(found.keys)) == (20, 12, 8, 8)
        assert seen == [4, 8, 12, 16, 20]

    def test_of_two_that_list_the_same_rows_one_settles_each(self) -> None:
        """Compare-and-set decides; the other one counts them as settled elsewhere, and jumps."""
        scene = external(batch=Batch(rows=2))
        for number in range(10):
            left_open(scene, record(f"{number}", number), applied=False, over=False)
        scene.clock.sleep(OVER_SECONDS)
        rival = reconciler(scene, seed=2)
        rivals: list[Reconciled] = []
        scene.on("ledger", "take", lambda: rivals.append(rival.run()))
        found = run(scene)
        assert (rivals[0].written, rivals[0].elsewhere) == (10, 0)
        assert (found.written, found.elsewhere, found.listed) == (0, 2, 2)
        assert sorted(scene.written_keys) == [f"{number}" for number in range(10)]

    def test_what_was_left_to_one_that_died_is_found_in_the_same_pass(self) -> None:
        """Rows that were jumped over are looked at once more, as long as something is settled."""
        scene = external(batch=Batch(rows=1), lease=timedelta(seconds=11))
        for number in range(40):
            left_open(scene, record(f"{number}", number), applied=False, over=False)
            scene.clock.sleep(0.001)
        scene.clock.sleep(OVER_SECONDS)
        rival = reconciler(scene, seed=2)
        scene.on("ledger", "take", lambda: _dies_at_its_third_page(scene, rival))
        found = run(scene)
        assert found.elsewhere >= 1
        assert found.written + 2 >= 38
        scene.clock.sleep(OVER_SECONDS)
        run(scene)
        assert sorted(scene.written_keys) == sorted(f"{number}" for number in range(40))
        assert scene.open_rows == 0

    def test_a_live_writer_beside_it_is_not_disturbed(self) -> None:
        """Its claim has a lease that runs: the row is not listed, before it writes and before it finishes."""
        scene = external()
        found: list[Reconciled] = []
        scene.on("sink", "write", lambda: found.append(run(scene)))
        scene.on("ledger", "finish", lambda: found.append(run(scene)))
        assert scene.write(record("A", 0)).written
        assert found == [Reconciled(), Reconciled()]

    def test_a_writer_that_stood_still_loses_its_row_and_says_so(self) -> None:
        """Its finish is refused and counted; the effect is there once."""
        scene = external()

        def overtake() -> None:
            scene.clock.sleep(OVER_SECONDS)
            assert run(scene) == Reconciled(listed=1, there=1)

        scene.on("ledger", "finish", overtake)
        assert scene.write(record("A", 0)).written == [Written(record("A", 0))]
        assert (scene.counts["late_finishes"], scene.written_keys) == (1, ["A"])

    def test_a_reconciler_that_stood_still_is_refused_at_its_finish_and_counts_it(self) -> None:
        """Another one had asked, and found its write."""
        scene = left_open(external(), record("A", 0), applied=False)

        def overtake() -> None:
            scene.clock.sleep(OVER_SECONDS)
            assert run(scene) == Reconciled(listed=1, there=1)

        scene.on("ledger", "finish", overtake)
        assert run(scene) == Reconciled(listed=1, written=1, late_finishes=1)
        assert scene.written_keys == ["A"]

    @pytest.mark.parametrize("verb", ["take", "finish"])
    def test_a_row_that_is_released_under_its_feet(self, verb: str) -> None:
        """Before the take it is somebody else's; after it, the finish puts it back finished: its effect is there."""
        scene = left_open(external(), record("A", 0), applied=True)
        scene.on("ledger", verb, scene.store.rows.clear)
        found = run(scene)
        assert found == (Reconciled(listed=1, elsewhere=1) if verb == "take" else Reconciled(listed=1, there=1))
        again = scene.write(record("A", 0)).written
        assert again == [Written(record("A", 0), replayed=verb == "finish")]

    def test_a_record_that_is_claimed_anew_meanwhile_is_left_to_its_claimant(self) -> None:
        """A replay took the row over first: it writes, and the reconciler does not."""
        scene = left_open(external(), record("A", 0), applied=False)
        rival = scene.writer()
        scene.on("ledger", "take", lambda: rival.write([record("A", 0)]))
        assert run(scene) == Reconciled(listed=1, elsewhere=1)
        assert scene.written_keys == ["A"]


def _dies_at_its_third_page(scene: Scene, rival: Reconciler) -> None:
    scene.on("ledger", "take", None, None, Fault.CRASH_AFTER)
    with pytest.raises(Crash):
        rival.run()


CRASHES = [
    ("ledger", "open_rows"),
    ("ledger", "take"),
    ("sink", "probe"),
    ("sink", "write"),
    ("ledger", "finish"),
]


class TestDying:
    """It may die at any point, and another one goes on."""

    @pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
    @pytest.mark.parametrize(("part", "verb"), CRASHES)
    def test_a_crash_anywhere_is_made_good_by_the_next(self, part: Any, verb: str, fault: Fault) -> None:
        """Nothing is lost or written twice, whether the record had been written or not."""
        scene = left_open(external(), record("A", 0), record("B", 1), applied=True, over=False)
        left_open(scene, record("C", 2), record("D", 3), applied=False)
        scene.on(part, verb, fault)
        with pytest.raises(Crash), reconciler(scene) as one:
            one.run()
        scene.clock.sleep(OVER_SECONDS)
        run(scene)
        assert sorted(scene.written_keys) == ["A", "B", "C", "D"]
        assert scene.open_rows == 0
        results = scene.write(*[record(key, at) for at, key in enumerate("ABCD")])
        assert all(each.replayed for each in results.written)
        assert len(results.written) == 4

    @pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.LOSE_REQUEST, Fault.REFUSE])
    @pytest.mark.parametrize("verb", ["open_rows", "count_open", "take", "finish"])
    def test_a_lost_answer_of_the_ledger_is_asked_for_again(self, verb: str, fault: Fault) -> None:
        """Under the same owner."""
        scene = left_open(external(), record("A", 0), applied=False)
        scene.on("ledger", verb, fault)
        assert run(scene) == Reconciled(listed=1, written=1)
        assert scene.written_keys == ["A"]

    @pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.LOSE_REQUEST])
    def test_a_lost_answer_of_the_sink_leaves_it_in_doubt(self, fault: Fault) -> None:
        """The next pass, when the new lease is over, asks."""
        scene = left_open(external(), record("A", 0), applied=False)
        scene.on("sink", "write", fault)
        assert run(scene) == Reconciled(listed=1, in_doubt=1)
        assert run(scene) == Reconciled()
        scene.clock.sleep(OVER_SECONDS)
        found = run(scene)
        assert (found.there, found.written) == ((1, 0) if fault is Fault.LOSE_REPLY else (0, 1))
        assert scene.written_keys == ["A"]

    def test_a_probe_that_fails_is_told_and_other_pages_go_on(self) -> None:
        """Its rows come up again at a later pass."""
        scene = external(batch=Batch(rows=1))
        for number in range(3):
            left_open(scene, record(f"{number}", number), applied=True, over=False)
        scene.clock.sleep(OVER_SECONDS)
        scene.on("sink", "probe", *[Fault.REFUSE] * ATTEMPTS)
        found = run(scene)
        assert (found.there, found.troubled, found.clean) == (2, 1, False)
        assert "scripted fault" in found.trouble
        scene.clock.sleep(OVER_SECONDS)
        assert run(scene) == Reconciled(listed=1, there=1)

    def test_a_sink_that_is_away_does_not_keep_it_busy_for_ever(self) -> None:
        """After three pages it gives the pass up."""
        scene = external(batch=Batch(rows=1))
        for number in range(9):
            left_open(scene, record(f"{number}", number), applied=True, over=False)
        scene.clock.sleep(OVER_SECONDS)
        scene.on("sink", "probe", *[Fault.REFUSE] * 99)
        assert run(scene).listed == 3

    def test_a_ledger_that_is_away_is_raised(self) -> None:
        """There is nothing to report of."""
        scene = left_open(external(), record("A", 0), applied=True)
        scene.on("ledger", "count_open", *[Fault.REFUSE] * ATTEMPTS)
        with pytest.raises(Unavailable):
            run(scene)


LEDGER = MemoryLedger("refusals")
USUAL: dict[str, Any] = {"scope": "orders", "key": Fields("id"), "occurrence": SourcePosition("s", "offset")}


def send(writes: Sequence[Write]) -> None:
    """Write nothing."""


@pytest.mark.parametrize(
    ("settings", "sink", "said"),
    [
        ({"ledger": LEDGER}, MemoryTable(LEDGER), "never in doubt"),
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


Maker = Callable[[], Any]


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
            Gate(**USUAL, ledger=LEDGER, redrive=serialiser)

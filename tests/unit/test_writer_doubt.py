"""Records in doubt: an earlier attempt may have written them. They wait for the lease, then `on_replay` decides."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from oncesink.connectors.clock import ManualClock
from oncesink.connectors.errors import InDoubt, OutcomeUnknown, Unavailable
from oncesink.connectors.faults import Fault
from oncesink.transforms import Batch, Duplicate, Written

from tests.unit.scene import ATTEMPTS, GRACE_SECONDS, LEASE_SECONDS, Kind, Scene, keys, places, record

WAIT_SECONDS = LEASE_SECONDS + GRACE_SECONDS
LONGEST_SECONDS = WAIT_SECONDS + 3
"""Lease, grace, and the pauses between two looks."""

APPLIED = pytest.mark.parametrize("applied", [True, False], ids=["applied", "not applied"])


def external(on_replay: str = "probe", **settings: Any) -> Scene:
    return Scene("external", {"on_replay": on_replay, "parked": "output", **settings})


def crashed(scene: Scene, applied: bool, *records: Any) -> Scene:
    """Let a writer die in the sink's call, before or after it was applied."""
    scene.on("sink", "write", Fault.CRASH_AFTER if applied else Fault.CRASH_BEFORE)
    scene.dies(*records or [record("A", 0)])
    return scene


class TestMine:
    """The replay of the delivery that had claimed the key."""

    @APPLIED
    def test_write_writes_again_after_the_lease(self, applied: bool) -> None:
        """Perhaps a second time: that is what was chosen. Never while the first attempt may still be alive."""
        scene = crashed(external("write"), applied)
        results = scene.write(record("A", 0))
        assert results.written == [Written(record("A", 0))]
        assert scene.written_keys == ["A", "A"] if applied else ["A"]
        assert WAIT_SECONDS < scene.clock.now < LONGEST_SECONDS
        assert scene.counts["taken_over"] == 1

    @APPLIED
    def test_probe_asks_the_sink_and_writes_only_what_is_not_there(self, applied: bool) -> None:
        """Once in any case; found, it is the replay of an earlier attempt."""
        scene = crashed(external("probe"), applied)
        results = scene.write(record("A", 0))
        assert results.written == [Written(record("A", 0), replayed=applied)]
        assert scene.written_keys == ["A"]
        assert WAIT_SECONDS < scene.clock.now < LONGEST_SECONDS
        assert (scene.counts["probed"], scene.open_rows) == (1, 0)

    @APPLIED
    def test_park_leaves_it_to_a_person(self, applied: bool) -> None:
        """Not written again, and the row stays as the first attempt left it, on every replay."""
        scene = crashed(external("park"), applied)
        rows = dict(scene.store.rows)
        for _ in range(2):
            assert places(scene.writer().write([record("A", 0)]).parked) == [("A", 0)]
        assert scene.written_keys == ["A"] * applied
        assert scene.store.rows == rows

    @APPLIED
    def test_a_sink_that_drops_by_key_is_not_waited_for(self, applied: bool) -> None:
        """A second call is harmless: it goes on at once, and the sink says whether it had been there."""
        scene = crashed(Scene("drops_by_key"), applied)
        assert scene.write(record("A", 0)).written == [Written(record("A", 0), replayed=applied)]
        assert scene.written_keys == ["A"]
        assert scene.clock.now == 0.0

    def test_once_the_sink_may_have_forgotten_it_is_like_any_other(self) -> None:
        """It is waited for, and `on_replay` decides."""
        limits: dict[str, Any] = {"remembers": timedelta(seconds=100)}
        scene = crashed(Scene("drops_by_key", {"on_replay": "park", "parked": "output"}, limits), True)
        scene.clock.sleep(70.0)
        assert scene.writer().write([record("A", 0)]).written[0].replayed, "70 s and the lease fit into 100 s"
        scene = crashed(Scene("drops_by_key", {"on_replay": "park", "parked": "output"}, limits), True)
        scene.clock.sleep(71.0)
        assert keys(scene.write(record("A", 0)).parked) == ["A"]


class TestAnothers:
    """A second send meets the open row of the first."""

    @APPLIED
    def test_probe_finishes_it_for_the_occurrence_that_had_claimed_it(self, applied: bool) -> None:
        """Found: the prober is its duplicate, and the first one's replay is told so. Not found: the prober writes."""
        scene = crashed(external("probe"), applied)
        second = scene.write(record("A", 1))
        first = scene.write(record("A", 0))
        assert scene.written_keys == ["A"]
        if applied:
            assert second.duplicates == [Duplicate(record("A", 1))]
            assert first.written == [Written(record("A", 0), replayed=True)]
        else:
            assert second.written == [Written(record("A", 1))]
            assert first.duplicates == [Duplicate(record("A", 0))]
        assert [row.claim.occurrence for row in scene.store.rows.values()] == [b"l2:s1:si%d;" % (not applied)]

    def test_write_takes_the_row_over_in_its_own_name(self) -> None:
        """From then on the first is the duplicate."""
        scene = crashed(external("write"), False)
        assert scene.write(record("A", 1)).written == [Written(record("A", 1))]
        assert scene.write(record("A", 0)).duplicates == [Duplicate(record("A", 0))]

    def test_park_changes_nothing(self) -> None:
        """The row still names the first."""
        scene = crashed(external("park"), True)
        rows = dict(scene.store.rows)
        assert places(scene.write(record("A", 1)).parked) == [("A", 1)]
        assert scene.store.rows == rows

    def test_it_waits_for_the_lease_even_where_the_sink_drops_by_key(self) -> None:
        """Somebody else may be at it."""
        scene = crashed(Scene("drops_by_key"), True)
        scene.write(record("A", 1))
        assert scene.clock.now > WAIT_SECONDS
        assert scene.written_keys == ["A"]

    def test_another_content_is_a_conflict_with_what_is_found(self) -> None:
        """The probe finishes the row with the first one's hash."""
        scene = crashed(external("probe"), True, record("A", 0, n=1))
        assert scene.write(record("A", 1, n=2)).rejected[0].reason == "conflict"
        assert scene.write(record("A", 2, n=1)).duplicates

    def test_a_probe_of_one_does_not_hold_up_the_rest(self) -> None:
        """What is not in doubt is written before anybody waits."""
        scene = crashed(external("probe"), True)
        seen: list[float] = []
        scene.on("sink", "write", lambda: seen.append(scene.clock.now))
        results = scene.write(record("A", 1), record("B", 2), record("C", 3))
        assert seen == [0.0]
        assert (keys(results.written), keys(results.duplicates)) == (["B", "C"], ["A"])


class TestLostReply:
    """The sink's answer did not arrive, and the process lives."""

    @pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.LOSE_REQUEST, Fault.HANG, Fault.HANG_APPLIED])
    def test_probe_resolves_it(self, fault: Fault) -> None:
        """After the lease: the call may still be under way."""
        scene = external("probe").on("sink", "write", fault)
        applied = fault in (Fault.LOSE_REPLY, Fault.HANG_APPLIED)
        assert scene.write(record("A")).written == [Written(record("A"), replayed=applied)]
        assert scene.written_keys == ["A"]
        assert scene.clock.now > WAIT_SECONDS

    def test_a_call_that_arrives_late_arrives_within_the_grace(self) -> None:
        """The probe is asked only when it can have arrived."""
        scene = external("probe").on("sink", "write", Fault.ARRIVE_LATE)
        scene.on("sink", "probe", lambda: pytest.fail("too early") if scene.clock.now <= WAIT_SECONDS else None)
        scene.on("ledger", "take", scene.faults.deliver)
        assert scene.write(record("A")).written == [Written(record("A"), replayed=True)]
        assert scene.written_keys == ["A"]

    @pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.LOSE_REQUEST])
    def test_a_sink_that_drops_by_key_is_asked_again_at_once(self, fault: Fault) -> None:
        """Within the same flush; what was there already is told as replayed."""
        scene = Scene("drops_by_key").on("sink", "write", fault)
        results = scene.write(record("A"), record("B", 1))
        assert [out.replayed for out in results.written] == [fault is Fault.LOSE_REPLY] * 2
        assert scene.written_keys == ["A", "B"]
        assert (scene.clock.now, scene.counts["retries"]) == (0.0, 1)

    def test_its_bounds_are_those_of_every_call(self) -> None:
        """Then it is raised, and the repeat goes on at once."""
        scene = Scene("drops_by_key").on("sink", "write", Fault.LOSE_REPLY, *[Fault.LOSE_REQUEST] * (ATTEMPTS - 1))
        with pytest.raises(OutcomeUnknown):
            scene.write(record("A"))
        assert scene.write(record("A")).written == [Written(record("A"), replayed=True)]
        assert scene.clock.now == 0.0


class TestInDoubt:
    """What stays in doubt to the end is raised, with everything that is certain."""

    def test_it_carries_the_results_and_its_cause(self) -> None:
        """The sink's own error; writing the same records again asks once more."""
        scene = external("write", batch=Batch(rows=2))
        scene.on("sink", "write", None, Fault.LOSE_REQUEST, Fault.LOSE_REQUEST)
        everything = [record(key, place) for place, key in enumerate("ABCDE")]
        with pytest.raises(InDoubt, match="2 records are still in doubt") as caught:
            scene.write(*everything)
        assert keys(caught.value.results.written) == ["A", "B"]
        assert isinstance(caught.value.__cause__, OutcomeUnknown)
        assert scene.clock.now < 2 * LONGEST_SECONDS
        results = scene.write(*everything)
        assert {out.record["id"]: out.replayed for out in results.written} == {
            "A": True, "B": True, "C": False, "D": False, "E": False,
        }  # fmt: skip
        assert sorted(scene.written_keys) == ["A", "B", "C", "D", "E"]

    def test_it_waits_no_longer_than_lease_and_grace(self) -> None:
        """Another worker that renews its lease again and again is not waited for without end."""
        scene = crashed(external("probe"), True)
        (digest,) = scene.store.rows

        def renew() -> None:
            row = scene.store.rows[digest]
            scene.store.rows[digest] = row._replace(lease_until=scene.clock.now + LEASE_SECONDS)

        scene.on("ledger", "claim", *[renew] * 200)
        with pytest.raises(InDoubt, match=digest.hex()):
            scene.write(record("A", 1))
        assert WAIT_SECONDS < scene.clock.now < LONGEST_SECONDS

    def test_a_holder_that_finishes_early_is_seen_early(self) -> None:
        """The row is looked at every now and then; nobody waits for a lease that is not needed."""
        clock = _Ticking()
        scene = Scene("external", clock=clock)
        crashed(scene, True)
        (digest,) = scene.store.rows

        def finish() -> None:
            row = scene.store.rows[digest]
            scene.store.rows[digest] = row._replace(finished=True, lease_until=None)

        clock.at(5.0, finish)
        assert scene.write(record("A", 1)).duplicates
        assert 5.0 <= scene.clock.now < 7.0

    def test_nothing_is_held_while_it_waits(self) -> None:
        """No open row of the waiting writer, no transaction."""
        clock = _Ticking()
        scene = Scene("external", clock=clock)
        crashed(scene, True)
        rows = dict(scene.store.rows)
        seen: list[dict[bytes, Any]] = []
        clock.at(1.0, lambda: seen.append(dict(scene.store.rows)))
        scene.write(record("A", 1))
        assert seen == [rows]


class _Ticking(ManualClock):
    """A clock with an appointment."""

    def at(self, due: float, action: Any) -> None:
        self.due, self.action = due, action

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        action = getattr(self, "action", None)
        if action is not None and self.now >= self.due:
            self.action = None
            action()


class TestTakeOver:
    """Compare-and-set on owner and lease: of two, one goes on."""

    @pytest.mark.parametrize("on_replay", ["write", "probe"])
    def test_of_two_that_take_over_one_writes(self, on_replay: str) -> None:
        """The loser asks again, and sees what the winner made of it."""
        scene = crashed(external(on_replay), False)
        scene.clock.sleep(WAIT_SECONDS + 1)
        rival = scene.writer()
        scene.on("ledger", "take", lambda: rival.write([record("A", 1)]))
        assert scene.write(record("A", 0)).duplicates == [Duplicate(record("A", 0))]
        assert [effect.record["offset"] for effect in scene.effects] == [1]

    @pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.LOSE_REQUEST])
    def test_a_lost_reply_to_a_take_is_answered_by_repeating_it(self, fault: Fault) -> None:
        """Under the same owner it finds that it has it."""
        scene = crashed(external("probe"), False).on("ledger", "take", fault)
        assert scene.write(record("A", 0)).written == [Written(record("A", 0))]
        assert scene.written_keys == ["A"]

    @pytest.mark.parametrize("on_replay", ["write", "probe"])
    def test_what_was_taken_and_not_sent_is_given_back_at_once(self, on_replay: str) -> None:
        """A sink that is away leaves a row in doubt as it was: whoever comes next need not wait for a lease again."""
        scene = crashed(external(on_replay), False)
        scene.clock.sleep(WAIT_SECONDS + 1)
        scene.on("sink", "write", *[Fault.REFUSE] * ATTEMPTS)
        with pytest.raises(Unavailable):
            scene.writer().write([record("A", 0)])
        before = scene.clock.now
        assert scene.write(record("A", 1)).written == [Written(record("A", 1))]
        assert scene.clock.now == before
        assert scene.written_keys == ["A"]
        assert scene.counts["released"] == 1

    def test_a_probe_that_fails_gives_the_row_back(self) -> None:
        """No call was made for it."""
        scene = crashed(external("probe"), True)
        scene.clock.sleep(WAIT_SECONDS + 1)
        scene.on("sink", "probe", *[Fault.REFUSE] * ATTEMPTS)
        with pytest.raises(Unavailable):
            scene.writer().write([record("A", 0)])
        before = scene.clock.now
        assert scene.write(record("A", 0)).written == [Written(record("A", 0), replayed=True)]
        assert (scene.clock.now, scene.written_keys) == (before, ["A"])

    def test_a_row_that_was_sent_is_not_given_back(self) -> None:
        """The call may still be applied: its lease has to run out."""
        scene = crashed(external("probe"), False)
        scene.clock.sleep(WAIT_SECONDS + 1)
        scene.on("sink", "write", Fault.LOSE_REQUEST)
        before = scene.clock.now
        assert scene.write(record("A", 0)).written == [Written(record("A", 0))]
        assert scene.clock.now - before > WAIT_SECONDS
        assert scene.written_keys == ["A"]

    def test_a_row_that_cannot_be_given_back_waits_for_its_lease(self) -> None:
        """The ledger is away as well: nothing is lost but time."""
        scene = crashed(external("write"), False)
        scene.clock.sleep(WAIT_SECONDS + 1)
        scene.on("sink", "write", *[Fault.REFUSE] * ATTEMPTS)
        scene.on("ledger", "take", None, *[Fault.REFUSE] * ATTEMPTS)
        before = scene.clock.now
        assert scene.write(record("A", 0)).written == [Written(record("A", 0))]
        assert scene.clock.now - before > WAIT_SECONDS
        assert scene.written_keys == ["A"]

    def test_a_finish_that_comes_too_late_is_counted_and_still_written(self) -> None:
        """Another one took the row meanwhile: the effect is there, and its holder reports it."""
        scene = external("probe")
        rival = scene.writer()

        def overtake() -> None:
            scene.clock.sleep(WAIT_SECONDS + 1)
            assert rival.write([record("A", 1)]).duplicates

        scene.on("ledger", "finish", overtake)
        assert scene.write(record("A", 0)).written == [Written(record("A", 0))]
        assert scene.counts["late_finishes"] == 1
        assert scene.written_keys == ["A"]

    def test_a_late_finish_does_not_enter_the_cache(self) -> None:
        """The row bears the occurrence of the one that took it: an entry that says otherwise would drop its replay."""
        scene = external("write")
        scene.settings["cache"] = scene.cache
        rival = scene.writer()

        def overtake() -> None:
            scene.clock.sleep(WAIT_SECONDS + 1)
            assert rival.write([record("A", 1)]).written

        scene.on("ledger", "finish", overtake)
        assert scene.write(record("A", 0)).written
        assert scene.write(record("A", 1)).written == [Written(record("A", 1), replayed=True)]

    def test_a_row_that_went_is_inserted_finished(self) -> None:
        """Purged, evicted or restored away: the next one must find that it was done."""
        scene = external("probe")
        scene.on("ledger", "finish", scene.store.rows.clear)
        assert scene.write(record("A", 0)).written == [Written(record("A", 0))]
        assert scene.write(record("A", 1)).duplicates == [Duplicate(record("A", 1))]

    def test_a_finish_that_fails_leaves_the_record_in_doubt(self) -> None:
        """The ledger was away for longer than the retries: raised; the replay waits, probes, finds."""
        scene = external("probe").on("ledger", "finish", *[Fault.REFUSE] * ATTEMPTS)
        with pytest.raises(Unavailable) as caught:
            scene.write(record("A", 0))
        assert len(caught.value.results) == 0, "nothing is certain until it is finished"
        assert scene.write(record("A", 0)).written == [Written(record("A", 0), replayed=True)]
        assert scene.written_keys == ["A"]


class TestProbeTrouble:
    """The sink cannot be asked just now."""

    def test_what_is_new_is_written_all_the_same(self) -> None:
        """Claims beside the one in doubt are written and finished before anything is raised."""
        scene = crashed(external("probe"), True)
        scene.clock.sleep(WAIT_SECONDS + 1)
        scene.on("sink", "probe", *[Fault.REFUSE] * ATTEMPTS)
        with pytest.raises(Unavailable) as caught:
            scene.write(record("A", 0), record("B", 1))
        assert keys(caught.value.results.written) == ["B"]
        assert scene.open_rows == 1
        results = scene.write(record("A", 0), record("B", 1))
        assert [(out.record["id"], out.replayed) for out in results.written] == [("B", True), ("A", True)]
        assert scene.written_keys == ["A", "B"]

    def test_a_trouble_that_passes_is_repeated(self) -> None:
        """Asking is harmless."""
        scene = crashed(external("probe"), True).on("sink", "probe", Fault.LOSE_REPLY)
        assert scene.write(record("A", 0)).written[0].replayed

    def test_a_crash_after_the_probe_changes_nothing(self) -> None:
        """The next one asks again, after the prober's lease."""
        scene = crashed(external("probe"), True).on("ledger", "finish", Fault.CRASH_BEFORE)
        scene.clock.sleep(WAIT_SECONDS + 1)
        scene.dies(record("A", 1))
        assert scene.write(record("A", 0)).written == [Written(record("A", 0), replayed=True)]
        assert scene.written_keys == ["A"]


@pytest.mark.parametrize("kind", ["drops_by_key", "external"])
@pytest.mark.parametrize("verb", ["claim", "finish"])
@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
def test_a_crash_at_any_ledger_call_is_made_good_by_the_replay(kind: Kind, verb: str, fault: Fault) -> None:
    """One effect, reported once, whoever died where."""
    scene = Scene(kind).on("ledger", verb, fault)
    scene.dies(record("A"), record("B", 1))
    results = scene.write(record("A"), record("B", 1))
    assert len(results.written) == 2
    assert scene.written_keys == ["A", "B"]
    assert scene.open_rows == 0

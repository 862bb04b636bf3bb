"""A reconciler beside other reconcilers, live writers and replays, and one that dies."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from oncesink.connectors.errors import Unavailable
from oncesink.connectors.faults import Crash, Fault
from oncesink.transforms import Batch, Reconciled, Reconciler, Written

from tests.unit.doubt_scene import OVER_SECONDS, external, left_open, reconciler, run
from tests.unit.scene import ATTEMPTS, LEASE_SECONDS, Scene, record


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
        assert (found.listed, found.there, found.troubled, found.clean) == (3, 2, 1, False)
        assert "scripted fault" in found.trouble
        scene.clock.sleep(OVER_SECONDS)
        assert run(scene) == Reconciled(listed=1, there=1)

    def test_a_sink_that_is_too_slow_for_any_row_ends_the_pass(self) -> None:
        """They stay in doubt under the new lease: three pages of that are enough."""
        scene = external("write", batch=Batch(rows=1))
        for number in range(9):
            left_open(scene, record(f"{number}", number), applied=False, over=False)
        scene.clock.sleep(OVER_SECONDS)
        scene.on("ledger", "take", *[lambda: scene.clock.sleep(LEASE_SECONDS)] * 99)
        found = run(scene)
        assert (found.listed, found.in_doubt, found.elsewhere) == (3, 3, 0)
        assert scene.open_rows == 9

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

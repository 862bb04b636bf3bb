"""The state machine is worth something: a gate that is broken on purpose is caught by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from oncesink.connectors.contract import Claim, Entry, Finish, Use
from oncesink.transforms import Duplicate, Reconciled, Reconciler, way_claimed, way_drop, way_unit
from oncesink.transforms.decide import Rules, Verdict, decide
from oncesink.transforms.groups import Group
from oncesink.transforms.settle import Settlement
from oncesink.transforms.way_claimed import ClaimedWay
from oncesink.transforms.way_unit import UnitWay

from .test_gate_machine import GateMachine

Break = Callable[[pytest.MonkeyPatch], None]


def everywhere(patch: pytest.MonkeyPatch, broken: Any) -> None:
    for module in (way_claimed, way_drop, way_unit):
        patch.setattr(module, "decide", broken)


def no_occurrence_comparison(patch: pytest.MonkeyPatch) -> None:
    everywhere(patch, lambda row, claim, owner, rules: decide(row, claim._replace(occurrence=b"?"), owner, rules))


def open_row_is_a_duplicate(patch: pytest.MonkeyPatch) -> None:
    def broken(row: Any, claim: Any, owner: bytes, rules: Rules) -> Verdict:
        verdict = decide(row, claim, owner, rules)
        return Verdict.DUPLICATE if verdict is Verdict.WAIT else verdict

    everywhere(patch, broken)


def replay_at_once_into_any_sink(patch: pytest.MonkeyPatch) -> None:
    def broken(row: Any, claim: Any, owner: bytes, rules: Rules) -> Verdict:
        verdict = decide(row, claim, owner, rules)
        mine = claim.occurrence == row.occurrence
        return Verdict.IN_DOUBT if verdict is Verdict.WAIT and mine and rules.use is Use.WRITE else verdict

    everywhere(patch, broken)


def take_over_without_on_replay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Rules, "replay", lambda self, row: "write")


def finish_before_write(patch: pytest.MonkeyPatch) -> None:
    right = ClaimedWay._claim

    def broken(self: Any, groups: Any, now: Any) -> None:
        right(self, groups, now)
        finishes = [Finish(each.leader.claim) for each in now.write]
        self._ledger.finish(finishes, owner=now.owner)

    patch.setattr(ClaimedWay, "_claim", broken)


def cache_filled_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    right = UnitWay._attempt

    def broken(self: Any, groups: Any, owners: Any) -> Any:
        claims = [each.leader.claim for each in groups]
        self._kit.memory.keep({c.digest: Entry(c.occurrence, c.payload_hash, None) for c in claims}, None)
        return right(self, groups, owners)

    patch.setattr(UnitWay, "_attempt", broken)


def first_of_a_batch_speaks_for_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Group, "lead_by", lambda self, occurrence: None)


def release_after_doubt(patch: pytest.MonkeyPatch) -> None:
    right = ClaimedWay._put_off

    def broken(self: Any, free: Any, held: Any, sent: Any, now: Any) -> None:
        self._ledger.release([each.digest for each in sent.unknown], owner=now.owner)
        right(self, free, held, sent, now)

    patch.setattr(ClaimedWay, "_put_off", broken)


def refused_leader_takes_all_with_it(patch: pytest.MonkeyPatch) -> None:
    right = Settlement.rejected

    def broken(self: Any, group: Any, reason: Any, detail: str) -> None:
        right(self, group, reason, detail)
        for again in self.again:
            for item in (again.leader, *again.others):
                self.settled.append((item, Duplicate(item.record)))
        self.again.clear()

    patch.setattr(Settlement, "rejected", broken)


def reconciler_finishes_without_asking(patch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, rows: Any) -> Reconciled:
        for row in rows:
            self._session.ledger.finish([Finish(Claim(row.digest, row.occurrence, row.payload_hash))], owner=row.owner)
        return Reconciled(listed=len(rows))

    patch.setattr(Reconciler, "_settle", broken)


BROKEN: list[Break] = [
    reconciler_finishes_without_asking,
    no_occurrence_comparison,
    open_row_is_a_duplicate,
    replay_at_once_into_any_sink,
    take_over_without_on_replay,
    finish_before_write,
    cache_filled_before_the_commit,
    first_of_a_batch_speaks_for_all,
    release_after_doubt,
    refused_leader_takes_all_with_it,
]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda each: each.__name__)
def test_a_broken_gate_is_caught(broken: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these faults has been shipped by somebody; the state machine finds every one."""
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            GateMachine,
            settings=settings(
                max_examples=5000,
                stateful_step_count=40,
                deadline=None,
                phases=[Phase.generate],
                database=None,
                derandomize=True,
                suppress_health_check=list(HealthCheck),
            ),
        )

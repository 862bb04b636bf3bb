"""The decision table, cell by cell: what the row of a key means for one record."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oncesink.connectors.contract import Claim, Entry, Row, SinkKind, Use
from oncesink.transforms.decide import Rules, Verdict, conflicts, decide
from oncesink.transforms.groups import Group
from oncesink.transforms.prepare import Item
from oncesink.transforms.results import Duplicate
from oncesink.transforms.settle import Settlement

DIGEST = bytes(16)
HERE, THERE = b"topic/0/1", b"topic/0/2"
ME, OTHER = b"m" * 16, b"o" * 16
GRACE_SECONDS = 10.0
SAME, CHANGED = b"1" * 16, b"2" * 16

EXTERNAL = Rules(use=Use.WRITE, on_replay="write", grace_seconds=GRACE_SECONDS)
DROPS = Rules(use=Use.WRITE, kind=SinkKind.DROPS_BY_KEY, grace_seconds=GRACE_SECONDS)
FORGETS = Rules(
    use=Use.WRITE, kind=SinkKind.DROPS_BY_KEY, on_replay="park", lease_seconds=30.0, remembers_seconds=100.0
)
UNIT = Rules(use=Use.WRITE, kind=SinkKind.TRANSACTIONAL)
FILTER = Rules(use=Use.DROP)

RUNNING, LAST_MOMENT, OVER = 5.0, -GRACE_SECONDS, -GRACE_SECONDS - 0.001


def row(
    *,
    finished: bool = False,
    occurrence: bytes | None = HERE,
    owner: bytes = OTHER,
    left: float = 0.0,
    payload_hash: bytes | None = SAME,
    age: float = 0.0,
) -> Row:
    lease_until = None if finished else 1
    return Row(DIGEST, finished, occurrence, owner, payload_hash, None, lease_until, 0.0 if finished else left, age)


def record(occurrence: bytes | None = HERE, payload_hash: bytes | None = SAME) -> Claim:
    return Claim(DIGEST, occurrence, payload_hash)


W, C, R, D, X, A, Q = (
    Verdict.WRITE,
    Verdict.CONFIRMED,
    Verdict.REPLAYED,
    Verdict.DUPLICATE,
    Verdict.CONFLICT,
    Verdict.WAIT,
    Verdict.IN_DOUBT,
)

TABLE: dict[str, tuple[Row, Claim, dict[str, Verdict]]] = {
    # This record's own claim of this flush, no call made for it yet.
    "own claim": (row(owner=ME, left=RUNNING), record(), {"external": W, "drops": W, "forgets": W}),
    "own claim, late": (row(owner=ME, left=OVER), record(), {"external": W, "drops": W, "forgets": W}),
    "own claim without occurrence": (row(owner=ME, occurrence=None), record(None), {"external": W, "drops": W}),
    # Finished under this flush's owner: a reply was lost.
    "own finish": (row(finished=True, owner=ME), record(), {"external": C, "drops": C, "unit": C}),
    "own finish without occurrence": (row(finished=True, owner=ME, occurrence=None), record(None), {"unit": C}),
    # Mine, finished: the engine may have thrown the first output away.
    "replay": (row(finished=True), record(), {"external": R, "drops": R, "forgets": R, "unit": R}),
    "replay with another content": (row(finished=True), record(payload_hash=CHANGED), {"external": R, "unit": R}),
    # Another's, finished.
    "second send": (row(finished=True), record(THERE), {"external": D, "drops": D, "forgets": D, "unit": D}),
    "second send, other content": (row(finished=True), record(THERE, CHANGED), {"external": X, "drops": X, "unit": X}),
    "second send, content unknown": (row(finished=True, payload_hash=None), record(THERE), {"external": D, "unit": D}),
    "second send, content not told": (row(finished=True), record(THERE, None), {"external": D, "unit": D}),
    "no occurrence against one": (row(finished=True), record(None), {"external": D, "unit": D}),
    "one against no occurrence": (row(finished=True, occurrence=None), record(), {"external": D, "unit": D}),
    "none against none": (row(finished=True, occurrence=None), record(None), {"external": D, "unit": D}),
    # In doubt, lease running: wait, unless it is mine and the sink drops by key.
    "mine, running": (row(left=RUNNING), record(), {"external": A, "drops": Q, "forgets": Q}),
    "another's, running": (row(left=RUNNING), record(THERE), {"external": A, "drops": A, "forgets": A}),
    "mine, in its grace": (row(left=LAST_MOMENT), record(), {"external": A, "drops": Q}),
    "another's, in its grace": (row(left=LAST_MOMENT), record(THERE), {"external": A, "drops": A}),
    "no occurrence, running": (row(left=RUNNING, occurrence=None), record(None), {"external": A, "drops": A}),
    "mine, running, forgotten": (row(left=RUNNING, age=70.001), record(), {"external": A, "drops": Q, "forgets": A}),
    "mine, running, not yet forgotten": (row(left=RUNNING, age=70.0), record(), {"drops": Q, "forgets": Q}),
    # In doubt, lease over.
    "mine, over": (row(left=OVER), record(), {"external": Q, "drops": Q, "forgets": Q}),
    "another's, over": (row(left=OVER), record(THERE), {"external": Q, "drops": Q, "forgets": Q}),
    "no occurrence, over": (row(left=OVER, occurrence=None), record(None), {"external": Q, "drops": Q}),
    "another's, over, other content": (row(left=OVER), record(THERE, CHANGED), {"external": Q, "drops": Q}),
}
RULES = {"external": EXTERNAL, "drops": DROPS, "forgets": FORGETS, "unit": UNIT}


@pytest.mark.parametrize("cell", TABLE)
def test_each_cell_for_writers(cell: str) -> None:
    """The row, the record, and what every kind of sink makes of them."""
    found, claim, expected = TABLE[cell]
    assert {kind: decide(found, claim, ME, RULES[kind]) for kind in expected} == expected


@pytest.mark.parametrize(
    ("found", "claim", "expected"),
    [
        (row(finished=True), record(), Verdict.PASS),
        (row(finished=True), record(payload_hash=CHANGED), Verdict.PASS),
        (row(finished=True, owner=ME), record(), Verdict.PASS),
        (row(finished=True, owner=ME, occurrence=None), record(None), Verdict.PASS),
        (row(finished=True), record(THERE), Verdict.DUPLICATE),
        (row(finished=True), record(THERE, CHANGED), Verdict.DUPLICATE),
        (row(finished=True, occurrence=None), record(), Verdict.DUPLICATE),
    ],
    ids=[
        "replay",
        "replay, other content",
        "own",
        "own without occurrence",
        "second send",
        "second send, other content",
        "unknown occurrence",
    ],
)
def test_each_cell_for_filters(found: Row, claim: Claim, expected: Verdict) -> None:
    """The claiming occurrence passes, also when it is replayed; all others are duplicates."""
    assert decide(found, claim, ME, FILTER) is expected


occurrences = st.sampled_from([HERE, THERE, None])
rows = st.builds(
    row,
    finished=st.booleans(),
    occurrence=occurrences,
    owner=st.sampled_from([ME, OTHER]),
    left=st.floats(-60, 60),
    payload_hash=st.sampled_from([SAME, CHANGED, None]),
    age=st.floats(0, 200),
)
claims = st.builds(record, occurrences, st.sampled_from([SAME, CHANGED, None]))
rules = st.sampled_from([EXTERNAL, DROPS, FORGETS, UNIT])


@given(rows, claims, rules)
def test_the_same_occurrence_is_never_dropped(found: Row, claim: Claim, rules: Rules) -> None:
    """Whatever happened before: a replay is written, waited for, or reported as written."""
    mine = claim.occurrence is not None and claim.occurrence == found.occurrence
    verdict = decide(found, claim, ME, rules)
    assert not (mine and verdict in (Verdict.DUPLICATE, Verdict.CONFLICT))


@given(rows, claims, rules)
def test_nobody_writes_under_another_owner(found: Row, claim: Claim, rules: Rules) -> None:
    """Only a claim of this very flush is written at once; a finished row never is."""
    if decide(found, claim, ME, rules) is Verdict.WRITE:
        assert found.owner == ME
        assert not found.finished


@given(rows, claims, rules)
def test_a_running_lease_is_respected(found: Row, claim: Claim, rules: Rules) -> None:
    """A replay does not prove that the earlier attempt is dead: only a harmless second write goes on at once."""
    if decide(found, claim, ME, rules) is Verdict.IN_DOUBT and found.lease_left_seconds >= -GRACE_SECONDS:
        assert claim.occurrence == found.occurrence is not None
        assert rules.kind is SinkKind.DROPS_BY_KEY


@pytest.mark.parametrize(
    ("kind", "remembers", "age", "drops"),
    [
        (SinkKind.EXTERNAL, None, 0.0, False),
        (SinkKind.TRANSACTIONAL, None, 0.0, False),
        (SinkKind.DROPS_BY_KEY, None, 1e9, True),
        (SinkKind.DROPS_BY_KEY, 100.0, 70.0, True),
        (SinkKind.DROPS_BY_KEY, 100.0, 70.001, False),
        (SinkKind.DROPS_BY_KEY, 30.0, 0.0, True),
    ],
)
def test_a_sink_drops_a_second_write_while_it_surely_remembers(
    kind: SinkKind, remembers: float | None, age: float, drops: bool
) -> None:
    """It must still remember at the end of the lease in which the second call may run."""
    some = Rules(use=Use.WRITE, kind=kind, on_replay="probe", lease_seconds=30.0, remembers_seconds=remembers)
    assert some.drops(row(age=age)) is drops
    assert some.replay(row(age=age)) == ("write" if drops else "probe")


@pytest.mark.parametrize("on_replay", ["write", "probe", "park"])
def test_what_follows_a_take_over_is_the_users_choice(on_replay: Any) -> None:
    """For a sink that would do it twice; one that drops by key for ever needs no choice."""
    assert Rules(use=Use.WRITE, on_replay=on_replay).replay(row()) == on_replay
    assert DROPS.replay(row(age=1e9)) == "write"


def test_unknown_contents_do_not_conflict() -> None:
    """A conflict is claimed only where both hashes are known."""
    assert conflicts(SAME, CHANGED)
    assert not conflicts(SAME, SAME)
    assert not conflicts(None, SAME)
    assert not conflicts(SAME, None)


OCCURRENCES = st.sampled_from([None, HERE, THERE])
HASHES = st.sampled_from([None, SAME, CHANGED])


@given(kept=st.tuples(OCCURRENCES, HASHES), arrived=st.tuples(OCCURRENCES, HASHES), alone=st.booleans())
def test_the_quick_way_for_second_sends_is_the_tables(
    kept: tuple[bytes | None, bytes | None], arrived: tuple[bytes | None, bytes | None], *, alone: bool
) -> None:
    """What is settled without asking the table is what the table calls a duplicate; all else is left to it."""
    entry, claim = Entry(*kept, b"result"), Claim(DIGEST, *arrived)
    led = Group(Item({"id": 1}, claim))
    if not alone:
        led.add(Item({"id": 1}, Claim(DIGEST, *kept)))
    settlement = Settlement()
    left = settlement.second_sends([(led, entry)])
    if alone and decide(entry, claim, ME, EXTERNAL) is Verdict.DUPLICATE:
        assert (left, led.done) == ([], True)
        assert settlement.settled == [(led.leader, Duplicate({"id": 1}, b"result"))]
    else:
        assert (left, led.done, settlement.settled) == ([(led, entry)], False, [])

"""`observe=True`: what is live goes on as it was, the ledger learns, and what would be dropped is counted."""

import pytest
from oncesink.connectors import MemoryLedger, MemorySink
from oncesink.connectors.errors import Misconfigured, OutcomeUnknown, Unavailable
from oncesink.connectors.faults import Fault
from oncesink.transforms import Bloom, Fields, Gate, SourcePosition
from oncesink.transforms.gate import describe_guarantee

from tests.unit.scene import KINDS, Kind, Record, Scene, keys, places, record

BLOOM = Bloom(capacity=1000, error_rate=0.0001)


def watch(scene: Scene) -> Scene:
    """Let it observe."""
    scene.settings["observe"] = True
    return scene


def live(scene: Scene) -> Scene:
    """Switch the gate on, with a new writer on the same stores."""
    scene.settings["observe"] = False
    scene._writer = None
    return scene


@pytest.mark.parametrize("kind", KINDS)
def test_everything_is_written_and_what_would_not_be_is_counted(kind: Kind) -> None:
    """Second sends, in the batch and later, replays and copies."""
    it = watch(Scene(kind))
    first = it.write(record("a", 0), record("b", 1), record("a", 2), record("b", 1))
    second = it.write(record("a", 9), record("c", 10))
    assert places(first.written) == [("a", 0), ("a", 2), ("b", 1), ("b", 1)]
    assert places(second.written) == [("a", 9), ("c", 10)]
    assert sorted(it.written_keys) == ["a", "a", "a", "b", "b", "c"]
    assert it.counts["would_drop"] == 3
    assert (it.counts["written"], it.counts["duplicates"]) == (6, 0)
    assert it.open_rows == 0


@pytest.mark.parametrize("kind", KINDS)
def test_switched_on_it_goes_on_from_what_was_learned(kind: Kind) -> None:
    """The first delivery is a replay, any other one a duplicate, another content a conflict."""
    it = watch(Scene(kind))
    it.write(record("a", 0), record("a", 1), record("b", 2))
    found = live(it).write(record("a", 0), record("a", 1), record("b", 7, more="x"), record("c", 8))
    assert sorted((each.record["id"], each.replayed) for each in found.written) == [("a", True), ("c", False)]
    assert keys(found.duplicates) == ["a"]
    assert [each.reason for each in found.rejected] == ["conflict"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_conflict_is_written_as_before(kind: Kind) -> None:
    """The row keeps the content that was written first."""
    it = watch(Scene(kind))
    it.write(record("a", 0))
    assert keys(it.write(record("a", 5, more="x")).written) == ["a"]
    assert it.counts["would_drop"] == 1
    assert live(it).write(record("a", 0)).written[0].replayed


def test_a_sink_that_drops_by_key_recognises_no_second_send() -> None:
    """It is called with a key of its own for each, the first one with the key that a live gate sends."""
    it = watch(Scene("drops_by_key"))
    it.write(record("a", 0), record("a", 1))
    it.write(record("a", 2))
    sent = [effect.digest for effect in it.effects]
    assert len(set(sent)) == 3
    assert sent[0] in it.store.rows


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_sink_refuses_leaves_no_row(kind: Kind) -> None:
    """It comes out as rejected, as before; corrected, it is new to the live gate."""
    it = watch(Scene(kind))
    found = it.write(record("a", 0, bad=True), record("b", 1))
    assert (keys(found.rejected), keys(found.written)) == (["a"], ["b"])
    assert not live(it).write(record("a", 0)).written[0].replayed


@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_before_the_row_costs_a_row_and_nothing_else(kind: Kind) -> None:
    """The record is written again, as it was before there was a gate, and learned then."""
    it = watch(Scene(kind)).on("ledger", "finish", Fault.CRASH_BEFORE)
    it.dies(record("a", 0))
    assert it.written_keys == ["a"]
    assert not it.store.rows
    it.write(record("a", 0))
    assert live(it).write(record("a", 0)).written[0].replayed


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
def test_no_row_says_finished_for_what_is_not_there(kind: Kind, fault: Fault) -> None:
    """Wherever the sink's call dies, the live gate writes what is missing."""
    it = watch(Scene(kind)).on("sink", "write", fault)
    it.dies(record("a", 0))
    live(it).write(record("a", 0))
    assert "a" in it.written_keys


def test_a_lost_reply_is_the_next_deliverys_matter() -> None:
    """Nothing waits for a lease while observing: the error goes up, and nothing was learned."""
    it = watch(Scene("external")).on("sink", "write", Fault.LOSE_REPLY)
    with pytest.raises(OutcomeUnknown):
        it.write(record("a", 0))
    assert not it.store.rows


def test_a_sink_that_is_away_raises_with_what_is_certain() -> None:
    """As a live gate does."""
    it = watch(Scene("external")).on("sink", "write", *[Fault.REFUSE] * 3)
    with pytest.raises(Unavailable):
        it.write(record("a", 0))


def test_rows_that_another_worker_was_quicker_to_insert_count() -> None:
    """Both wrote, as before; one row stays, and the other record would have been dropped."""
    it = watch(Scene("external"))
    it.on("ledger", "finish", lambda: it.writer().write([record("a", 5)]))
    it.write(record("a", 0))
    assert it.written_keys == ["a", "a"]
    assert it.counts["would_drop"] == 1


def test_a_finished_row_keeps_no_record_for_a_redrive() -> None:
    """Nobody would ever redrive it."""
    it = watch(Scene("external", {"redrive": "json"}))
    it.write(record("a", 0))
    (row,) = it.store.rows.values()
    assert row.claim.payload is None


def test_cache_and_filter_are_filled() -> None:
    """Switched on, the gate finds them warm."""
    it = watch(Scene("transactional", {"membership": BLOOM}))
    it.settings["cache"] = it.cache
    it.write(*[record(str(number), number) for number in range(20)])
    it.write(*[record(str(number), 100 + number) for number in range(20)])
    assert it.counts["filter_positive"] == 20
    assert it.counts["cache_hits"] == 20
    assert it.counts["would_drop"] == 20


def gate(**settings: object) -> Gate:
    usual: dict[str, object] = {
        "scope": "orders",
        "key": Fields("id"),
        "occurrence": SourcePosition("s", "offset"),
        "ledger": MemoryLedger(),
        "observe": True,
        "rejected": "output",
    }
    return Gate(**{**usual, **settings})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"ledger": None}, "needs a ledger"), ({"rejected": "raise"}, "rejected='output'")],
)
def test_what_makes_no_sense_is_refused(settings: Record, message: str) -> None:
    """In one line, before anything is opened."""
    with pytest.raises(Misconfigured, match=message):
        gate(**settings)


def test_the_first_line_of_the_log_says_so() -> None:
    """Nobody takes an observing gate for a live one."""
    told = describe_guarantee(gate(on_replay="write"), MemorySink("mails"))
    assert "only observed, nothing is dropped" in told

"""A sink's results are stored with the row, for duplicates and replays: bounded, and never at an effect's cost."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest
from oncesink.connectors.callable_sink import CallableSink
from oncesink.connectors.contract import WRITTEN, Answer, Outcome, Write
from oncesink.connectors.errors import Misconfigured
from oncesink.connectors.faults import Fault
from oncesink.connectors.memory import MemoryLedger
from oncesink.connectors.memory_sinks import MemoryTable
from oncesink.transforms import Batch, Duplicate, Fields, Gate, OnceWriter, SourcePosition, Written

from tests.unit.scene import Scene, record

SENT: list[Any] = []
GIVEN: dict[str, Any] = {}
"""The sink's result, by the record's id."""


NESTED: list[Any] = []
for _ in range(100_000):
    NESTED = [NESTED]


def answer_with_result(writes: Sequence[Write]) -> Sequence[Answer]:
    """Answer each record with its result."""
    SENT.extend(each.record for each in writes)
    return [Answer(Outcome.WRITTEN, GIVEN.get(each.record["id"])) for each in writes]


def send(record: Any, idempotency_key: str) -> Any:
    """Return the record's result."""
    return GIVEN.get(record["id"])


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    SENT.clear()
    GIVEN.clear()


def scene(drops_by_key: bool = False, **settings: Any) -> Scene:
    kind: Any = "drops_by_key" if drops_by_key else "external"
    made = Scene(
        kind,
        {"on_replay": None if drops_by_key else "write", **settings},
        make_sink=lambda name: CallableSink(answer_with_result, name=name, drops_by_key=drops_by_key),
    )
    if drops_by_key:
        made.settings.pop("on_replay")
    return made


@pytest.mark.parametrize("ledger", [True, False])
@pytest.mark.parametrize(
    ("results", "given", "told"),
    [
        ("off", b"id 7", None),
        ("bytes", b"id 7", b"id 7"),
        ("bytes", b"", b""),
        ("bytes", None, None),
        ("bytes", {"id": 7}, None),
        ("json", {"id": 7, "tags": ["ü", None, 1.5]}, {"id": 7, "tags": ["ü", None, 1.5]}),
        ("json", "text", "text"),
        ("json", 0, 0),
        ("json", b'{"id": 7}', {"id": 7}),
    ],
)
def test_every_outcome_of_a_key_tells_one_result(results: Any, given: Any, told: Any, ledger: bool) -> None:
    """The first one, its replay and a duplicate; also from the cache; also where there is no ledger."""
    world = scene(drops_by_key=not ledger, results=results, cache=None)
    world.settings["cache"] = world.cache if ledger else None
    GIVEN["A"] = given
    if not ledger:
        world.settings["ledger"] = None
        assert world.write(record("A", 0)).written == [Written(record("A", 0), False, told)]
        return
    for _ in range(2):
        first = world.write(record("A", 0)).written
        assert [each.result for each in first] == [told]
        again = world.writer().write([record("A", 1)]).duplicates
        assert again == [Duplicate(record("A", 1), told)]
        world.store.entries.clear()
    assert len(SENT) == 1


@pytest.mark.parametrize(
    ("results", "given", "said"),
    [
        ("bytes", b"x" * 101, "result_bytes=100"),
        ("json", "x" * 99, "result_bytes=100"),
        ("json", {"at": object()}, "no JSON"),
        ("json", float("nan"), "no JSON"),
        ("json", b"\xff", "utf-8"),
        ("json", b"[" * 100_000, "too deep"),
        ("json", NESTED, "too deep"),
    ],
)
def test_a_result_that_cannot_be_stored_never_costs_the_effect(
    results: Any, given: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Finished without it, counted, one warning a flush; its replay and its duplicates are told none."""
    world = scene(results=results, batch=Batch(result_bytes=100))
    bad = [record(key, at) for at, key in enumerate("AB")]
    GIVEN.update(A=given, B=given, C=b"1")
    with caplog.at_level(logging.WARNING):
        written = world.write(*bad, record("C", 2)).written
    assert [each.result for each in written] == [None, None, b"1" if results == "bytes" else 1]
    assert (world.counts["results_dropped"], world.open_rows, len(SENT)) == (2, 0, 3)
    warnings = [entry.getMessage() for entry in caplog.records if entry.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "2 results" in warnings[0]
    assert said in warnings[0]
    assert world.write(record("A", 0)).written[0] == Written(record("A", 0), True, None)
    assert world.write(record("A", 9)).duplicates[0].result is None
    assert len(SENT) == 3


def test_what_was_stored_as_bytes_is_read_by_json_too() -> None:
    """The setting may change while rows live: what is no JSON comes as the bytes that it is."""
    GIVEN["A"] = b"\xfe raw"
    world = scene(results="bytes")
    world.write(record("A", 0))
    world.settings["results"] = "json"
    assert world.writer().write([record("A", 1)]).duplicates == [Duplicate(record("A", 1), b"\xfe raw")]


def test_a_function_of_one_record_gives_results_as_well() -> None:
    """What it returns is the result; None means none."""
    GIVEN["A"] = {"id": 7}
    gate = Gate(
        scope="mails",
        key=Fields("id"),
        occurrence=SourcePosition("s", "offset"),
        ledger=MemoryLedger("each"),
        on_replay="write",
        results="json",
    )
    with OnceWriter(gate, CallableSink.each(send, name="mails")) as writer:
        written = writer.write([record("A", 0), record("B", 1)]).written
    assert [each.result for each in written] == [{"id": 7}, None]


def test_an_answer_that_was_lost_has_no_result() -> None:
    """Its effect is there and found again; who answered ALREADY may tell the result, else there is none."""
    world = Scene("drops_by_key", {"results": "json"}).on("sink", "write", Fault.LOSE_REPLY)
    assert world.write(record("A", 0)).written == [Written(record("A", 0), True, None)]


@pytest.mark.parametrize("value", ["pickle", None, b"json"])
def test_another_kind_of_results_is_refused(value: Any) -> None:
    """At once, where it stands."""
    with pytest.raises(Misconfigured, match="results is"):
        scene(results=value).gate  # noqa: B018


@pytest.mark.parametrize("setting", [{"results": "json"}, {"redrive": "json"}])
def test_where_nothing_would_be_stored_it_is_refused(setting: dict[str, Any]) -> None:
    """Rows of a table in the ledger's transaction, and of a filter, are finished before there is a result."""
    with pytest.raises(Misconfigured, match="does nothing"):
        Scene("transactional", setting).writer()


@pytest.mark.parametrize("bound", [{"payload_bytes": 2**24}, {"result_bytes": 2**24}, {"result_bytes": 0}])
def test_bounds_are_what_a_row_can_hold(bound: dict[str, int]) -> None:
    """A MEDIUMBLOB."""
    with pytest.raises(Misconfigured):
        Batch(**bound)  # type: ignore[arg-type]


class TestSeveralSinks:
    """One message, two sinks: a scope each."""

    def test_a_partial_failure_replays_only_what_is_missing(self) -> None:
        """The second sink fails; the source brings everything again; the first one is not written twice."""
        table, mails = Scene("transactional", {"scope": "orders into the table"}), scene(scope="orders by mail")
        records = [record(key, at) for at, key in enumerate("ABC")]
        mails.on("sink", "write", *[Fault.REFUSE] * mails.attempts)

        def deliver() -> None:
            table.write(*records)
            mails.write(*records)

        with pytest.raises(Exception, match="scripted fault"):
            deliver()
        assert (table.written_keys, SENT) == (["A", "B", "C"], [])
        deliver()
        deliver()
        assert (table.written_keys, [each["id"] for each in SENT]) == (["A", "B", "C"], ["A", "B", "C"])

    def test_one_ledger_serves_both_scopes(self) -> None:
        """Equal keys of two scopes are two effects, in one store; each replays for itself."""
        ledger = MemoryLedger("both")
        usual: dict[str, Any] = {"key": Fields("id"), "occurrence": SourcePosition("s", "offset"), "ledger": ledger}
        into_table, by_mail = Gate(scope="table", **usual), Gate(scope="mail", on_replay="write", **usual)
        table = MemoryTable(ledger)
        records = [record(key, at) for at, key in enumerate("AB")]
        with OnceWriter(into_table, table) as first:
            assert len(first.write(records).written) == 2
        for replayed in (False, True):
            with OnceWriter(by_mail, CallableSink(answer_with_result, name="mails")) as second:
                assert [each.replayed for each in second.write(records).written] == [replayed] * 2
            with OnceWriter(into_table, table) as first:
                assert all(each.replayed for each in first.write(records).written)
        assert (len(table.effects), len(SENT)) == (2, 2)


class TestGeneration:
    """Reprocessing on purpose."""

    def test_a_higher_one_writes_again_and_a_lower_one_is_refused(self) -> None:
        """Every key is new once more; an old job cannot come back under the number of before."""
        GIVEN["A"] = b"1"
        world = scene()
        assert world.write(record("A", 0)).written == [Written(record("A", 0), False, b"1")]
        world.settings["generation"] = 2
        again = world.writer().write([record("A", 0), record("A", 1)])
        assert [each.replayed for each in again.written] == [False]
        assert len(again.duplicates) == 1
        assert len(SENT) == 2
        world.settings["generation"] = 1
        with pytest.raises(Misconfigured, match="is at generation 2"):
            world.writer()


def test_written_alone_means_no_result() -> None:
    """The constant that most sinks answer with costs nothing more."""
    assert WRITTEN.result is None

"""`OnceWriter`: every record gets one outcome, and the world changes once, whatever kind the sink is."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oncesink.connectors.callable_sink import CallableSink
from oncesink.connectors.contract import Scope, Use
from oncesink.connectors.errors import Misconfigured, Unavailable
from oncesink.connectors.faults import Fault
from oncesink.transforms import Batch, Bloom, Duplicate, OnceWriter, Refused, Results, Written
from oncesink.transforms.batching import batches
from oncesink.transforms.prepare import Item

from tests.unit.scene import ATTEMPTS, KINDS, Kind, Scene, keys, record

each_kind = pytest.mark.parametrize("kind", KINDS)


def receipt(record: Any, key: str) -> bytes:
    return f"receipt of {record['id']}".encode()


def shop(name: str) -> CallableSink:
    return CallableSink.each(receipt, name=name)


@each_kind
def test_a_new_record_is_written(kind: Kind) -> None:
    """Every new key has its effect, in order, and is reported as written by this very call."""
    scene = Scene(kind)
    results = scene.write(record("A"), record("B", 1))
    assert results.written == [Written(record("A")), Written(record("B", 1))]
    assert len(results) == 2
    assert scene.written_keys == ["A", "B"]
    assert scene.open_rows == 0


@pytest.mark.parametrize("one", [record("A"), '{"id": "A"}', b'{"id": "A"}'], ids=["dict", "text", "bytes"])
def test_one_record_by_itself_is_told_to_be_one(one: Any) -> None:
    """Not taken apart into fields, each of which would be rejected; nothing is written."""
    scene = Scene(KINDS[0])
    with pytest.raises(Misconfigured, match=r"write\(\[record\]\), not one"):
        scene.writer().write(one)
    assert scene.written_keys == []


def test_what_is_no_sink_is_named() -> None:
    """A bare function is the likeliest mistake: what to put around it is said."""
    with pytest.raises(Misconfigured, match=r"CallableSink\.each\(send, \.\.\.\), not <built-in function print>"):
        OnceWriter(Scene(KINDS[0]).gate, print)  # type: ignore[arg-type]


@each_kind
def test_a_second_send_is_a_duplicate(kind: Kind) -> None:
    """Another occurrence of a finished key changes nothing, in this writer and in the next."""
    scene = Scene(kind)
    scene.write(record("A", 0))
    again = record("A", 1)
    assert scene.write(again).duplicates == [Duplicate(again)]
    assert scene.writer().write([again]).duplicates == [Duplicate(again)]
    assert scene.written_keys == ["A"]


@each_kind
def test_a_replay_stands_on_written_again(kind: Kind) -> None:
    """The engine may have thrown the first output away; the effect is not repeated."""
    scene = Scene(kind)
    scene.write(record("A"))
    assert scene.write(record("A")).written == [Written(record("A"), replayed=True)]
    assert scene.writer().write([record("A")]).written == [Written(record("A"), replayed=True)]
    assert scene.written_keys == ["A"]


@each_kind
def test_a_second_send_with_another_content_is_a_conflict(kind: Kind) -> None:
    """It is told, not swallowed; the occurrence itself is no part of the content."""
    scene = Scene(kind)
    scene.write(record("A", 0, amount=1))
    results = scene.write(record("A", 1, amount=2))
    assert [(each.record["amount"], each.reason) for each in results.rejected] == [(2, "conflict")]
    assert scene.write(record("A", 2, amount=1)).duplicates
    scene = Scene(kind, {"payload": "none"})
    scene.write(record("A", 0, amount=1))
    assert scene.write(record("A", 1, amount=2)).duplicates


@pytest.mark.parametrize("cached", [False, True])
def test_duplicates_and_replays_carry_the_stored_result(cached: bool) -> None:
    """What the sink answered is kept with the row, and with the cache entry."""
    scene = Scene("external", {"on_replay": "write"}, make_sink=shop)
    if cached:
        scene.settings["cache"] = scene.cache
    assert scene.write(record("A", 0)).written == [Written(record("A", 0), False, b"receipt of A")]
    assert scene.write(record("A", 1)).duplicates == [Duplicate(record("A", 1), b"receipt of A")]
    assert scene.write(record("A", 0)).written == [Written(record("A", 0), True, b"receipt of A")]
    assert scene.counts["cache_hits"] == (2 if cached else 0)


@each_kind
def test_without_an_occurrence_a_repeat_comes_out_as_a_duplicate(kind: Kind) -> None:
    """`None` equals nothing: `written` is reported at most once."""
    scene = Scene(kind, {"occurrence": None})
    first = scene.write(record("A"), record("A"))
    assert (len(first.written), len(first.duplicates)) == (1, 1)
    assert scene.write(record("A")).duplicates
    assert scene.written_keys == ["A"]


@each_kind
def test_scopes_and_generations_do_not_see_each_other(kind: Kind) -> None:
    """One key may be written once for each sink of a family, and again on purpose."""
    scene = Scene(kind)
    scene.write(record("A"))
    scene.settings["generation"] = 2
    assert scene.writer().write([record("A")]).written == [Written(record("A"))]
    assert scene.written_keys == ["A", "A"]


class TestBadRecords:
    """Bad input leaves at once, with its reason, and the rest goes on."""

    @pytest.mark.parametrize(
        ("bad", "reason"),
        [
            (b"{", "not_json"),
            (b"\xff\xfe\xfd", "not_json"),
            ("[1]", "wrong_type"),
            (7, "wrong_type"),
            ({"offset": 1}, "no_key"),
            ({"id": None, "offset": 1}, "no_key"),
            ({"id": "A"}, "no_position"),
            ({"id": "A", "offset": 1, "x": float("nan")}, "not_finite"),
            ({"id": "A", "offset": 1, "x": "\ud800"}, "not_unicode"),
            ({"id": "A", "offset": 1, 5: "x"}, "wrong_type"),
            ({"id": "A" * 1100, "offset": 1}, "too_large"),
            ({"id": "A", "offset": 1, "x": "x" * 2**20}, "too_large"),
        ],
        ids=lambda value: ascii(value)[:30],
    )
    @each_kind
    def test_it_is_refused_with_a_reason(self, kind: Kind, bad: Any, reason: str) -> None:
        """Never written, never under a shared key, and no row is left."""
        scene = Scene(kind)
        results = scene.write(record("Z", 8), bad, record("Y", 9))
        assert [(each.record, each.reason) for each in results.rejected] == [(bad, reason)]
        assert scene.written_keys == ["Z", "Y"]
        assert len(scene.store.rows) == 2

    def test_lines_of_json_are_records(self) -> None:
        """Bytes or text, with the same key; they go on as they came."""
        scene = Scene("external", sink_settings={"refuses": None})
        results = scene.write(b'{"id": "A", "offset": 0}', '{"id": "A", "offset": 1}')
        assert results.written[0].record == b'{"id": "A", "offset": 0}'
        assert results.duplicates[0].record == '{"id": "A", "offset": 1}'

    def test_limits_are_settings(self) -> None:
        """In bytes of the canonical form, and exact."""
        fits = len(b"l1:s3:AAA")
        scene = Scene("external", {"batch": Batch(key_bytes=fits)})
        results = scene.write(record("AAA"), record("AAAA", 1))
        assert (keys(results.written), [each.reason for each in results.rejected]) == (["AAA"], ["too_large"])
        size = len(b"m2:s2:ids1:As4:texts3:abc")
        scene = Scene("external", {"batch": Batch(record_bytes=size)})
        results = scene.write(record("A", 0, text="abc"), record("B", 1, text="abcd"))
        assert (keys(results.written), keys(results.rejected)) == (["A"], ["B"])


class TestBatches:
    """Batches are cut by rows and by bytes, and each is one flush."""

    def test_by_rows(self) -> None:
        """No sink call carries more rows than the bound."""
        scene = Scene("external", {"batch": Batch(rows=3)})
        scene.write(*[record(f"A{number}", number) for number in range(7)])
        assert scene.calls("sink") == ["write"] * 3
        assert len(scene.written_keys) == 7

    def test_by_bytes(self) -> None:
        """A batch may hold one record of the size of the bound, or several that fit together."""
        size = len(b"m2:s2:ids1:As4:texts100:") + 100
        scene = Scene("transactional", {"batch": Batch(bytes=2 * size, record_bytes=2 * size)})
        scene.write(*[record(chr(65 + number), number, text="x" * 100) for number in range(5)])
        assert scene.calls("ledger").count("commit") == 3

    @given(st.lists(st.integers(0, 12), max_size=30), st.integers(1, 5), st.integers(12, 30))
    def test_every_item_is_in_one_batch_within_the_bounds(self, sizes: list[int], rows: int, limit: int) -> None:
        """In order; no batch is empty, and none could have taken the next item too."""
        items: list[Any] = [Item(number, None, size) for number, size in enumerate(sizes)]  # type: ignore[arg-type]
        cut = list(batches(items, Batch(rows=rows, bytes=limit, record_bytes=12)))
        assert [item for batch in cut for item in batch] == items
        for batch in cut:
            assert 0 < len(batch) <= rows
            assert sum(item.size for item in batch) <= limit
        for batch, following in itertools.pairwise(cut):
            assert len(batch) == rows or sum(item.size for item in batch) + following[0].size > limit

    def test_nothing_is_nothing(self) -> None:
        """No record, no call."""
        scene = Scene("transactional")
        assert len(scene.write()) == 0
        assert scene.calls("ledger") == scene.calls("sink") == []

    def test_any_iterable_is_taken_and_its_error_comes_out(self) -> None:
        """What was settled before it is finished; the error is the caller's own."""

        def source() -> Iterator[Any]:
            yield record("A")
            yield record("B", 1)
            raise KeyError("the source broke")

        scene = Scene("transactional", {"batch": Batch(rows=1)})
        with pytest.raises(KeyError, match="the source broke"):
            scene.writer().write(source())
        assert scene.written_keys == ["A", "B"]


class TestTiers:
    """Filter and cache save look-ups and never decide."""

    @each_kind
    def test_the_cache_answers_what_is_finished(self, kind: Kind) -> None:
        """Duplicates and replays do not reach the ledger again."""
        scene = Scene(kind)
        scene.settings["cache"] = scene.cache
        scene.write(record("A", 0, n=1))
        claimed = scene.counts["ledger_claimed"]
        results = scene.write(record("A", 1, n=1))
        assert results.duplicates
        assert scene.write(record("A", 0, n=1)).written[0].replayed
        assert scene.write(record("A", 2, n=2)).rejected[0].reason == "conflict"
        assert scene.counts["ledger_claimed"] == claimed
        assert scene.counts["cache_hits"] == 3

    @pytest.mark.parametrize("fault", [Fault.REFUSE, Fault.HANG, Fault.LOSE_REPLY])
    @each_kind
    def test_a_cache_that_is_away_costs_nothing_but_time(self, kind: Kind, fault: Fault) -> None:
        """Exact, and counted: every call fails, and the ledger answers."""
        scene = Scene(kind)
        scene.settings["cache"] = scene.cache
        scene.on("cache", "get", *[fault] * 9).on("cache", "put", *[fault] * 9)
        scene.write(record("A", 0))
        assert scene.write(record("A", 1)).duplicates
        assert scene.write(record("A", 0)).written[0].replayed
        assert scene.written_keys == ["A"]
        assert scene.counts["cache_errors"] == len(scene.calls("cache")) > 3
        assert scene.counts["retries"] == 0

    def test_the_filter_saves_the_look_and_never_the_claim(self) -> None:
        """A negative goes straight to the insert; a positive reads first."""
        scene = Scene("transactional", {"membership": Bloom(capacity=1000, error_rate=0.001)})
        scene.write(record("A", 0), record("B", 1))
        assert (scene.counts["filter_negative"], scene.counts["ledger_read"]) == (2, 0)
        scene.write(record("A", 2), record("C", 3))
        assert (scene.counts["filter_positive"], scene.counts["ledger_read"]) == (1, 1)
        assert scene.counts["ledger_claimed"] == 3

    def test_an_empty_filter_does_not_let_a_duplicate_through(self) -> None:
        """A new process starts with one, and the ledger decides."""
        scene = Scene("transactional", {"membership": Bloom(capacity=1000, error_rate=0.001)})
        scene.write(record("A", 0))
        assert scene.writer().write([record("A", 1)]).duplicates
        assert scene.written_keys == ["A"]

    def test_the_cache_is_filled_after_the_commit_only(self) -> None:
        """An id that was cached before a failed insert would be refused for ever."""
        scene = Scene("transactional")
        scene.settings["cache"] = scene.cache
        scene.on("ledger", "commit", *[Fault.REFUSE] * ATTEMPTS)
        with pytest.raises(Unavailable):
            scene.write(record("A"))
        assert "put" not in scene.calls("cache")
        assert scene.write(record("A")).written == [Written(record("A"))]
        assert scene.calls("cache")[-1] == "put"


class TestLedgerTrouble:
    """A ledger that is away is asked a bounded number of times; then the caller is told what is certain."""

    @each_kind
    def test_it_is_repeated_within_bounds(self, kind: Kind) -> None:
        """A trouble that passes in time is only counted."""
        scene = Scene(kind).on("ledger", "claim", *[Fault.REFUSE] * (ATTEMPTS - 1))
        assert scene.write(record("A")).written == [Written(record("A"))]
        assert scene.counts["retries"] == ATTEMPTS - 1

    @each_kind
    def test_then_it_is_raised_with_what_is_certain(self, kind: Kind) -> None:
        """Earlier batches are finished and told; of the rest nothing was written; repeating is right."""
        scene = Scene(kind, {"batch": Batch(rows=1)}).on("ledger", "claim", None, *[Fault.REFUSE] * ATTEMPTS)
        everything = [record("A", 0), record("B", 1), record("C", 2)]
        with pytest.raises(Unavailable) as caught:
            scene.write(*everything)
        assert caught.value.results.written == [Written(record("A", 0))]
        assert scene.written_keys == ["A"]
        assert scene.open_rows == 0
        again = scene.write(*everything)
        assert [(out.record["id"], out.replayed) for out in again.written] == [("A", True), ("B", False), ("C", False)]

    @pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.LOSE_REQUEST, Fault.HANG_APPLIED])
    @pytest.mark.parametrize("kind", ["drops_by_key", "external"])
    def test_a_lost_reply_to_a_claim_is_answered_by_repeating_it(self, kind: Kind, fault: Fault) -> None:
        """Under the same owner: it finds its own row and goes on."""
        scene = Scene(kind).on("ledger", "claim", fault)
        assert scene.write(record("A")).written == [Written(record("A"))]
        assert scene.written_keys == ["A"]

    @pytest.mark.parametrize("kind", ["drops_by_key", "external"])
    def test_a_lost_reply_to_a_finish_is_answered_by_repeating_it(self, kind: Kind) -> None:
        """The effect is reported once, as new."""
        scene = Scene(kind).on("ledger", "finish", Fault.LOSE_REPLY)
        assert scene.write(record("A")).written == [Written(record("A"))]
        assert (scene.counts["late_finishes"], scene.open_rows) == (0, 0)

    def test_the_errors_results_hold_the_rejected_as_well(self) -> None:
        """Whatever was found out before the trouble."""
        scene = Scene("transactional").on("ledger", "claim", *[Fault.REFUSE] * ATTEMPTS)
        with pytest.raises(Unavailable) as caught:
            scene.write({"offset": 1}, record("A"))
        assert [out.reason for out in caught.value.results.rejected] == ["no_key"]


@each_kind
def test_counts_agree_with_the_results(kind: Kind) -> None:
    """Metrics are what the outcomes are."""
    scene = Scene(kind)
    scene.write(record("A", 0), record("A", 0), record("A", 1), record("B", 2, bad=True), {"offset": 1})
    found = {name: scene.counts[name] for name in ("written", "replayed", "duplicates", "rejected", "parked", "passed")}
    assert found == {"written": 1, "replayed": 1, "duplicates": 1, "rejected": 2, "parked": 0, "passed": 0}


def test_results_show_what_they_hold() -> None:
    """In logs, without the records."""
    results = Results(written=[Written({"secret": 1})], rejected=[Refused({}, "no_key")])
    assert repr(results) == "Results(written=1, rejected=1)"


class TestLife:
    """A writer is open until it is closed, and gives back what it opened."""

    @each_kind
    def test_a_failed_start_closes_what_was_open(self, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
        """The ledger's connection does not leak where the sink cannot be opened."""
        closed: list[str] = []
        scene = Scene(kind).on("sink", "open", Fault.REFUSE)
        session = type(scene.ledger.inner.open(Scope(name="other", use=Use.WRITE)))
        monkeypatch.setattr(session, "close", lambda self: closed.append("ledger"))
        with pytest.raises(Unavailable):
            scene.writer()
        assert closed == ["ledger"]

    def test_closing_twice_is_harmless(self) -> None:
        """Also as a context manager; what was written stays, and another writer goes on."""
        scene = Scene("transactional")
        with scene.writer() as writer:
            writer.write([record("A")])
            writer.close()
        writer.close()
        assert scene.written_keys == ["A"]
        assert len(scene.write(record("B")).written) == 1

    def test_a_sink_without_scopes_cannot_name_a_cache(self) -> None:
        """Entries need a namespace: where there is none it is said at start."""
        scene = Scene("drops_by_key", make_sink=lambda name: CallableSink.each(receipt, name=name, drops_by_key=True))
        scene.settings |= {"ledger": None, "cache": scene.cache}
        with pytest.raises(Misconfigured, match="cache"):
            scene.writer()


def test_nothing_is_logged_where_all_is_well(caplog: pytest.LogCaptureFixture) -> None:
    """But for the one line at start."""
    with caplog.at_level(logging.DEBUG):
        Scene("external").write(record("A"), record("A", 1))
    assert [each.levelname for each in caplog.records] == ["INFO"]

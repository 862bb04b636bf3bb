"""Where rejected and parked records go: up the stack, to the output, or to a sink; the rest is finished first."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from oncesink.connectors.errors import OutcomeUnknown, RecordsParked, RecordsRejected, Unavailable
from oncesink.connectors.faults import Fault, Faults
from oncesink.connectors.faulty import FaultySink
from oncesink.connectors.memory import memory_store
from oncesink.connectors.memory_sinks import MemorySink
from oncesink.transforms import Refused

from tests.unit.scene import ATTEMPTS, GRACE_SECONDS, KINDS, LEASE_SECONDS, Kind, Scene, keys, record

each_kind = pytest.mark.parametrize("kind", KINDS)


class Unshowable:
    """A value that breaks whoever wants to print it."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


class TestRaise:
    """The default: nobody was named to take them."""

    @each_kind
    def test_it_raises_once_the_rest_is_finished(self, kind: Kind) -> None:
        """All others are written, in this batch and in those behind it, and stand in the error."""
        scene = Scene(kind, {"rejected": "raise"})
        with pytest.raises(RecordsRejected) as caught:
            scene.write({"offset": 0}, record("A", 1), record("B", 2, bad=True), record("C", 3))
        assert sorted(scene.written_keys) == ["A", "C"]
        assert scene.open_rows == 0
        assert sorted(keys(caught.value.results.written)) == ["A", "C"]
        assert sorted(out.reason for out in caught.value.results.rejected) == ["no_key", "refused"]

    @each_kind
    def test_it_raises_on_every_replay_until_somebody_acts(self, kind: Kind) -> None:
        """A restart does not swallow them."""
        scene = Scene(kind, {"rejected": "raise"})
        for _ in range(3):
            with pytest.raises(RecordsRejected):
                scene.writer().write([record("A"), record("B", 1, bad=True)])
        assert scene.written_keys == ["A"]
        scene.settings["rejected"] = "output"
        results = scene.writer().write([record("A"), record("B", 1, bad=True)])
        assert (results.written[0].replayed, keys(results.rejected)) == (True, ["B"])

    def test_the_error_says_what_why_and_what_to_do(self) -> None:
        """The first ones by name, and how many more."""
        scene = Scene("transactional", {"rejected": "raise"})
        with pytest.raises(RecordsRejected) as caught:
            scene.write(*[record(f"K{number}", number, bad=True) for number in range(5)])
        text = str(caught.value)
        for part in ("5 records", "'orders'", "K0", "K2", "it is bad", "2 more", "rejected='output'", "dead-letter"):
            assert part in text
        assert "K3" not in text
        assert caught.value.reason == "refused"

    def test_parked_records_raise_too(self) -> None:
        """For sinks that can leave a record in doubt and whose `parked` was left at its default."""
        scene = Scene("external", {"on_replay": "write", "parked": "raise"})
        scene.on("sink", "write", Fault.CRASH_BEFORE)
        scene.dies(record("A", bad=True))
        scene.clock.sleep(LEASE_SECONDS + GRACE_SECONDS + 1)
        for _ in range(2):
            with pytest.raises(RecordsParked, match=r"may or may not have been written.*parked='output'") as caught:
                scene.write(record("A", bad=True), record("B", 1))
            parked = caught.value.results.parked[0]
            assert parked.idempotency_key in str(caught.value)
            assert len(parked.idempotency_key) == 32
            scene.clock.sleep(LEASE_SECONDS + GRACE_SECONDS + 1)
        assert scene.written_keys == ["B"]

    @each_kind
    def test_a_record_that_cannot_be_shown_is_refused_like_any_other(self, kind: Kind) -> None:
        """Neither a huge number nor a broken repr hides the reason."""
        scene = Scene(kind, {"rejected": "raise"})
        bad = [{"offset": 1, "n": 10**5000}, {"id": "A", "offset": 2, "n": Unshowable()}]
        with pytest.raises(RecordsRejected, match="no_key") as caught:
            scene.write(*bad, record("Z"))
        assert [out.reason for out in caught.value.results.rejected] == ["no_key", "wrong_type"]
        assert scene.written_keys == ["Z"]


class TestOutput:
    """The caller takes them from the results."""

    @each_kind
    def test_it_warns_once_a_call(self, kind: Kind, caplog: pytest.LogCaptureFixture) -> None:
        """With their number and the first of them."""
        scene = Scene(kind)
        with caplog.at_level(logging.WARNING, logger="oncesink"):
            scene.write(record("A"), *[record(f"K{n}", n, bad=True) for n in range(1, 6)], {"offset": 9})
            scene.write(record("B", 7))
        assert [each.levelname for each in caplog.records] == ["WARNING"]
        assert "6 records of scope 'orders'" in caplog.records[0].getMessage()

    def test_what_cannot_be_shown_is_only_warned_of(self, caplog: pytest.LogCaptureFixture) -> None:
        """The call returns."""
        scene = Scene("transactional")
        assert scene.write({"offset": 1, "n": 10**5000}, {"offset": 1, "n": Unshowable()}).rejected
        assert "cannot be shown" in caplog.text


class TestSink:
    """A dead-letter sink."""

    @each_kind
    def test_it_gets_the_record_and_the_reason(self, kind: Kind) -> None:
        """And the call returns; the results still hold them."""
        scene = Scene(kind, {"rejected": MemorySink("dead")})
        results = scene.write({"offset": 0}, record("A", 1), record("B", 2, bad=True))
        assert len(results.rejected) == 2
        assert sorted(effect.record["reason"] for effect in MemorySink("dead").effects) == ["no_key", "refused"]
        assert MemorySink("dead").effects[-1].record == {
            "record": record("B", 2, bad=True), "reason": "refused", "detail": "it is bad",
        }  # fmt: skip
        assert scene.written_keys == ["A"]

    def test_parked_records_have_a_sink_of_their_own(self) -> None:
        """With the idempotency key that the sink was sent."""
        scene = Scene("external", {"on_replay": "park", "parked": MemorySink("doubtful")})
        scene.on("sink", "write", Fault.CRASH_AFTER).dies(record("A"))
        scene.clock.sleep(LEASE_SECONDS + GRACE_SECONDS + 1)
        scene.write(record("A"))
        (letter,) = MemorySink("doubtful").effects
        assert letter.record["record"] == record("A")
        assert letter.record["idempotency_key"] == scene.effects[0].digest.hex()

    def test_each_letter_has_a_digest_of_its_own(self) -> None:
        """Also where one record came twice: a sink may take digests within a call for distinct."""
        scene = Scene("transactional", {"rejected": MemorySink("dead", drops_by_key=True)})
        bad: list[Any] = [{"offset": 1}, {"offset": 1}, {"offset": 2}, {"n": 10**5000}, {"n": Unshowable()}]
        scene.write(*bad)
        assert len(MemorySink("dead").effects) == len(bad)
        scene.write(*bad)
        assert len(MemorySink("dead").effects) == 2 * len(bad), "a letter is never taken for an earlier one"

    @pytest.mark.parametrize(
        ("fault", "error"), [(Fault.REFUSE, Unavailable), (Fault.LOSE_REPLY, OutcomeUnknown)], ids=["away", "lost"]
    )
    @each_kind
    def test_a_dead_letter_sink_that_is_away_is_an_error_that_carries_the_results(
        self, kind: Kind, fault: Fault, error: type[Exception]
    ) -> None:
        """Nothing is lost in silence; the rest is finished, and repeating the call is right."""
        dead = FaultySink(MemorySink("dead"), Faults.at({("sink", "write", 1): fault}))
        scene = Scene(kind, {"rejected": dead})
        with pytest.raises(error) as caught:
            scene.write(record("A"), {"offset": 1})
        assert keys(caught.value.results.written) == ["A"]  # type: ignore[attr-defined]
        assert scene.open_rows == 0
        results = scene.write(record("A"), {"offset": 1})
        assert results.written[0].replayed
        assert MemorySink("dead").effects[-1].record["reason"] == "no_key"

    def test_a_dead_letter_sink_that_raises_anything_is_no_different(self) -> None:
        """Its own error is the cause."""

        def breaks(record: Any) -> str | None:
            raise ZeroDivisionError

        scene = Scene("transactional", {"rejected": MemorySink("dead", refuses=breaks), "parked": "raise"})
        with pytest.raises(OutcomeUnknown, match="ZeroDivisionError") as caught:
            scene.write(record("A"), {"offset": 1})
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert keys(caught.value.results.written) == ["A"]

    def test_a_letter_that_is_refused_is_told(self) -> None:
        """A dead-letter sink that says no leaves the record with the caller."""
        scene = Scene("transactional", {"rejected": MemorySink("dead", refuses=lambda letter: "too bad")})
        with pytest.raises(OutcomeUnknown, match=r"did not take 1 records.*too bad") as caught:
            scene.write({"offset": 1})
        assert caught.value.results.rejected == [Refused({"offset": 1}, "no_key", "no value at id")]

    def test_trouble_comes_before_what_was_rejected(self) -> None:
        """The ledger's trouble is raised, and the letters were written all the same."""
        scene = Scene("transactional", {"rejected": MemorySink("dead")}).on(
            "ledger", "claim", *[Fault.REFUSE] * ATTEMPTS
        )
        with pytest.raises(Unavailable):
            scene.write({"offset": 1}, record("A"))
        assert len(memory_store("").effects["dead"]) == 1
        scene = Scene("transactional", {"rejected": "raise"}).on("ledger", "claim", *[Fault.REFUSE] * ATTEMPTS)
        with pytest.raises(Unavailable):
            scene.write({"offset": 1}, record("A"))

"""Commands find the user's own gate, and say what they found instead."""

import sys
from datetime import timedelta
from pathlib import Path

import pytest
from oncesink.connectors import CallableSink, MemoryLedger
from oncesink.connectors.contract import Use
from oncesink.connectors.errors import Misconfigured
from oncesink.pipelines.jobs import load_job
from oncesink.transforms import Fields, Gate, SourcePosition

HERE = __name__
GATE = Gate(
    scope="orders",
    key=Fields("id"),
    occurrence=SourcePosition("s", "offset"),
    ledger=MemoryLedger(),
)
SENDING = Gate(
    scope="mails",
    key=Fields("id"),
    occurrence=SourcePosition("s", "offset"),
    ledger=MemoryLedger(),
    on_replay="write",
    lease=timedelta(minutes=1),
)
SINK = CallableSink(print, name="mails")
PAIR = (SENDING, SINK)
NUMBER = 7


def make() -> Gate:
    return GATE


def breaks() -> Gate:
    raise ZeroDivisionError("division by zero")


@pytest.mark.parametrize("name", ["GATE", "make"])
def test_a_gate_alone_drops_duplicates(name: str) -> None:
    """It stands there, or a function returns it."""
    job = load_job(f"{HERE}:{name}")
    assert (job.gate, job.sink) == (GATE, None)
    assert job.scope.use is Use.DROP


def test_a_pair_and_two_places_are_the_same() -> None:
    """With a sink it writes, and digests are those of a writer."""
    job = load_job(f"{HERE}:PAIR")
    assert job == load_job(f"{HERE}:SENDING", f"{HERE}:SINK")
    assert (job.sink, job.scope.use) == (SINK, Use.WRITE)


@pytest.mark.parametrize(
    ("gate", "sink", "message"),
    [
        ("GATE", None, "looks like package.module:name"),
        ("no_such_module:GATE", None, "no module no_such_module"),
        (f"{HERE}:MISSING", None, "has no MISSING"),
        (f"{HERE}:NUMBER", None, "NUMBER is a int"),
        (f"{HERE}:SENDING", f"{HERE}:NUMBER", "NUMBER is a int: a sink"),
        (f"{HERE}:PAIR", f"{HERE}:SINK", "a sink of its own"),
        (f"{HERE}:SENDING", None, "does nothing with on_replay.*if it writes, name its sink, by --sink"),
        (f"{HERE}:breaks", None, r"breaks raised ZeroDivisionError: division by zero \(.*test_jobs.py, line \d+\)"),
    ],
)
def test_what_does_not_fit_is_named(gate: str, sink: str | None, message: str) -> None:
    """In one line, and before anything is opened."""
    with pytest.raises(Misconfigured, match=message):
        load_job(gate, sink)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import no_such_driver", "shop_jobs raised ModuleNotFoundError: No module named 'no_such_driver'"),
        ("gate = {}['gate']", "shop_jobs raised KeyError: 'gate'"),
        ("gate =", "shop_jobs raised SyntaxError"),
    ],
)
def test_a_module_that_cannot_be_read_is_told_with_its_line(
    code: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line that names the place: exit status 1 would be taken for a finding."""
    (tmp_path / "shop_jobs.py").write_text(f"\n{code}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [str(tmp_path), *sys.path])
    with pytest.raises(Misconfigured, match=message) as told:
        load_job("shop_jobs:gate")
    assert "line 2" in str(told.value)

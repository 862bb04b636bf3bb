"""`oncesink check --gate`: the times of a gate against those of the engine around it."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from oncesink.connectors import CallableSink, LRUCache, MemoryLedger, MemoryTable, SQLiteLedger
from oncesink.connectors.contract import Sink
from oncesink.connectors.errors import Misconfigured
from oncesink.pipelines.cli import main
from oncesink.pipelines.jobs import Job
from oncesink.pipelines.timing import Times, check_times, longest_flush
from oncesink.transforms import Fields, Gate, SourcePosition

SECOND, MINUTE, HOUR, DAY = (timedelta(seconds=each) for each in (1, 60, 3600, 86_400))
LEDGER = MemoryLedger(retention=7 * DAY)
MAILS = CallableSink(print, name="mails")


def job(sink: Sink | None = MAILS, **changes: Any) -> Job:
    usual: dict[str, Any] = {
        "scope": "mails",
        "key": Fields("id"),
        "occurrence": SourcePosition("s", "offset"),
        "ledger": LEDGER,
    }
    if sink is MAILS:
        usual["on_replay"] = "write"
    return Job(gate=Gate(**{**usual, **changes}), sink=sink)


def test_a_flush_takes_three_leases_and_the_grace() -> None:
    """Where no lease is taken there is nothing to wait for."""
    assert longest_flush(job()) == 100 * SECOND
    assert longest_flush(job(lease=MINUTE, grace=5 * SECOND)) == 185 * SECOND
    assert longest_flush(job(MemoryTable(LEDGER))) is None
    assert longest_flush(job(None)) is None


@pytest.mark.parametrize("name", ["checkpoint_timeout", "max_poll_interval"])
def test_a_bound_that_a_flush_may_reach_is_an_error(name: str) -> None:
    """At the longest flush it is one, above it is not; where no lease is taken, never."""
    (found,) = check_times(job(), Times(**{name: 100 * SECOND}))
    assert found.severity == "error"
    assert "3 x lease + grace" in found.what
    assert not check_times(job(), Times(**{name: 101 * SECOND}))
    assert not check_times(job(MemoryTable(LEDGER)), Times(**{name: SECOND}))


@pytest.mark.parametrize("name", ["checkpoint_interval", "longest_replay", "retry_interval"])
def test_what_comes_after_the_retention_is_an_error(name: str) -> None:
    """It would be written again."""
    (found,) = check_times(job(None), Times(**{name: 7 * DAY}))
    assert (found.severity, "written again" in found.what) == ("error", True)
    assert not check_times(job(None), Times(**{name: 7 * DAY - SECOND}))


def test_a_cache_that_forgets_too_early_is_a_warning() -> None:
    """It costs looks into the ledger, and no exactness."""
    cached = job(cache=LRUCache(ttl=10 * MINUTE, entries=10))
    found = check_times(cached, Times(checkpoint_interval=10 * MINUTE, retry_interval=11 * MINUTE))
    assert [each.severity for each in found] == ["warning", "warning"]
    assert not check_times(cached, Times(checkpoint_interval=9 * MINUTE, retry_interval=10 * MINUTE))


def test_a_sink_that_forgets_before_a_replay_is_a_warning() -> None:
    """Then `on_replay` decides."""
    sink = CallableSink(print, name="mails", drops_by_key=True, remembers=DAY)
    found = check_times(job(sink, on_replay="write"), Times(longest_replay=2 * DAY))
    assert [each.severity for each in found] == ["warning"]
    assert not check_times(job(sink, on_replay="write"), Times(longest_replay=DAY))


def test_impossible_times_are_refused() -> None:
    """Nothing, or a replay shorter than what every failure replays."""
    with pytest.raises(Misconfigured, match="longer than nothing"):
        Times(max_poll_interval=timedelta(0))
    with pytest.raises(Misconfigured, match="cannot be shorter"):
        Times(checkpoint_interval=HOUR, longest_replay=MINUTE)


HERE = __name__
GATE = Gate(
    scope="mails",
    key=Fields("id"),
    occurrence=SourcePosition("s", "offset"),
    ledger=SQLiteLedger("mails.db", retention=DAY),
    on_replay="write",
)


def status(*arguments: str) -> int:
    """Run the command in this process; return its exit status."""
    try:
        return main(arguments)
    except SystemExit as end:
        return int(end.code or 0)


def test_the_command_says_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors end with status 1; with times that fit it is 0, and the ledger was looked at, too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    place = ("check", "--gate", f"{HERE}:GATE", "--sink", f"{HERE}:MAILS")
    assert status(*place, "--max-poll-interval", "60s", "--longest-replay", "2d") == 1
    said = capsys.readouterr().out
    assert "max.poll.interval.ms" in said
    assert "mails.db" in said
    assert status(*place, "--max-poll-interval", "5m", "--checkpoint-interval", "60s", "--longest-replay", "12h") == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "nothing to look at"),
        (("--ledger", "sqlite:///once.db", "--max-poll-interval", "5m"), "name it, --gate"),
        (("--gate", f"{HERE}:GATE", "--sink", f"{HERE}:MAILS", "--max-poll-interval", "5 minutes"), "looks like 90s"),
    ],
)
def test_options_that_would_do_nothing_are_refused(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line."""
    assert status("check", *arguments) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1

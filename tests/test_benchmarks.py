"""How benchmarks report, whatever they measure."""

import json
from pathlib import Path
from xml.etree.ElementTree import fromstring

import pytest

from benchmarks import page, run
from benchmarks.chart import chart
from benchmarks.rows import MeasuredRow, at_most, missed, none_of
from benchmarks.target import Append, disconnect, target

GOOD = MeasuredRow(
    name="good <&>", ours=30.0, theirs=1.0, ratio=30.0, at_least=15.0, unit="records/s", raw={"ours": [30]}
)
BAD = MeasuredRow(name="bad", ours=0.5, theirs=1.0, ratio=0.5, at_least=0.6)
FREE = MeasuredRow(name="free", ours=0.1, theirs=1.0, ratio=0.1, at_least=None)


@pytest.mark.parametrize(("rows", "code"), [([GOOD, FREE], 0), ([GOOD, BAD], 1)])
def test_a_row_below_its_bar_fails_the_run(
    rows: list[MeasuredRow], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code judges rows that have a bar, and the last line of stdout gives each row's five figures."""
    monkeypatch.setattr(run, "groups", lambda names: {"group": lambda: rows})
    kept: list[str] = []
    monkeypatch.setattr(run, "keep", lambda name, rows, seconds: kept.append(name))
    assert run.main([]) == code
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [set(row) for row in last["rows"]] == [{"name", "ours", "theirs", "ratio", "at_least"}] * len(rows)
    assert kept == ["group"]


def test_a_group_that_does_not_exist_ends_the_run() -> None:
    """A misspelt group does not pass as one that measured nothing; a module without `rows` is no group."""
    with pytest.raises(SystemExit, match="chart, flter"):
        run.groups(["flter", "chart"])


def test_the_chart_is_a_picture_of_every_row() -> None:
    """The SVG is well-formed and holds the name and the ratio of each row."""
    texts = [element.text for element in fromstring(chart("title", [GOOD, BAD, FREE])).iter() if element.text]
    assert {"good <&>", "30x", "bad", "0.5x", "free", "0.1x"} <= set(texts)


def test_the_page_of_figures_is_made_of_the_kept_results() -> None:
    """No figure of it was written by hand, and none is older than its results."""
    assert page.PAGE.read_text(encoding="utf-8") == page.page(page.kept())


@pytest.mark.parametrize(("value", "bad"), [(4.9, False), (5.0, False), (5.1, True)])
def test_what_must_not_exceed_a_bar_is_judged(value: float, *, bad: bool) -> None:
    """A latency, say: the smaller, the better."""
    assert missed(at_most("p99", value, 5.0, unit="ms", raw={})) is bad


@pytest.mark.parametrize("count", [0, 1])
def test_what_must_not_occur_is_judged(count: int) -> None:
    """One lost record is one too many."""
    assert missed(none_of("lost", count)) is bool(count)


def test_the_log_of_external_sinks_counts_what_is_lost_and_twice(tmp_path: Path) -> None:
    """From its file, by keys."""
    with target(tmp_path / "log") as running:
        append = Append(running.port)
        append.lines(["a", "b", "b"])
        append.one({"order_id": "c"})
        assert running.tally(["a", "b", "c"]) == (0, 1)
        assert running.tally(["a", "d", "e"]) == (2, 1)
        disconnect()

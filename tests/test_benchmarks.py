"""How benchmarks report, whatever they measure."""

import json
from xml.etree.ElementTree import fromstring

import pytest

from benchmarks import run
from benchmarks.chart import chart
from benchmarks.rows import MeasuredRow

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

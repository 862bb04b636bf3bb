"""What a benchmark group reports."""

from typing import Any, TypedDict


class Row(TypedDict):
    """One comparison: `ratio` is how many times better ours is, `at_least` the bar it has to reach, if there is one."""

    name: str
    ours: float
    theirs: float
    ratio: float
    at_least: float | None


class MeasuredRow(Row, total=False):
    """A row with what only the committed results keep: the unit of both sides, and every single measurement."""

    unit: str
    raw: dict[str, Any]


def at_most(name: str, value: float, bar: float, *, unit: str, raw: dict[str, Any]) -> MeasuredRow:
    """Return a row for what must not exceed a bar: `theirs` is the bar, and the ratio says how far below it ours is."""
    return MeasuredRow(name=name, ours=value, theirs=bar, ratio=bar / value, at_least=1.0, unit=unit, raw=raw)


def none_of(name: str, count: int) -> MeasuredRow:
    """Return a row for what must not occur at all."""
    found = {"count": count}
    return MeasuredRow(name=name, ours=count, theirs=0, ratio=float(not count), at_least=1.0, unit="records", raw=found)


def missed(row: Row) -> bool:
    """Tell whether a row has a bar and stays below it."""
    return row["at_least"] is not None and row["ratio"] < row["at_least"]


def summary(row: Row) -> Row:
    """Return the five fields that every row has, without the measurements."""
    return Row(name=row["name"], ours=row["ours"], theirs=row["theirs"], ratio=row["ratio"], at_least=row["at_least"])


def figure(value: float) -> str:
    """Write a measured value with as many digits as mean something."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"

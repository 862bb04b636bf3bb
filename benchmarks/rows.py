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


def missed(row: Row) -> bool:
    """Tell whether a row has a bar and stays below it."""
    return row["at_least"] is not None and row["ratio"] < row["at_least"]


def summary(row: Row) -> Row:
    """Return the five fields that every row has, without the measurements."""
    return Row(name=row["name"], ours=row["ours"], theirs=row["theirs"], ratio=row["ratio"], at_least=row["at_least"])


def figure(value: float) -> str:
    """Write a measured value with as many digits as mean something."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"

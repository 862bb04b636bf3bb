"""What the demo shows at its end: a table for people, a line for programs, and what is not as promised."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from oncesink.pipelines.demo_audit import Count
from oncesink.pipelines.demo_settings import Engine
from rich.console import Console
from rich.table import Table

OUTCOMES = ("written", "duplicates", "replayed", "rejected", "parked")


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """What a demo came to. `deliveries` were handed to the run that ended well, and `outcomes` came out of its gate."""

    engine: Engine
    deliveries: int
    distinct: int
    outcomes: Mapping[str, int]
    plain: Count
    once: Count
    kills: int
    rows_open_at_kill: int
    seconds: float

    def line(self) -> str:
        """Return the figures as one line of JSON."""
        counted = {name: self.outcomes.get(name, 0) for name in OUTCOMES}
        figures = {
            "engine": self.engine.value,
            "deliveries": self.deliveries,
            "distinct": self.distinct,
            "plain_rows": self.plain.rows,
            "once_rows": self.once.rows,
            **counted,
            "kills": self.kills,
            "lost": self.once.lost,
            "twice": self.once.twice,
            "wrong": self.once.wrong,
            "seconds": round(self.seconds, 1),
        }
        return json.dumps(figures)

    def complaints(self) -> Iterator[str]:
        """Yield what breaks the promise, and what would make the demo prove nothing."""
        once = self.once
        if (once.lost, once.twice, once.wrong) != (0, 0, 0) or once.rows != self.distinct:
            yield f"the table behind the gate is not right: {once}"
        if sum(self.outcomes.values()) != self.deliveries:
            yield f"{self.deliveries} deliveries went in, and {dict(self.outcomes)} came out"
        if self.plain.twice == 0:
            yield "the plain table shows no doubles: there was nothing to prevent"
        if self.kills == 0:
            yield "no process died with open work"
        if self.outcomes.get("replayed", 0) == 0:
            yield "nothing was replayed: the second run met nothing of the first"


def print_figures(figures: Figures, console: Console) -> None:
    """Print the table, and what it is about."""
    again = f"{figures.deliveries - figures.distinct:,}"
    console.print(
        f"\n{figures.distinct:,} flights of 2013 in {figures.deliveries:,} deliveries, {again} of them repeated."
        f"\nThe process was killed {_times(figures.kills)}, with {figures.rows_open_at_kill:,} rows in an open"
        f" transaction, then started again from {figures.engine.goes_on_from}.\n",
        soft_wrap=True,
    )
    table = Table("", "written plainly", "through oncesink")
    for name, plain, once, wanted in (
        ("rows in the table", figures.plain.rows, figures.once.rows, figures.distinct),
        ("flights that are missing", figures.plain.lost, figures.once.lost, 0),
        ("rows too many", figures.plain.twice, figures.once.twice, 0),
        ("rows that are wrong", figures.plain.wrong, figures.once.wrong, 0),
    ):
        table.add_row(name, f"{plain:,}", _judged(once, good=once == wanted))
    for column in table.columns[1:]:
        column.justify = "right"
    console.print(table)
    told = ", ".join(f"{figures.outcomes.get(name, 0):,} {name}" for name in OUTCOMES)
    console.print(f"What the gate said of the deliveries: {told}.\n", soft_wrap=True)


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _judged(number: int, *, good: bool) -> str:
    return f"[bold {'green' if good else 'red'}]{number:,}[/]"

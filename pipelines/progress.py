"""A bar with rate and time left, on standard error, for work over the ids of a table."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


class IdBar:
    """How far a walk over ids is. The ids say how much is left; the rate counts rows, since ids have gaps."""

    def __init__(self, what: str, *, lowest: int, highest: int) -> None:
        self._lowest = lowest
        self._rows = 0
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[rows]} rows"),
            TextColumn("{task.fields[rate]} rows/s"),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=Console(stderr=True))
        span = max(highest - lowest + 1, 1)
        self._task: TaskID = self._progress.add_task(what, total=span, rows="0", rate="-")

    def show(self, last_id: int, more_rows: int) -> None:
        """Move the bar to an id, with the rows that were looked at since it was moved last."""
        self._rows += more_rows
        seconds = self._progress.tasks[0].elapsed
        self._progress.update(
            self._task,
            completed=last_id - self._lowest + 1,
            rows=f"{self._rows:,}",
            rate=f"{self._rows / seconds:,.0f}" if seconds else "-",
        )

    def __enter__(self) -> IdBar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

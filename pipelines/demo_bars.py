"""The demo's progress, on standard error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType

from oncesink.pipelines.demo_job import Step
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

STEPS: Mapping[Step, str] = {"plain": "written plainly", "once": "through the gate"}


class RunBars:
    """Two bars for one run of the pipeline: each delivery is written twice."""

    def __init__(self, progress: Progress, name: str, lines: int) -> None:
        self._progress = progress
        self._lines = lines
        self._tasks: dict[Step, TaskID] = {
            step: progress.add_task(f"{name}: {what}", total=lines) for step, what in STEPS.items()
        }

    def show(self, done: Mapping[Step, int]) -> None:
        """Move the bars."""
        for step, task in self._tasks.items():
            self._progress.update(task, completed=min(done[step], self._lines))


class Bars:
    """All bars of one demo."""

    def __init__(self) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=Console(stderr=True))

    def run(self, name: str, lines: int) -> RunBars:
        """Begin the bars of a run."""
        return RunBars(self._progress, name, lines)

    @contextmanager
    def busy(self, name: str) -> Iterator[None]:
        """Show that something without a measure goes on."""
        task = self._progress.add_task(name, total=None)
        yield
        self._progress.update(task, total=1, completed=1)

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

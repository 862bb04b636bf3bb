"""A user's own gate, and sink, found by where they stand: `shop.jobs:gate`.

    --gate shop.jobs:gate                          a Gate, or a pair (gate, sink), or a function that returns one
    --gate shop.jobs:gate --sink shop.jobs:table   both, each by itself

Modules are looked for in the working directory first, as `python -m` does.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from oncesink.connectors.contract import Scope, Sink
from oncesink.connectors.errors import Misconfigured, OnceSinkError
from oncesink.transforms.gate import Gate, drop_rules, drop_scope, write_rules, write_scope


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A gate with the sink behind it; without a sink it drops duplicates."""

    gate: Gate
    sink: Sink | None

    @property
    def scope(self) -> Scope:
        """The namespace of its keys, as the running job has it."""
        return drop_scope(self.gate) if self.sink is None else write_scope(self.gate, self.sink)

    def check(self) -> None:
        """Raise `Misconfigured` where gate and sink do not fit, as the running job would."""
        if self.sink is None:
            drop_rules(self.gate)
        else:
            write_rules(self.gate, self.sink)


def load_job(gate: str, sink: str | None = None) -> Job:
    """Return what stands at these places. Raises `Misconfigured` that says what was found instead."""
    found = _made(gate)
    other = _made(sink) if sink is not None else None
    if isinstance(found, tuple) and len(found) == 2:
        found, paired = found
        if other is not None:
            raise Misconfigured(f"{gate} holds a sink of its own: leave --sink away")
        other = paired
    if not isinstance(found, Gate):
        raise Misconfigured(f"{gate} is a {type(found).__name__}: a Gate is wanted, or a pair (gate, sink)")
    other = _known(other)
    if other is not None and not isinstance(other, Sink):
        place = sink or f"the sink in {gate}"
        raise Misconfigured(f"{place} is a {type(other).__name__}: a sink of oncesink is wanted")
    job = Job(gate=found, sink=other)
    try:
        job.check()
    except Misconfigured as error:
        if other is None:
            raise Misconfigured(
                f"{error}; taken as a gate of DropDuplicates: if it writes, name its sink, by --sink or a pair"
            ) from error
        raise
    return job


def _known(sink: Any) -> Any:
    """Return a `RichSinkFunction` as the sink that `OnceSink` makes of it; PyFlink is there if there is such a one."""
    flink = sys.modules.get("oncesink.transforms.flink_sink")
    return sink if flink is None else flink.known_sink(sink)


def _made(place: str) -> Any:
    found = _at(place)
    return _run(place, lambda: _called(found))


def _at(place: str) -> Any:
    module_name, colon, path = place.partition(":")
    if not colon or not module_name or not path:
        raise Misconfigured(f"a place looks like package.module:name, not like {place!r}")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = _run(module_name, lambda: importlib.import_module(module_name))
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise Misconfigured(_raised(module_name, error)) from error
        raise Misconfigured(f"there is no module {error.name}, neither in {folder} nor installed") from error
    try:
        return reduce(getattr, path.split("."), found)
    except AttributeError as error:
        raise Misconfigured(f"{module_name} has no {path}") from error


def _run(place: str, code: Callable[[], Any]) -> Any:
    """Run code of the user's. Raises `Misconfigured`, one line, for whatever it raises."""
    try:
        return code()
    except (OnceSinkError, ModuleNotFoundError):
        raise
    except Exception as error:
        raise Misconfigured(_raised(place, error)) from error


def _raised(place: str, error: Exception) -> str:
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith("<")]
    return f"{place} raised {type(error).__name__}: {error} ({frames[-1].filename}, line {frames[-1].lineno})"


def _called(found: Any) -> Any:
    """Call a function that makes what is wanted; recipes and pairs stand as they are."""
    return found() if callable(found) and not isinstance(found, (Gate, Sink, tuple)) else found

"""What a scenario of `make fire` is, and what it reports.

A scenario is a module of `tests/fire/scenarios/`, found by its name, with one function:

    def run(*, quick: bool, folder: Path) -> Figures:

- `quick` is True in `make test` and CI: all scenarios together then take at most five minutes. Else take what proves
  the point: the full run may take an hour..
- `folder` is empty, belongs to this scenario alone and is kept when a promise broke: logs and offending keys go there.
- It starts its own servers (`tests/servers.py`), kills only what it started, and returns what it counted. It does not
  raise for a broken promise: it says so in `broken`, one line each, with what is needed to see it again. What it raises
  counts as broken too.
- It counts with code that shares nothing with the library, from the source data (`tests/fire/audit.py`).

Optional: `ENVIRONMENT = "flink"` where it needs PyFlink: it is then run by the Python that FLINK_PYTHON names, and
imports PyFlink inside `run` only, since every module is loaded in order to be found.

Figures add up over scenarios. Every kill is a SIGKILL of a live process while claims or buffers were open.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol

from tests.fire import scenarios


@dataclass(kw_only=True)
class Figures:
    """What a scenario counted; all of them are sums but `cells_min`."""

    simulated_schedules: int = 0
    distinct_traces: int = 0
    cells_min: int | None = None
    """How often the rarest possible cell of the crash table occurred; None where nothing is simulated."""
    cluster_kills: int = 0
    """SIGKILLs of real processes: workers, servers, engines."""
    kills_external: int = 0
    """Those of a worker that wrote into an external sink."""
    kills_in_window: int = 0
    """Those of `kills_external` that left open rows of the killed owner, read from the ledger right after the kill."""
    records: int = 0
    """Deliveries that real processes took through the gate."""
    lost: int = 0
    """Well-formed input keys that are not in the target."""
    twice: int = 0
    """Sum over keys of (rows - 1), in targets without a unique key on the business key."""
    wrong: int = 0
    """Rows whose content no delivery had."""
    in_window: int = 0
    """Second calls between claim and finish, external sinks with on_replay="write" only."""
    broken: list[str] = field(default_factory=list)
    """Promises that broke, in words; empty if all held."""
    notes: list[str] = field(default_factory=list)
    """What a person should know."""

    def __add__(self, other: Figures) -> Figures:
        sums = {each.name: getattr(self, each.name) for each in fields(self)}
        for name, mine in sums.items():
            theirs = getattr(other, name)
            if name == "cells_min":
                known = [value for value in (mine, theirs) if value is not None]
                sums[name] = min(known, default=None)
            else:
                sums[name] = mine + theirs
        return Figures(**sums)

    @property
    def held(self) -> bool:
        """Whether every promise held."""
        return not (self.broken or self.lost or self.twice or self.wrong)


class Run(Protocol):
    """The function of a scenario."""

    def __call__(self, *, quick: bool, folder: Path) -> Figures: ...


@dataclass(frozen=True)
class Scenario:
    """A module of `tests/fire/scenarios/`."""

    name: str
    run: Run
    environment: str


def found(only: list[str]) -> list[Scenario]:
    """Return the scenarios that were asked for, all if none was. Raises `SystemExit` for a name that is none."""
    names = sorted(module.name for module in pkgutil.iter_modules(scenarios.__path__))
    there = [each for name in names if not only or name in only if (each := _load(name)) is not None]
    unknown = set(only) - {each.name for each in there}
    if unknown:
        raise SystemExit(f"no such scenario: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return there


def _load(name: str) -> Scenario | None:
    module: Any = importlib.import_module(f"tests.fire.scenarios.{name}")
    run: Callable[..., Figures] | None = getattr(module, "run", None)
    if not callable(run):
        return None
    return Scenario(name, run, getattr(module, "ENVIRONMENT", "beam"))

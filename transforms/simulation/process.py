"""A worker process: an open gate, a filter in memory, and a clock of its own."""

from __future__ import annotations

from collections.abc import Callable

from ...connectors.contract import Sink
from ...connectors.errors import Misconfigured
from ..gate import Gate
from ..lookup import Membership
from ..metrics import LevelName, MetricName
from ..reconcile import Reconciler, check_reconcilable
from ..retry import Immediately
from ..session import GateSession
from .world import ASLEEP, World

SKEWS = (1.0, 1.001, 0.999)
"""How fast the clocks of processes run."""


class Process:
    """What dies with a crash and outlives a failed bundle."""

    __slots__ = ("clock", "membership", "number", "session")

    def __init__(self, number: int, session: GateSession, membership: Membership | None) -> None:
        self.number = number
        self.session = session
        self.clock = session.clock
        self.membership = membership


class Sessions:
    """Open gates, one for each process of a schedule, and used again for the next one: they keep nothing."""

    def __init__(self, world: World, gate: Gate, sink: Sink | None) -> None:
        self._world = world
        self._gate = gate
        self._sink = sink
        self._open: list[GateSession] = []

    def __getitem__(self, number: int) -> GateSession:
        while len(self._open) <= number:
            clock = _Clock(self._world, len(self._open))
            self._open.append(
                GateSession(self._gate, self._sink, metrics=_Uncounted(), clock=clock, attempts=Immediately(2))
            )
        return self._open[number]


class Upkeep:
    """A reconciler of the simulated gate, opened when it is first wanted; `None` where no row is ever in doubt."""

    def __init__(self, world: World, gate: Gate, sink: Sink | None) -> None:
        self._world = world
        self._gate = gate
        self._sink = sink
        self._reconciler: Reconciler | None = None
        self.possible = sink is not None and _reconcilable(gate, sink)

    def open(self) -> tuple[Process, Callable[[], object]]:
        """Return the process, and what it does."""
        assert self._sink is not None
        if self._reconciler is None:
            clock = _Clock(self._world, _UPKEEP)
            self._reconciler = Reconciler(self._gate, self._sink, clock=clock, attempts=Immediately(2), seed=0)
        return Process(_UPKEEP, self._reconciler._session, None), self._reconciler.run  # noqa: SLF001


def _reconcilable(gate: Gate, sink: Sink) -> bool:
    try:
        check_reconcilable(gate, sink)
    except Misconfigured:
        return False
    return True


_UPKEEP = 1000


class _Clock:
    """The world's clock, begun at another time and somewhat too fast or slow; while it sleeps others go on."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._offset = 1000.0 * number
        self._rate = SKEWS[number % len(SKEWS)]

    def monotonic(self) -> float:
        return self._offset + self._world.now * self._rate

    def sleep(self, seconds: float) -> None:
        world = self._world
        world.current.wakes = world.now + seconds / self._rate
        world.left = 1
        world.point(ASLEEP)


class _Uncounted:
    def count(self, name: MetricName, by: int = 1) -> None:
        """Nobody asks."""

    def level(self, name: LevelName, value: int) -> None:
        """Nobody asks."""

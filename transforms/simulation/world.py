"""One clock, one set of stores, and the points at which a schedule may go another way.

Every call of a ledger, a cache or a sink has a point before it is applied and one after it, before its caller knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...connectors.errors import Misconfigured, OutcomeUnknown, Unavailable
from ...connectors.memory import MemoryStore
from ...connectors.upkeep import OpenPage
from .attempt import Attempt, Died
from .cells import Cells, Kind, Situation, Step
from .choices import Choices

try:
    from greenlet import getcurrent
except ImportError as error:
    raise Misconfigured("simulations need greenlet: pip install 'oncesink[simulation]'") from error

T = TypeVar("T")

START, GET, CLAIM, READ, TAKE, WRITE, PROBE, FINISH, RELEASE, PUT, COMMIT, ASLEEP, OUTPUT, INSERT, STATEMENT, LIST = (
    range(0, 32, 2)
)
"""Points before something; the next odd number is the point after it."""
NAMES = {
    START: "start",
    GET: "look into the cache",
    CLAIM: "claim",
    READ: "read of the ledger",
    TAKE: "take-over",
    WRITE: "write",
    PROBE: "probe",
    FINISH: "finish",
    RELEASE: "release",
    PUT: "fill of the cache",
    COMMIT: "commit",
    ASLEEP: "pause",
    OUTPUT: "commit of the engine",
    INSERT: "claim in the transaction",
    STATEMENT: "write in the transaction",
    LIST: "list of open rows",
}
SINK_CALLS = frozenset({WRITE, PROBE})
INSIDE = frozenset({INSERT, STATEMENT})

STEPS = {
    GET: Step.CACHE_ASKED,
    CLAIM: Step.CLAIMED,
    TAKE: Step.CLAIMED,
    INSERT: Step.CLAIMED,
    WRITE: Step.WRITTEN,
    STATEMENT: Step.WRITTEN,
    FINISH: Step.FINISHED,
    COMMIT: Step.FINISHED,
    PUT: Step.CACHE_FILLED,
}
"""Which calls are steps of the crash table."""

GO, REFUSE, LOSE_REPLY, ARRIVE_LATE, IN_PART, CUT_OFF = range(6)
"""Orders to an attempt that stands at a point. `IN_PART` applies the first of several writes only."""


class Clock:
    """A clock in seconds that moves when the world says so."""

    def __init__(self, world: World) -> None:
        self._world = world

    def monotonic(self) -> float:
        return self._world.now

    def sleep(self, seconds: float) -> None:
        raise AssertionError("only processes sleep")


class World:
    """What all processes of one schedule share. Used again for the next schedule after `begin`."""

    def __init__(self, kind: Kind, *, grace_seconds: float) -> None:
        self.kind = kind
        self.grace_seconds = grace_seconds
        self.cells = Cells()
        self.clock = Clock(self)
        self.hub = getcurrent()
        self.names: dict[bytes, str] = {}
        self.store = MemoryStore()
        self.store.clock = self.clock

    def begin(self, choices: Choices, story: list[str] | None) -> None:
        """Start over at time 0 with an empty store."""
        self.choices = choices
        self.store.rows, self.store.entries = {}, {}
        self.store.effects.clear()
        self.store.locked.clear()
        self.story = story
        self.now = 0.0
        self.trace = bytearray((self.kind,))
        self.left = 1
        self.faults = 0
        self.current: Attempt
        self.busy: list[Attempt] = []
        self.late: list[tuple[float, Callable[[], object]]] = []
        self.late_finishes: set[bytes] = set()
        self.hub = getcurrent()

    def point(self, code: int) -> int:
        """Go on, or stand still until the schedule comes back to the attempt that runs; return the order to it."""
        me = self.current
        if me.dead:
            raise Died
        self.trace.append(code)
        self.left -= 1
        if self.left > 0:
            return GO
        me.at = code
        order: int = self.hub.switch()
        return order

    def call(self, store: str, code: int, digests: Sequence[bytes], apply: Callable[[], T]) -> T:
        """Play one call of the attempt that runs."""
        me = self.current
        if store in me.cut_off:
            self.trace.append(code)
            raise Unavailable(f"{store} cannot be reached")
        order = self.point(code)
        if order:
            self.refuse(me, store, code, order, apply)
        value = apply()
        if self.story is not None:
            of = f" of {self.name(digests)}" if digests else ""
            self.tell(f"{me.name}: {NAMES[code]}{of}: {short(value)}")
        order = self.point(code + 1)
        if order:
            self.lose(me, code, digests)
            raise OutcomeUnknown("the reply was lost")
        return value

    def refuse(self, me: Attempt, store: str, code: int, order: int, apply: Callable[[], object]) -> None:
        """Let a call fail before it is applied."""
        if order == ARRIVE_LATE:
            self.late.append((self.now + self.grace_seconds, apply))
            raise OutcomeUnknown(f"the {NAMES[code]} hangs")
        if order == CUT_OFF:
            me.cut_off |= {store}
        raise Unavailable(f"the {NAMES[code]} failed")

    def lose(self, me: Attempt, code: int, digests: Sequence[bytes]) -> None:
        """Count the keys for which the lost reply was that to their last step."""
        step = STEPS.get(code)
        for digest in digests:
            if step is not None and me.steps.get(digest) == step:
                self.cells.count(self.kind, step, Situation.REPLY_LOST)

    def advance(self, seconds: float) -> None:
        """Let time pass, but not past the time-out of a sink call that is under way."""
        limit = self.now + seconds
        for each in self.busy:
            limit = min(each.call_ends, limit)
        self.now = max(self.now, limit)
        if self.late:
            self.arrive([each for each in self.late if each[0] <= self.now])

    def arrive(self, calls: list[tuple[float, Callable[[], object]]]) -> None:
        """Apply calls whose callers do not listen any more."""
        for each in calls:
            self.late.remove(each)
            try:
                each[1]()
                self.tell("a call that was given up arrives")
            except (Unavailable, OutcomeUnknown):
                self.tell("a call that was given up arrives and is refused")

    def tell(self, what: str) -> None:
        """Add a line to the story, if somebody wants it."""
        if self.story is not None:
            self.story.append(f"{self.now:7.2f} s  {what}")

    def name(self, digests: Sequence[bytes]) -> str:
        """Return keys as a person knows them."""
        return ", ".join(self.names.get(each, each.hex()[:8]) for each in digests)


def short(value: Any) -> str:
    """Say what a call returned."""
    if value is None:
        return "done"
    if isinstance(value, dict):
        shown = [_row(each) for each in value.values()]
        return ", ".join(shown) or "nothing was there"
    if isinstance(value, OpenPage):
        return f"{len(value.rows)} of them"
    if isinstance(value, (list, tuple)):
        return ", ".join("not there" if each is None else str(each[0].value) for each in value)
    return f"{len(value)} of them" if isinstance(value, set) else "done"


def _row(row: Any) -> str:
    if not hasattr(row, "finished"):
        return "found"
    if row.finished:
        return "finished"
    return f"open, {row.lease_left_seconds:.2f} s left"

"""Faults as values: a script says which calls of a ledger, a cache or a sink go wrong, and how.

    faults = Faults.at({("ledger", "finish", 1): Fault.LOSE_REPLY})
    OnceWriter(Gate(..., ledger=FaultyLedger(ledger, faults)), FaultySink(sink, faults))

Nothing is patched, and what is behind a wrapper (`faulty.py`) is real.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Literal, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from .errors import Misconfigured, OutcomeUnknown, Unavailable

Part = Literal["ledger", "cache", "sink"]

OnHang = Callable[[], object]
"""Called where a call hangs: moves a clock, say, past the time-out."""

Result = TypeVar("Result")


def _return(*_: object) -> None:
    """Do nothing."""


class Crash(BaseException):
    """The process died here: no handler of errors may run, and what was applied stays."""


class Fault(str, Enum):
    """What happens to a call. A cache raises `Unavailable` where `OutcomeUnknown` stands: it has no other error."""

    REFUSE = "refuse"
    """Not applied, and the caller is told: `Unavailable`."""
    LOSE_REQUEST = "lose request"
    """Not applied, and the caller cannot know: `OutcomeUnknown`."""
    LOSE_REPLY = "lose reply"
    """Applied, and the caller cannot know: `OutcomeUnknown`."""
    ARRIVE_LATE = "arrive late"
    """`OutcomeUnknown`; applied only when `Faults.deliver()` is called. For calls outside of a transaction only."""
    HANG = "hang"
    """Not applied; `on_hang` is called, then `OutcomeUnknown`, as from a time-out."""
    HANG_APPLIED = "hang applied"
    """Applied; `on_hang` is called, then `OutcomeUnknown`."""
    CRASH_BEFORE = "crash before"
    """Not applied: `Crash`."""
    CRASH_AFTER = "crash after"
    """Applied: `Crash`."""


NOT_APPLIED = frozenset({Fault.REFUSE, Fault.LOSE_REQUEST, Fault.ARRIVE_LATE, Fault.HANG, Fault.CRASH_BEFORE})


class Call(NamedTuple):
    """One call that a wrapper saw. `nth` counts from 1 among the calls of this verb, `number` among all."""

    part: Part
    verb: str
    nth: int
    number: int
    fault: Fault | None = None


class Faults:
    """A script of faults, and the trace of the calls that met it. Shared by all wrappers of one test.

    Unpickled in its own process it is the same object, so that a runner which pickles what it runs meets the same
    script.
    """

    def __init__(self, choose: Callable[[Call], Fault | None] = _return, *, on_hang: OnHang = _return) -> None:
        self.choose = choose
        self.on_hang = on_hang
        self.trace: list[Call] = []
        self._seen: Counter[tuple[Part, str]] = Counter()
        self._late: list[Callable[[], object]] = []
        self._token = uuid.uuid4().hex
        _LIVING[self._token] = self

    @classmethod
    def at(cls, faults: Mapping[tuple[Part, str, int], Fault], *, on_hang: OnHang = _return) -> Faults:
        """Break the nth call, from 1, of a part's verb: `{("sink", "write", 2): Fault.REFUSE}`."""
        return cls(lambda call: faults.get(call[:3]), on_hang=on_hang)

    @classmethod
    def sequence(cls, faults: Iterable[Fault | None], *, on_hang: OnHang = _return) -> Faults:
        """Break calls in the order in which they come, whatever they are; none once the sequence has ended."""
        rest = iter(faults)
        return cls(lambda _: next(rest, None), on_hang=on_hang)

    def deliver(self) -> int:
        """Apply the calls that are under way, in the order in which they were made; return their number."""
        late, self._late = self._late, []
        for apply in late:
            apply()
        return len(late)

    def verbs(self, part: Part | None = None) -> list[str]:
        """Return the verbs of the trace, of one part or of all."""
        return [call.verb for call in self.trace if part in {None, call.part}]

    def run(self, part: Part, verb: str, apply: Callable[[], Result]) -> Result:
        """Make a call, with the fault that the script chooses for it."""
        fault = self.meet(part, verb)
        if fault in NOT_APPLIED:
            if fault is Fault.ARRIVE_LATE:
                self._late.append(apply)
            self.strike(fault, part, verb)
        result = apply()
        self.strike(fault, part, verb)
        return result

    def meet(self, part: Part, verb: str) -> Fault | None:
        """Note a call and return its fault."""
        self._seen[part, verb] += 1
        call = Call(part, verb, self._seen[part, verb], len(self.trace) + 1)
        fault = self.choose(call)
        self.trace.append(call._replace(fault=fault))
        return fault

    def strike(self, fault: Fault | None, call_of: Part, verb: str) -> None:
        """Raise what the caller sees of a fault, if there is one."""
        if fault is None:
            return
        if fault in {Fault.HANG, Fault.HANG_APPLIED}:
            self.on_hang()
        told = f"scripted fault: {call_of} {verb}, {fault.value}"
        if fault in {Fault.CRASH_BEFORE, Fault.CRASH_AFTER}:
            raise Crash(told)
        if fault is Fault.REFUSE or call_of == "cache":
            raise Unavailable(told)
        raise OutcomeUnknown(told)

    def __reduce__(self) -> tuple[Callable[[str], Faults], tuple[str]]:
        return _living, (self._token,)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} calls={len(self.trace)} under_way={len(self._late)}>"


def _living(token: str) -> Faults:
    try:
        return _LIVING[token]
    except KeyError as error:
        raise Misconfigured("a script of faults lives in one process only, and while somebody holds it") from error


_LIVING: WeakValueDictionary[str, Faults] = WeakValueDictionary()

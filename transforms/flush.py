"""One batch through the gate. What stands between the look and the outcomes is a `Way`, chosen by the sink's kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from ..connectors.clock import Clock
from .decide import Rules
from .groups import Group, group
from .lookup import Known, Lookup, Membership, Memory
from .metrics import Metrics
from .prepare import Item
from .results import AnyOutcome
from .retry import Attempts, repeat
from .settle import Settlement
from .stored import RecordStore, ResultStore

T = TypeVar("T")


@dataclass(slots=True)
class Flushed:
    """What a flush came to: every item is in `settled`, with its outcome, in `waiting` or in `unsettled`."""

    settled: list[tuple[Item, AnyOutcome]]
    waiting: list[Item] = field(default_factory=list)
    """In doubt: ask again, holding nothing, until their leases have ended."""
    wait_seconds: float = 0.0
    """How long the longest of those leases, with its grace, still runs."""
    unsettled: list[Item] = field(default_factory=list)
    """Not decided because of `trouble`: the engine, or the caller, brings them again."""
    trouble: Exception | None = None
    cause: Exception | None = None
    """What the sink raised for a record in `waiting`, if it was this flush that sent it."""
    elsewhere: list[Item] = field(default_factory=list)
    """Of rows that were resumed: somebody else took, finished or released them meanwhile."""


@dataclass(slots=True)
class Pass:
    """One round of a flush: what a way settles, and what it could not settle."""

    settle: Settlement
    membership: Membership | None
    waiting: list[Group] = field(default_factory=list)
    wait_seconds: float = 0.0
    unsettled: list[Group] = field(default_factory=list)
    trouble: Exception | None = None
    cause: Exception | None = None
    idle_rounds: int = 0
    """Rounds, one after the other, whose lease left no time for a single call."""

    def wait(self, group: Group, seconds: float) -> None:
        """Ask for this group again when somebody's lease has ended."""
        group.done = True
        self.waiting.append(group)
        self.wait_seconds = max(self.wait_seconds, seconds)

    def ask_again(self, groups: Sequence[Group]) -> None:
        """Take these through another round: nothing is held for them."""
        for each in groups:
            each.done = True
        self.settle.again.extend(groups)

    def give_up(self, groups: Sequence[Group], trouble: Exception) -> None:
        """Leave these to the next delivery."""
        for each in groups:
            each.done = True
        self.unsettled.extend(groups)
        self.trouble = self.trouble or trouble


@dataclass(frozen=True, kw_only=True, slots=True)
class Kit:
    """What every way works with. Times in seconds."""

    rules: Rules
    memory: Memory
    attempts: Attempts
    metrics: Metrics
    clock: Clock
    sink_timeout_seconds: float = 0.0
    results: ResultStore
    records: RecordStore | None = None
    """Keeps each record in its claim; None: rows hold no record."""

    def repeat(self, call: Callable[[], T]) -> T:
        """Call until it returns, within the bounds of `attempts`: only for calls that may be repeated."""
        return repeat(call, self.attempts, self.metrics)


class Way(Protocol):
    """From groups that were looked up to outcomes."""

    def run(self, unseen: list[Group], known: Known, it: Pass) -> None:
        """Settle each group, or put it in `waiting` or `unsettled`. Whatever it raises leaves the rest unsettled."""
        ...


def flush(
    items: Sequence[Item], lookup: Lookup, way: Way, settle: Settlement, membership: Membership | None
) -> Flushed:
    """Take a batch through the gate, again for groups whose leader was refused. Never raises a store's trouble."""
    it = Pass(settle, membership)
    groups = group(items)
    while groups:
        try:
            way.run(*lookup(groups, membership), it)
        except Exception as error:  # noqa: BLE001 - whoever called the flush raises it, with what is certain
            it.give_up([each for each in groups if not each.done], error)
        groups, settle.again = settle.again, []
        for each in groups:
            each.done, each.taken = False, None
        if it.trouble is not None:
            it.unsettled.extend(groups)
            break
    return Flushed(settle.settled, _items(it.waiting), it.wait_seconds, _items(it.unsettled), it.trouble, it.cause)


def resume(known: Known, way: Way, settle: Settlement, membership: Membership | None) -> Flushed:
    """Take rows that somebody left open through the table, once: nothing is claimed for them, nor asked again."""
    it = Pass(settle, membership)
    try:
        way.run([], known, it)
    except Exception as error:  # noqa: BLE001 - as above
        it.give_up([group for group, _ in known if not group.done], error)
    lost, settle.again = settle.again, []
    flushed = Flushed(settle.settled, _items(it.waiting), it.wait_seconds, _items(it.unsettled), it.trouble, it.cause)
    flushed.elsewhere = _items(lost)
    return flushed


def _items(groups: Sequence[Group]) -> list[Item]:
    return [item for each in groups for item in (each.leader, *each.others)]

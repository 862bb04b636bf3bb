"""Give every record of a group its outcome once the leader's is certain."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from ..connectors.contract import AnyRow, Entry
from ..connectors.errors import Reason
from .decide import conflicts
from .groups import Group, regroup
from .lookup import Known
from .prepare import Item
from .results import AnyOutcome, Duplicate, Parked, Passed, Refused, Written


class Settlement:
    """The outcomes of one flush, each with its item, and the groups that must be asked again.

    `told_apart` is False where a replay and a second send look alike (a table without ledger and occurrence): then
    every record that is there goes to `written`.
    """

    __slots__ = ("_told_apart", "again", "settled")

    def __init__(self, *, told_apart: bool = True) -> None:
        self.settled: list[tuple[Item, AnyOutcome]] = []
        self.again: list[Group] = []
        self._told_apart = told_apart

    def written(self, group: Group, *, replayed: bool, result: bytes | None = None, stale: bool = False) -> None:
        """Report the effect for the leader: copies are replays of it, other occurrences its duplicates."""
        group.done = True
        self.settled.append((group.leader, _written((group.leader.record, replayed, result, stale))))
        for item in group.others:
            if group.is_copy(item) or not self._told_apart:
                self.settled.append((item, Written(item.record, True, result, stale)))
            else:
                self._second(item, group.leader.claim.payload_hash, result)

    def passed(self, group: Group) -> None:
        """Let the leader pass, with its copies; other occurrences are duplicates."""
        group.done = True
        self.settled.append((group.leader, Passed(group.leader.record)))
        for item in group.others:
            if group.is_copy(item):
                self.settled.append((item, Passed(item.record)))
            else:
                self.settled.append((item, Duplicate(item.record)))

    def dropped(self, group: Group) -> None:
        """Drop the whole group: another occurrence of the key passed before."""
        group.done = True
        for item in (group.leader, *group.others):
            self.settled.append((item, Duplicate(item.record)))

    def finished_by_other(self, group: Group, row: AnyRow) -> None:
        """Judge the whole group by a row that another occurrence finished."""
        group.done = True
        self._second(group.leader, row.payload_hash, row.result)
        for item in group.others:
            self._second(item, row.payload_hash, row.result)

    def second_sends(self, known: Known) -> Known:
        """Settle what the cache shows to be plain second sends; return the rest, for `decide`.

        Most records of a stream of duplicates: one loop, where judging each by itself would cost three times as much.
        """
        if not self._told_apart:
            return known
        rest, settled = [], self.settled
        for pair in known:
            group, entry = pair
            item = group.leader
            claim = item.claim
            if (
                group.others
                or type(entry) is not Entry
                or (entry.occurrence == claim.occurrence is not None)
                or (entry.payload_hash != claim.payload_hash and conflicts(entry.payload_hash, claim.payload_hash))
            ):
                rest.append(pair)
            else:
                group.done = True
                settled.append((item, _duplicate((item.record, entry.result))))
        return rest

    def rejected(self, group: Group, reason: Reason, detail: str) -> None:
        """Refuse the leader, whose row is gone, and its copies; the others are asked in their own right."""
        group.done = True
        rest = []
        for item in (group.leader, *group.others):
            if item is group.leader or group.is_copy(item):
                self.settled.append((item, Refused(item.record, reason, detail)))
            else:
                rest.append(item)
        if rest:
            self.again.append(regroup(rest))

    def parked(self, group: Group, detail: str) -> None:
        """Put the whole group aside for a person: nobody can tell."""
        group.done = True
        for item in (group.leader, *group.others):
            self.settled.append((item, Parked(item.record, item.claim.digest.hex(), detail)))

    def _second(self, item: Item, payload_hash: bytes | None, result: bytes | None) -> None:
        if conflicts(payload_hash, item.claim.payload_hash):
            detail = f"key {item.claim.digest.hex()} was finished with another content"
            self.settled.append((item, Refused(item.record, "conflict", detail)))
        else:
            self.settled.append((item, Duplicate(item.record, result)))


# NamedTuples without a Python frame for the making of each.
_written: Callable[[Iterable[Any]], Written] = partial(tuple.__new__, Written)
_duplicate: Callable[[Iterable[Any]], Duplicate] = partial(tuple.__new__, Duplicate)

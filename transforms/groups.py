"""Records of one key within one batch: asked once, and exactly one of them goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..connectors.contract import Claim, Row, Write
from .prepare import Item
from .stored import RecordStore


class Group:
    """The items of one key. The leader is the one that is asked and goes on; the others follow it."""

    others: Sequence[Item] = ()
    applied = False
    """Whether a call made since the row's insertion may have been applied."""
    done = False
    """Whether this round found an outcome for it, or put it off."""
    taken: Row | None = None
    """The row as it was when its owner was replaced."""
    left_over = False
    """Whether it is a row that nobody brought a record for: its row is never given back."""
    recorded = True
    """Whether the record is known; else the sink may be asked for its effect, and nothing can be written."""

    def __init__(self, leader: Item) -> None:
        self.leader = leader
        self.digest = leader.claim.digest

    def add(self, item: Item) -> None:
        """Let one more record follow."""
        self.others = [*self.others, item]

    def lead_by(self, occurrence: bytes | None) -> None:
        """Make the record that bears this occurrence the leader, if there is one."""
        if occurrence is None or self.leader.claim.occurrence == occurrence:
            return
        for index, item in enumerate(self.others):
            if item.claim.occurrence == occurrence:
                self.others = [*self.others[:index], self.leader, *self.others[index + 1 :]]
                self.leader = item
                return

    def is_copy(self, item: Item) -> bool:
        """Whether it is the leader's very delivery. Records without an occurrence are never copies of each other."""
        occurrence = item.claim.occurrence
        return occurrence is not None and occurrence == self.leader.claim.occurrence

    def owns(self, row: Row) -> bool:
        """Whether the row bears the leader's occurrence."""
        occurrence = self.leader.claim.occurrence
        return occurrence is not None and occurrence == row.occurrence

    def store(self, records: RecordStore) -> None:
        """Put the record into the leader's claim. Raises `Rejected` where it cannot be stored."""
        item = self.leader
        if item.claim.payload is None:
            self.leader = item._replace(claim=item.claim._replace(payload=records.pack(item.record)))

    def write(self) -> Write:
        """Return what the sink is sent."""
        claim = self.leader.claim
        return tuple.__new__(Write, (self.leader.record, claim.digest, claim.occurrence, claim.payload_hash))


class LeftOver(Group):
    """An open row, with the record that it holds, if it holds one. It goes on in the name of whoever had claimed it."""

    left_over = True

    def __init__(self, row: Row, record: Any, *, recorded: bool) -> None:
        super().__init__(Item(record, Claim(row.digest, row.occurrence, row.payload_hash, row.payload)))
        self.recorded = recorded

    def owns(self, row: Row) -> bool:
        """Whether the row is this one's: always, also where it bears no occurrence."""
        return True


def group(items: Sequence[Item]) -> list[Group]:
    """Group items by key, in the order in which the keys first come."""
    groups = {item.claim.digest: Group(item) for item in items}
    if len(groups) == len(items):
        # Nearly always: no key comes twice.
        return list(groups.values())
    groups = {}
    for item in items:
        digest = item.claim.digest
        known = groups.get(digest)
        if known is None:
            groups[digest] = Group(item)
        else:
            known.add(item)
    return list(groups.values())


def regroup(items: Sequence[Item]) -> Group:
    """Make one group of the followers of a leader that was rejected."""
    again = Group(items[0])
    for item in items[1:]:
        again.add(item)
    return again

"""`DropDuplicates`: the row is inserted finished, and its occurrence passes."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from ..connectors.contract import AnyRow, Entry, LedgerSession, Row
from .decide import Verdict, decide
from .flush import Kit, Pass
from .groups import Group
from .lookup import Known, remember


class DropWay:
    """One statement claims; a row that was there already tells which occurrence may pass."""

    def __init__(self, ledger: LedgerSession, kit: Kit) -> None:
        self._ledger = ledger
        self._kit = kit

    def run(self, unseen: list[Group], known: Known, it: Pass) -> None:
        owner = secrets.token_bytes(16)
        rows = self._claim(unseen, owner) if unseen else {}
        entries: dict[bytes, Entry] = {}
        for each in unseen:
            if rows:
                self._judge(each, rows[each.digest], owner, it, entries)
            else:
                it.settle.passed(each)
                entries[each.digest] = Entry(each.leader.claim.occurrence, each.leader.claim.payload_hash, None)
        for each, row in known:
            self._judge(each, row, owner, it, entries)
        self._kit.memory.keep(entries, it.membership)

    def _claim(self, groups: list[Group], owner: bytes) -> Mapping[bytes, Row]:
        claims = [each.leader.claim for each in groups]
        self._kit.metrics.count("ledger_claimed", len(claims))
        return self._kit.repeat(lambda: self._ledger.claim(claims, owner=owner, lease_seconds=None))

    def _judge(self, group: Group, row: AnyRow, owner: bytes, it: Pass, entries: dict[bytes, Entry]) -> None:
        group.lead_by(row.occurrence)
        if decide(row, group.leader.claim, owner, self._kit.rules) is Verdict.PASS:
            it.settle.passed(group)
        else:
            it.settle.dropped(group)
        remember(row, entries)

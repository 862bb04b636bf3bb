"""A transactional sink: ledger rows, inserted finished, and business rows in one transaction."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial

from ..connectors.contract import Answer, AnyRow, Entry, LedgerSession, Outcome, Row, SinkSession
from ..connectors.errors import OutcomeUnknown, Rejected, Unavailable
from .decide import Verdict, decide
from .flush import Kit, Pass
from .groups import Group
from .lookup import Known, remember

_NOBODY = b"nobody"

Owners = dict[bytes, frozenset[bytes]]
"""The attempts of a unit by their owners, in order: which digests were stale."""


class _SomeRefused(Exception):
    """The sink named the records that it refuses; the unit was rolled back."""

    def __init__(self, refused: list[tuple[Group, Answer]]) -> None:
        super().__init__(len(refused))
        self.refused = refused


class UnitWay:
    """Every unit holds the ledger rows of exactly the records whose business rows it carries.

    Any error rolls the unit back and runs it again from the insert. Each attempt draws an owner of its own, so that
    a row of an earlier attempt, whose commit went through although its reply was lost, is told from a row that this
    attempt inserted.
    """

    def __init__(self, ledger: LedgerSession, sink: SinkSession, kit: Kit) -> None:
        self._ledger = ledger
        self._sink = sink
        self._kit = kit

    def run(self, unseen: list[Group], known: Known, it: Pass) -> None:
        entries: dict[bytes, Entry] = {}
        for each, row in it.settle.second_sends(known):
            self._judge(each, row, {}, it)
            remember(row, entries)
        self._kit.memory.keep(entries, it.membership)
        if unseen:
            self._unit(unseen, it)

    def _unit(self, groups: Sequence[Group], it: Pass) -> None:
        """Run one unit; halve it around a record that the sink refuses without naming it."""
        owners: Owners = {}
        try:
            fresh, known = self._kit.repeat(partial(self._attempt, groups, owners))
        except _SomeRefused as some:
            return self._without(groups, some.refused, it)
        except Rejected as error:
            if len(groups) == 1:
                return it.settle.rejected(groups[0], error.reason, error.detail)
            middle = len(groups) // 2
            self._unit(groups[:middle], it)
            return self._unit(groups[middle:], it)
        entries: dict[bytes, Entry] = {}
        stale = next(reversed(owners.values()))
        for each in fresh:
            it.settle.written(each, replayed=False, stale=each.digest in stale)
        if self._kit.memory.wants(it.membership):
            claims = [each.leader.claim for each in fresh]
            entries = {claim.digest: Entry(claim.occurrence, claim.payload_hash, None) for claim in claims}
        for each, row in known:
            self._judge(each, row, owners, it)
            remember(row, entries)
        self._kit.memory.keep(entries, it.membership)

    def _attempt(self, groups: Sequence[Group], owners: Owners) -> tuple[Sequence[Group], Known]:
        owner = secrets.token_bytes(16)
        owners[owner] = frozenset()
        claims = [each.leader.claim for each in groups]
        self._kit.metrics.count("ledger_claimed", len(claims))
        with self._ledger.transaction():
            rows = self._ledger.claim(claims, owner=owner, lease_seconds=None)
            fresh = [each for each in groups if rows[each.digest].owner == owner] if rows else groups
            owners[owner] = self._write(fresh)
        known: Known = []
        if rows:
            known = [(each, rows[each.digest]) for each in groups if rows[each.digest].owner != owner]
        return fresh, known

    def _write(self, groups: Sequence[Group]) -> frozenset[bytes]:
        """Write them all, or raise; return the digests of those that were stale."""
        if not groups:
            return frozenset()
        answers = self._sink.write([each.write() for each in groups], timeout_seconds=self._kit.sink_timeout_seconds)
        refused, stale = [], []
        for each, answer in zip(groups, answers, strict=True):
            if answer.outcome is Outcome.WRITTEN:
                continue
            if answer.outcome is Outcome.REJECTED:
                refused.append((each, answer))
            elif answer.outcome is Outcome.UNAVAILABLE:
                raise Unavailable(answer.detail or "the sink is unavailable")
            elif answer.outcome is Outcome.STALE:
                stale.append(each.digest)
            else:
                raise OutcomeUnknown(f"a transactional sink cannot answer {answer.outcome.value}")
        if refused:
            raise _SomeRefused(refused)
        return frozenset(stale)

    def _without(self, groups: Sequence[Group], refused: list[tuple[Group, Answer]], it: Pass) -> None:
        for each, answer in refused:
            it.settle.rejected(each, answer.reason, answer.detail)
        rest = [each for each in groups if not each.done]
        if rest:
            self._unit(rest, it)

    def _judge(self, group: Group, row: AnyRow, owners: Owners, it: Pass) -> None:
        group.lead_by(row.occurrence)
        mine = row.owner if isinstance(row, Row) and row.owner in owners else _NOBODY
        verdict = decide(row, group.leader.claim, mine, self._kit.rules)
        if verdict is Verdict.CONFIRMED:
            it.settle.written(group, replayed=False, result=row.result, stale=group.digest in owners[mine])
        elif verdict is Verdict.REPLAYED:
            it.settle.written(group, replayed=True, result=row.result)
        else:
            it.settle.finished_by_other(group, row)

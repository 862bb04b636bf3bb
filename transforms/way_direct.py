"""A sink that drops a second write by key, without a ledger: its own unique key does the work."""

from __future__ import annotations

import math

from ..connectors.contract import Answer, AnyRow, Entry, Outcome
from ..connectors.errors import OutcomeUnknown
from .decide import Verdict, decide
from .flush import Kit, Pass
from .groups import Group
from .lookup import Known
from .sender import Sender, Sent


class DirectWay:
    """Write at once. `tells_occurrence`: the sink keeps the occurrence, so that a replay is told from a second send."""

    def __init__(self, sender: Sender, kit: Kit, *, tells_occurrence: bool) -> None:
        self._sender = sender
        self._kit = kit
        self._tells = tells_occurrence

    def run(self, unseen: list[Group], known: Known, it: Pass) -> None:
        for each, row in it.settle.second_sends(known):
            self._judge(each, row, it)
        if not unseen:
            return
        sent = self._sender.send(unseen, math.inf)
        if self._kit.memory.wants(it.membership):
            self._remember(sent, it)
        for group, answer in sent.answered:
            self._settle(group, answer, it)
        left = sent.unsent + sent.unknown
        if left:
            it.give_up(left, sent.trouble or OutcomeUnknown("the sink gave no certain answer"))

    def _remember(self, sent: Sent, it: Pass) -> None:
        there = [(group, answer) for group, answer in sent.answered if answer.outcome is not Outcome.REJECTED]
        self._kit.memory.keep({group.digest: self._entry(group, answer) for group, answer in there}, it.membership)

    def _settle(self, group: Group, answer: Answer, it: Pass) -> None:
        if answer.outcome is Outcome.WRITTEN:
            return it.settle.written(group, replayed=False, result=answer.result)
        if answer.outcome is Outcome.REJECTED:
            return it.settle.rejected(group, answer.reason, answer.detail)
        if answer.outcome is Outcome.STALE:
            return it.settle.written(group, replayed=False, result=answer.result, stale=True)
        self._judge(group, self._entry(group, answer), it)

    def _entry(self, group: Group, answer: Answer) -> Entry:
        if answer.outcome is not Outcome.ALREADY:
            return Entry(group.leader.claim.occurrence, None, answer.result)
        return Entry(answer.occurrence if self._tells else None, None, answer.result)

    def _judge(self, group: Group, row: AnyRow, it: Pass) -> None:
        if not self._tells:
            return it.settle.written(group, replayed=True, result=row.result)
        group.lead_by(row.occurrence)
        if decide(row, group.leader.claim, _NOBODY, self._kit.rules) is Verdict.REPLAYED:
            it.settle.written(group, replayed=True, result=row.result)
        else:
            it.settle.finished_by_other(group, row)


_NOBODY = b"nobody"

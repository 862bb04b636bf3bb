"""`observe=True`: the ledger learns, `would_drop` counts, and nothing is dropped.

Records are written as they were before there was a gate: at least once, second sends included. A row is inserted
finished only when its effect is there, so that the gate can be switched on later with the rows that were learned.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence

from ..connectors.contract import Answer, Entry, Finish, LedgerSession, Outcome, SinkSession, Write
from ..connectors.errors import OutcomeUnknown
from .digest import DIGEST_BYTES
from .flush import Kit, Pass
from .groups import Group, regroup
from .lookup import Known, remember
from .metrics import Metrics
from .prepare import Item
from .results import Passed, Refused, Written
from .sender import Sender
from .settle import Settlement


class ObservingSettlement(Settlement):
    """Outcomes of a filter that lets everything pass."""

    __slots__ = ("_metrics",)

    def __init__(self, metrics: Metrics) -> None:
        super().__init__()
        self._metrics = metrics

    def passed(self, group: Group) -> None:
        self._pass(group, sum(not group.is_copy(item) for item in group.others))

    def dropped(self, group: Group) -> None:
        self._pass(group, 1 + len(group.others))

    def second_sends(self, known: Known) -> Known:
        return known

    def _pass(self, group: Group, would_drop: int) -> None:
        group.done = True
        self._metrics.count("would_drop", would_drop)
        self.settled += [(item, Passed(item.record)) for item in (group.leader, *group.others)]


class _Single(Group):
    """One record on its way to the sink. A live gate would not write it unless it is `fresh`."""

    def __init__(self, item: Item, *, fresh: bool) -> None:
        # A sink that drops a second write by key must not recognise it: it gets a key that no other write has.
        claim = item.claim if fresh else item.claim._replace(digest=secrets.token_bytes(DIGEST_BYTES))
        super().__init__(item._replace(claim=claim))
        self.item = item
        self.fresh = fresh


class ObserveWay:
    """Write everything, then insert the rows of what was new."""

    def __init__(self, ledger: LedgerSession, sender: Sender, kit: Kit) -> None:
        self._ledger = ledger
        self._sender = sender
        self._kit = kit

    def run(self, unseen: list[Group], known: Known, it: Pass) -> None:
        entries: dict[bytes, Entry] = {}
        seen = [each for each, _ in known]
        for _, row in known:
            remember(row, entries)
        singles = [_Single(item, fresh=False) for each in seen for item in (each.leader, *each.others)]
        singles += self._apart(unseen, entries)
        for each in (*seen, *unseen):
            each.done = True
        learned = self._write(singles, it)
        self._learn(learned, entries)
        self._kit.memory.keep(entries, it.membership)

    def _apart(self, groups: Sequence[Group], entries: dict[bytes, Entry]) -> list[_Single]:
        """Take groups apart: the leader of each is new unless its row is there."""
        if not groups:
            return []
        digests = [each.digest for each in groups]
        rows = self._kit.repeat(lambda: self._ledger.read(digests))
        found = []
        for each in groups:
            row = rows.get(each.digest)
            if row is not None:
                remember(row, entries)
            found.append(_Single(each.leader, fresh=row is None or not row.finished))
            found += [_Single(item, fresh=False) for item in each.others]
        return found

    def _write(self, singles: Sequence[_Single], it: Pass) -> list[Finish]:
        """Write; settle what is certain, leave the rest to the next delivery; return what is new and there."""
        sent = self._sender.send(singles, math.inf)
        learned = []
        for single, answer in sent.answered:
            assert isinstance(single, _Single)
            if answer.outcome is Outcome.REJECTED:
                it.settle.settled.append((single.item, Refused(single.item.record, answer.reason, answer.detail)))
                continue
            stale = answer.outcome is Outcome.STALE
            it.settle.settled.append((single.item, Written(single.item.record, False, answer.result, stale)))
            if single.fresh:
                learned.append(Finish(single.item.claim._replace(payload=None), answer.result))
            else:
                self._kit.metrics.count("would_drop")
        left = [each.item for each in (*sent.unsent, *sent.unknown) if isinstance(each, _Single)]
        if left:
            it.give_up([regroup(left)], sent.trouble or OutcomeUnknown("the sink gave no certain answer"))
        return learned

    def _learn(self, learned: Sequence[Finish], entries: dict[bytes, Entry]) -> None:
        """Insert finished rows; a row that somebody else was quicker with stays, and its record counts."""
        if not learned:
            return
        owner = secrets.token_bytes(16)
        self._kit.metrics.count("ledger_finished", len(learned))
        others = self._kit.repeat(lambda: self._ledger.finish(learned, owner=owner))
        self._kit.metrics.count("would_drop", len(others))
        for (digest, occurrence, payload_hash, *_), result in learned:
            if digest not in others:
                entries[digest] = Entry(occurrence, payload_hash, result)


_APPLIED = (Outcome.WRITTEN, Outcome.STALE)


class _SomeRefused(Exception):
    """The transaction is rolled back around these."""


class OwnTransaction:
    """A transactional sink whose every call is a transaction of its own."""

    store_id = None

    def __init__(self, ledger: LedgerSession, sink: SinkSession) -> None:
        self._ledger = ledger
        self._sink = sink

    def write(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer]:
        refused: dict[bytes, Answer] = {}
        while True:
            left = [each for each in writes if each.digest not in refused]
            try:
                with self._ledger.transaction():
                    answers = dict(
                        zip(
                            [each.digest for each in left],
                            self._sink.write(left, timeout_seconds=timeout_seconds),
                            strict=True,
                        )
                    )
                    bad = {digest: each for digest, each in answers.items() if each.outcome not in _APPLIED}
                    if bad:
                        raise _SomeRefused
            except _SomeRefused:
                refused |= bad
                continue
            return [(refused | answers)[each.digest] for each in writes]

    def probe(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer | None]:
        return self._sink.probe(writes, timeout_seconds=timeout_seconds)

    def close(self) -> None:
        self._sink.close()

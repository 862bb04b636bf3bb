"""A sink outside the ledger's transaction: claim (commit), write, finish (commit).

A time line of one claim, on the store's clock:

    claim sent   claim stored                       lease ends        lease + grace
    |------------|--- write, with its time-out ---|---|------ grace -----|---> another flush may take over
    the holder's deadline counts from here:       no call may run on past it
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from ..connectors.contract import (
    Answer,
    AnyRow,
    Claim,
    Entry,
    Finish,
    LedgerSession,
    Outcome,
    Row,
    SinkKind,
    SinkSession,
    Take,
)
from ..connectors.errors import Rejected, Unavailable
from .claimed_round import Done, Doubt, Round
from .decide import Verdict, decide
from .flush import Kit, Pass
from .give_back import give_back
from .groups import Group
from .lookup import Known, remember
from .sender import Sender, Sent
from .stored import RecordStore

IDLE_ROUNDS = 3
"""How often claims are given back and asked again because their lease was over before a call could begin."""

MISSING = "surely not written, and its row holds no record to write"


class ClaimedWay:
    """Claim, take over what is in doubt, write, finish. Every certain outcome is finished before anything is raised."""

    def __init__(self, ledger: LedgerSession, sink: SinkSession, sender: Sender, kit: Kit) -> None:
        self._ledger = ledger
        self._sink = sink
        self._sender = sender
        self._kit = kit

    def run(self, unseen: list[Group], known: Known, it: Pass) -> None:
        deadline = self._kit.clock.monotonic() + self._kit.rules.lease_seconds
        now = Round(secrets.token_bytes(16), deadline, it)
        for each, row in it.settle.second_sends(known):
            self._judge(each, row, now)
        self._claim(unseen, now)
        try:
            self._take_over(now)
        except Exception as error:  # noqa: BLE001 - what was claimed must be sent, or given back, all the same
            it.give_up([group for group, _, _ in now.doubt if not group.done and group.taken is None], error)
        sent = self._sender.send(now.write, now.deadline) if now.write else Sent()
        refused = self._sort(sent, now)
        try:
            self._finish(now)
        finally:
            self._release(refused, sent, now)

    def _claim(self, groups: list[Group], now: Round) -> None:
        if self._kit.records is not None:
            groups = self._storable(groups, self._kit.records, now)
        if not groups:
            return
        claims = [each.leader.claim for each in groups]
        self._kit.metrics.count("ledger_claimed", len(claims))
        rows = self._kit.repeat(
            lambda: self._ledger.claim(claims, owner=now.owner, lease_seconds=self._kit.rules.lease_seconds)
        )
        if not rows:
            now.write.extend(groups)
            return
        for each in groups:
            self._judge(each, rows[each.digest], now)

    def _storable(self, groups: list[Group], records: RecordStore, now: Round) -> list[Group]:
        """Put each record into its claim; refuse those that no row can hold."""
        return [each for each in groups if self._store(each, records, now)]

    def _store(self, group: Group, records: RecordStore, now: Round) -> bool:
        try:
            group.store(records)
        except Rejected as error:
            now.it.settle.rejected(group, error.reason, error.detail)
        return not group.done

    def _judge(self, group: Group, row: AnyRow, now: Round) -> None:
        if group.others:
            group.lead_by(row.occurrence)
        verdict = decide(row, group.leader.claim, now.owner, self._kit.rules)
        if isinstance(row, Row):
            if not row.finished:
                return self._open(group, row, verdict, now)
            remember(row, now.seen)
        if verdict is Verdict.CONFIRMED or verdict is Verdict.REPLAYED:
            return now.it.settle.written(group, replayed=verdict is Verdict.REPLAYED, result=row.result)
        return now.it.settle.finished_by_other(group, row)

    def _open(self, group: Group, row: Row, verdict: Verdict, now: Round) -> None:
        if verdict is Verdict.WRITE:
            return now.write.append(group)
        self._kit.metrics.count("in_doubt")
        if verdict is Verdict.WAIT:
            return now.it.wait(group, row.lease_left_seconds + self._kit.rules.grace_seconds)
        return self._doubt(group, row, now)

    def _doubt(self, group: Group, row: Row, now: Round) -> None:
        action = self._kit.rules.replay(row)
        if action == "park":
            return now.it.settle.parked(group, "in doubt: an earlier attempt may have written it")
        if action == "write" and not group.recorded:
            return now.it.settle.parked(group, "in doubt, and its row holds no record to write")
        if self._kit.records is None or group.owns(row) or self._store(group, self._kit.records, now):
            now.doubt.append((group, row, action))

    def _take_over(self, now: Round) -> None:
        """Replace the owners of rows in doubt, each only if it is still as it was seen, then write or probe."""
        if not now.doubt:
            return
        takes = [
            Take(row.digest, row, group.leader.claim if action == "write" and not group.owns(row) else None)
            for group, row, action in now.doubt
        ]
        taken = self._take(takes, now)
        now.it.ask_again([group for group, row, _ in now.doubt if row.digest not in taken])
        mine = [doubt for doubt in now.doubt if doubt[1].digest in taken]
        for group, row, action in mine:
            group.taken = row
            if action == "write":
                now.write.append(group)
        self._probe([doubt for doubt in mine if doubt[2] == "probe"], now)

    def _take(self, takes: Sequence[Take], now: Round) -> set[bytes]:
        taken = self._kit.repeat(
            lambda: self._ledger.take(takes, owner=now.owner, lease_seconds=self._kit.rules.lease_seconds)
        )
        self._kit.metrics.count("taken_over", len(taken))
        return taken

    def _probe(self, doubts: Sequence[Doubt], now: Round) -> None:
        """Ask the sink; what it has is finished for the occurrence that had claimed it, the rest is written."""
        if not doubts:
            return None
        if self._kit.clock.monotonic() + self._kit.sink_timeout_seconds > now.deadline:
            for group, _, _ in doubts:
                now.it.wait(group, self._held_seconds())
            return None
        self._kit.metrics.count("probed", len(doubts))
        writes = [group.write() for group, _, _ in doubts]
        try:
            answers = self._kit.repeat(lambda: self._sink.probe(writes, timeout_seconds=self._kit.sink_timeout_seconds))
        except Exception as error:  # noqa: BLE001 - it is the sink's; the rest of the batch must go on
            groups = [group for group, _, _ in doubts]
            give_back(groups, self._ledger, self._kit, owner=now.owner)
            return now.it.give_up(groups, error)
        missing = []
        for (group, row, _), answer in zip(doubts, answers, strict=True):
            if answer is None:
                missing.append((group, row))
            else:
                claim = Claim(row.digest, row.occurrence, row.payload_hash)
                stale = answer.outcome is Outcome.STALE
                finish = Finish(claim, self._kit.results.encode(answer.result))
                now.done.append(Done(group, finish, group.owns(row), not stale, stale))
        return self._write_missing(missing, now)

    def _write_missing(self, missing: Sequence[tuple[Group, Row]], now: Round) -> None:
        """Let each row name the occurrence that is about to write, then write."""
        for group, _ in missing:
            if not group.recorded:
                now.it.settle.parked(group, MISSING)
        foreign = [group for group, row in missing if not group.owns(row)]
        if foreign:
            named = self._take([Take(each.digest, None, each.leader.claim) for each in foreign], now)
            now.it.ask_again([each for each in foreign if each.digest not in named])
        now.write.extend(group for group, _ in missing if not group.done)

    def _sort(self, sent: Sent, now: Round) -> list[tuple[Group, Answer]]:
        """Queue what is certain for the finish, park what nobody can tell; return refused records whose row may go."""
        refused = []
        for group, answer in sent.answered:
            if answer.outcome is not Outcome.REJECTED:
                finish = Finish(group.leader.claim, answer.result)
                replayed, stale = answer.outcome is Outcome.ALREADY, answer.outcome is Outcome.STALE
                now.done.append(Done(group, finish, True, replayed, stale))
            elif self._untouched(group):
                refused.append((group, answer))
            else:
                now.it.settle.parked(group, f"{answer.reason}: {answer.detail}; an earlier call may have been applied")
        return refused

    def _untouched(self, group: Group) -> bool:
        """Whether the claim may be given back.

        No call since the row's insertion can have been applied, or the sink would have answered ALREADY.
        """
        if group.left_over:
            return False
        if group.taken is None:
            return not group.applied or self._kit.rules.kind is SinkKind.DROPS_BY_KEY
        return self._kit.rules.drops(group.taken)

    def _finish(self, now: Round) -> None:
        """Finish in the ledger; only then settle, and fill cache and filter."""
        if now.done:
            finishes = [each.finish for each in now.done]
            self._kit.metrics.count("ledger_finished", len(finishes))
            late = self._kit.repeat(lambda: self._ledger.finish(finishes, owner=now.owner))
            self._kit.metrics.count("late_finishes", len(late))
            for each in now.done:
                self._settle(each, late, now)
        elapsed = self._kit.rules.lease_seconds - (now.deadline - self._kit.clock.monotonic())
        for digest, entry in now.seen.items():
            now.entries.setdefault(digest, entry._replace(age_seconds=entry.age_seconds + elapsed))
        self._kit.memory.keep(now.entries, now.it.membership)

    def _settle(self, done: Done, late: set[bytes], now: Round) -> None:
        (digest, occurrence, payload_hash, _), result = done.finish
        if digest not in late:
            now.entries[digest] = Entry(occurrence, payload_hash, result)
        if done.mine:
            now.it.settle.written(done.group, replayed=done.replayed, result=result, stale=done.stale)
        else:
            row = Row(digest, True, occurrence, now.owner, payload_hash, result, None, 0.0, 0.0)
            now.it.settle.finished_by_other(done.group, row)

    def _release(self, refused: Sequence[tuple[Group, Answer]], sent: Sent, now: Round) -> None:
        """Give back the claims for which nothing can have been applied; the rest stays in doubt."""
        untaken = [each for each in sent.unsent if each.taken is None]
        digests = [each.digest for each in untaken] + [group.digest for group, _ in refused]
        if digests:
            self._kit.metrics.count("released", len(digests))
            self._kit.repeat(lambda: self._ledger.release(digests, owner=now.owner))
        for group, answer in refused:
            now.it.settle.rejected(group, answer.reason, answer.detail)
        taken = [each for each in sent.unsent if each.taken is not None]
        back = give_back(taken, self._ledger, self._kit, owner=now.owner)
        self._put_off(untaken + back, [each for each in taken if each not in back] + sent.unknown, sent, now)

    def _put_off(self, free: Sequence[Group], held: Sequence[Group], sent: Sent, now: Round) -> None:
        """Ask again for what ran out of time; leave to the next delivery what met trouble."""
        now.it.idle_rounds = 0 if sent.answered or not sent.late else now.it.idle_rounds + 1
        if free and (sent.trouble or now.it.idle_rounds > IDLE_ROUNDS) and not (sent.late and sent.answered):
            now.it.give_up(free, sent.trouble or Unavailable("claiming took so long that no lease had time for a call"))
        else:
            # A slow sink gets on with some of them under each lease.
            now.it.ask_again(free)
        if held and self._kit.rules.kind is SinkKind.DROPS_BY_KEY and sent.trouble is not None:
            return now.it.give_up(held, sent.trouble)
        for each in held:
            now.it.wait(each, self._held_seconds())
        now.it.cause = now.it.cause or (sent.trouble if held else None)

    def _held_seconds(self) -> float:
        return self._kit.rules.lease_seconds + self._kit.rules.grace_seconds

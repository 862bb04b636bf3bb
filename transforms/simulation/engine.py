"""An engine that takes back what it has not committed: lanes, workers, checkpoints, restores, rescaling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from greenlet import greenlet

from ...connectors.errors import OutcomeUnknown, Unavailable
from ..patience import settle
from ..prepare import Item
from ..results import AnyOutcome
from .attempt import Attempt, Died
from .cells import Situation, Step
from .process import Process
from .world import OUTPUT, World

LANES = 4
BATCHES = (4, 1, 2, 3)
_OPEN = frozenset({Step.CLAIMED, Step.WRITTEN})


class Commit(NamedTuple):
    """Outputs and positions that a checkpoint has made durable."""

    attempt: Attempt
    outcomes: Sequence[tuple[Item, AnyOutcome]]


class _Fate:
    """How a delivery's last attempt ended."""

    __slots__ = ("attempt", "copies", "losses", "older", "passes", "step")

    def __init__(self, attempt: Attempt, step: int, losses: int, copies: int, passes: int) -> None:
        self.attempt = attempt
        self.step = step
        self.losses = losses
        self.copies = copies
        self.passes = passes
        self.older = False


class Engine:
    """Brings every delivery again until its outcome is committed."""

    def __init__(self, world: World, items: list[Item], open_process: Callable[[int], Process], *, keyed: bool) -> None:
        self.world = world
        self.pending = items
        self.commits: list[Commit] = []
        self.workers = 2
        self.replays = 0
        self.attempts = 0
        self.losses = 0
        self.copies = 0
        self.passes = 0
        self.unexpected: BaseException | None = None
        self._open = open_process
        self.opened = 0
        self._keyed = keyed
        self._processes: dict[int, Process] = {}
        self._running: dict[int, Attempt] = {}
        self._fates: dict[int, _Fate] = {}

    @property
    def running(self) -> list[Attempt]:
        """The attempts whose output would be taken."""
        return list(self._running.values())

    def fill(self) -> None:
        """Give every idle worker a batch."""
        for slot in range(self.workers):
            if slot not in self._running and self.pending:
                self._start(slot)

    def _start(self, slot: int) -> None:
        mine = [each for each in self.pending if self._lane(each) % self.workers == slot]
        if not mine:
            return
        pick = self.world.choices.pick
        batch = mine[: BATCHES[pick(4)]]
        taken = set(map(id, batch))
        self.pending = [each for each in self.pending if id(each) not in taken]
        if pick(12) == 11:
            batch.append(batch[0])
        process = self._processes.get(slot)
        if process is None:
            self.opened += 1
            process = self._processes[slot] = self._open(self.opened)
        self.attempts += 1
        attempt = Attempt(self.attempts, process, batch)
        attempt.strand = greenlet(lambda order: self._run(attempt, order))
        self._count(attempt)
        self._running[slot] = attempt
        self.world.busy.append(attempt)
        if self.world.story is not None:
            told = ", ".join(f"{self.world.names[each.claim.digest]}@{each.context.at}" for each in batch)
            self.world.tell(f"engine: worker {process.number} gets {told}")

    def _lane(self, item: Item) -> int:
        delivery = item.context
        return int(delivery.key if self._keyed else delivery.at) % LANES

    def _run(self, attempt: Attempt, order: int) -> None:
        """Do what an engine does with a batch: flush, wait, commit."""
        world, process = self.world, attempt.process
        try:
            if order:
                raise Unavailable("the bundle failed before it began")
            session, membership = process.session, process.membership
            settled, trouble = settle(attempt.batch, lambda some: session.flush(some, membership), process.clock)
            if trouble is not None:
                raise trouble
            if world.point(OUTPUT):
                raise Unavailable("the bundle failed behind the gate")
            attempt.settled = settled
        except (Died, Unavailable, OutcomeUnknown) as error:
            attempt.error = error
        except BaseException as error:  # noqa: BLE001 - it is a broken promise, and told as one
            self.unexpected = attempt.error = error
        attempt.done = True

    def reconcile(self, process: Process, work: Callable[[], object]) -> None:
        """Let a reconciler make a pass over the rows that are open, beside the workers."""
        self.passes += 1
        self.attempts += 1
        attempt = Attempt(self.attempts, process, ())
        attempt.strand = greenlet(lambda _: self._pass(attempt, work))
        self.world.busy.append(attempt)

    def _pass(self, attempt: Attempt, work: Callable[[], object]) -> None:
        try:
            work()
        except (Died, Unavailable, OutcomeUnknown):
            pass
        except BaseException as error:  # noqa: BLE001 - it is a broken promise, and told as one
            self.unexpected = error
        attempt.done = True

    def ended(self, attempt: Attempt) -> None:
        """Commit what came out, or take the batch back; a zombie's output is thrown away."""
        slot = self._slot(attempt)
        if slot is None:
            return
        del self._running[slot]
        if attempt.settled is None:
            self.world.tell(f"engine: {attempt.name} failed: {attempt.error}")
            self._take_back(attempt)
        else:
            self.commits.append(Commit(attempt, attempt.settled))
            self.world.tell(f"engine: commits what {attempt.name} gave")

    def given_up(self, attempt: Attempt) -> None:
        """Take the batch back; the process is replaced, whether it lives on or not."""
        slot = self._slot(attempt)
        if slot is not None:
            del self._running[slot]
            del self._processes[slot]
            self._take_back(attempt)

    def restore(self, keep: int) -> None:
        """Go back to an older checkpoint: what was committed since is taken back. Call `given_up` for all before."""
        undone, self.commits = self.commits[keep:], self.commits[:keep]
        for commit in undone:
            self._take_back(commit.attempt)
        if undone:
            for fate in self._fates.values():
                fate.older = True

    def rescale(self, workers: int) -> None:
        """Spread the lanes over another number of workers. Call `given_up` for all before."""
        self.workers = workers
        self._processes.clear()

    def _slot(self, attempt: Attempt) -> int | None:
        return next((slot for slot, each in self._running.items() if each is attempt), None)

    def _take_back(self, attempt: Attempt) -> None:
        elsewhere = {item.claim.digest: item.context.at for each in self.world.busy for item in each.batch
                     if each is not attempt}  # fmt: skip
        cells, kind = self.world.cells, self.world.kind
        batch = {item.context.at: item for item in attempt.batch}
        for at, item in batch.items():
            digest = item.claim.digest
            step = attempt.steps.get(digest, 0)
            self._fates[at] = _Fate(attempt, step, self.losses, self.copies, self.passes)
            if elsewhere.get(digest, at) != at:
                cells.count(kind, step, Situation.DUPLICATE_ELSEWHERE)
        self.pending = sorted([*self.pending, *batch.values()], key=_at)

    def _count(self, attempt: Attempt) -> None:
        """Note in which situations the deliveries of this attempt come again."""
        world, fates = self.world, self._fates
        cells, kind = world.cells, world.kind
        ats = [item.context.at for item in attempt.batch]
        reordered = ats != sorted(ats)
        for item in attempt.batch:
            fate = fates.pop(item.context.at, None)
            if fate is None:
                continue
            self.replays += 1
            same = fate.attempt.process is attempt.process
            cells.count(kind, fate.step, Situation.SAME_WORKER if same else Situation.ANOTHER_WORKER)
            for situation, holds in (
                (Situation.ZOMBIE, not fate.attempt.done and not fate.attempt.dead),
                (Situation.OLDER_STATE, fate.older),
                (Situation.ANOTHER_ORDER, reordered),
                (Situation.REDIS_LOST, fate.losses < self.losses),
                (Situation.REDIS_OLD_COPY, fate.copies < self.copies),
                (Situation.LEASE_OVER, kind.leases and fate.step in _OPEN and self._lease_over(item)),
                (Situation.RECONCILER, fate.passes < self.passes and fate.step in _OPEN),
            ):
                if holds:
                    cells.count(kind, fate.step, situation)

    def _lease_over(self, item: Item) -> bool:
        world = self.world
        row = world.store.rows.get(item.claim.digest)
        return row is not None and row.lease_until is not None and row.lease_until + world.grace_seconds < world.now


def _at(item: Item) -> int:
    return int(item.context.at)

"""One schedule: who goes on at each point, what breaks there, and what the engine does meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from .attempt import NEVER, Attempt, Died
from .engine import Engine
from .failover import FailOver
from .orders import DIE, ORDERS, TOLD
from .process import Upkeep
from .world import GO, NAMES, World

LONGEST_VISITS = 1000
COPIED_EVERY = 16
"""Turns after which a replica of Redis has caught up."""
PACES = ((16, 2), (8, 3), (4, 5), (2, 9), (1, 16))
"""How many points an attempt may pass at most before somebody else gets a turn, and of how many turns one disturbs."""


class DoesNotEnd(Exception):
    """Work is left although nothing has been disturbed for long."""


class Schedule:
    """Drives the attempts of an engine until every delivery is committed."""

    def __init__(
        self, world: World, engine: Engine, *, lease_seconds: float, redis: FailOver, upkeep: Upkeep | None
    ) -> None:
        self.world = world
        self.engine = engine
        self._lease_seconds = lease_seconds
        self._redis = redis
        self._upkeep = upkeep
        self._disturbances = 2 + world.choices.pick(7)
        self._run, self._calm = PACES[world.choices.pick(len(PACES))]
        self._unnoticed: list[Attempt] = []
        # What may happen while nobody is there, between an end and the next attempt.
        self._meanwhile: tuple[Callable[[list[Attempt]], None] | None, ...] = (
            *(None,) * 4,
            self._lose_redis,
            self._redis_from_a_copy,
            self._shuffle,
            self._shuffle,
            self._let_time_pass,
            self._let_calls_arrive,
            self._restore,
            self._restore,
            self._reconcile,
        )
        self._events: tuple[Callable[[list[Attempt]], None], ...] = (
            *(self._fault,) * 8,
            self._give_up,
            self._give_up,
            self._restore,
            self._restore,
            self._let_time_pass,
            self._let_calls_arrive,
            self._lose_redis,
            self._redis_from_a_copy,
            self._rescale,
            self._shuffle,
            self._shuffle,
            self._reconcile,
        )

    def run(self) -> None:
        """Go on to the end. Raises `DoesNotEnd`, and what the gate should not have raised."""
        try:
            self._run_on()
        finally:
            # Nothing of a schedule that went wrong may reach into the next one.
            for each in [*self.world.busy, *self._unnoticed]:
                each.dead = True
                self._unwind(each)

    def _run_on(self) -> None:
        world = self.world
        for visit in range(LONGEST_VISITS):
            self.engine.fill()
            if visit % COPIED_EVERY == 0:
                self._redis.copy()
            awake = [each for each in world.busy if each.wakes <= world.now]
            if awake:
                self._turn(awake)
            elif world.busy:
                self._sleep_on()
            elif self._settled():
                return
        raise DoesNotEnd(f"{len(self.engine.pending)} deliveries are left")

    def _turn(self, awake: list[Attempt]) -> None:
        pick = self.world.choices.pick
        if self._disturbances > 0:
            if pick(self._calm) == self._calm - 1:
                self._disturbances -= 1
                return self._events[pick(len(self._events))](awake)
        elif self._unnoticed:
            self._notice()
        self._go(awake[pick(len(awake)) if len(awake) > 1 else 0], GO)

    def _go(self, attempt: Attempt, order: int) -> None:
        world = self.world
        world.current = attempt
        world.left = 1 + world.choices.pick(self._run)
        world.trace.append(128 | (attempt.number & 127))
        attempt.strand.switch(order)
        if attempt.done:
            world.busy.remove(attempt)
            if self.engine.unexpected is not None:
                raise self.engine.unexpected
            self.engine.ended(attempt)
            if attempt.error is not None and not attempt.zombie:
                self._wait_a_while()

    def _wait_a_while(self) -> None:
        event = self._meanwhile[self.world.choices.pick(len(self._meanwhile))]
        if event is not None and self._disturbances > 0:
            self._disturbances -= 1
            event([])

    def _sleep_on(self) -> None:
        """Nobody can go on before somebody wakes; a busy machine wakes them later than they asked for."""
        world = self.world
        wait = min(each.wakes for each in world.busy) - world.now
        late = (0.0, 0.5, 1.0, 1.6)[world.choices.pick(4)] * self._lease_seconds
        world.advance(max(wait, 0.0) + late)
        if self._unnoticed and late:
            self._notice()

    def _settled(self) -> bool:
        """Whether it was a schedule: something was disturbed, something came again, nothing is under way."""
        world, engine = self.world, self.engine
        if self._unnoticed:
            self._notice()
        if world.late:
            world.arrive(world.late[:])
            return False
        if engine.pending:
            return False
        if engine.replays and world.faults and engine.opened > 1:
            return True
        self._restore([])
        self._disturbances = max(self._disturbances, 1)
        world.faults += 1
        return False

    def _fault(self, awake: list[Attempt]) -> None:
        """Break what an attempt is about to do, or what was just done for it."""
        pick = self.world.choices.pick
        attempt = awake[pick(len(awake))]
        orders = ORDERS[attempt.at]
        order = orders[pick(len(orders))]
        self.world.faults += 1
        if self.world.story is not None:
            when = "after" if attempt.at & 1 else "before"
            self.world.tell(f"FAULT {attempt.name}, {when} its {NAMES[attempt.at & ~1]}: {TOLD[order]}")
        self.world.trace.append(64 + order)
        if order == DIE:
            return self._die(attempt)
        self._go(attempt, order)

    def _die(self, attempt: Attempt) -> None:
        """End a process. Its server may notice only later that the connection has gone, and hold its locks so long."""
        world = self.world
        attempt.dead = True
        attempt.call_ends = NEVER
        world.busy.remove(attempt)
        if attempt.inside and world.choices.pick(2):
            self._unnoticed.append(attempt)
        else:
            self._unwind(attempt)
        self.engine.given_up(attempt)
        self._wait_a_while()

    def _unwind(self, attempt: Attempt) -> None:
        self.world.current = attempt
        # One that never began has nothing to unwind, and would raise here instead.
        if attempt.strand:
            attempt.strand.throw(Died())

    def _notice(self) -> None:
        self.world.tell("a server notices that connections have gone")
        for each in self._unnoticed:
            self._unwind(each)
        self._unnoticed.clear()

    def _give_up(self, awake: list[Attempt]) -> None:
        """Let the engine take a worker for dead that runs on."""
        running = self.engine.running
        if running:
            self._make_zombie(running[self.world.choices.pick(len(running))])

    def _make_zombie(self, attempt: Attempt) -> None:
        self.world.faults += 1
        self.world.tell(f"FAULT the engine takes {attempt.name} for dead, but it runs on")
        self.world.trace.append(80)
        attempt.zombie = True
        self.engine.given_up(attempt)
        self._wait_a_while()

    def _all_end(self) -> None:
        for each in self.engine.running:
            if each.dead or each.zombie:
                continue
            if self.world.choices.pick(2) == 0:
                self._make_zombie(each)
            else:
                self.world.faults += 1
                self.world.tell(f"FAULT {each.name} dies")
                self._die(each)

    def _restore(self, awake: list[Attempt]) -> None:
        """Let the job fail and restore a checkpoint that may be older than the last one."""
        self.world.trace.append(81)
        self._all_end()
        commits = len(self.engine.commits)
        keep = self.world.choices.pick(commits) if commits else 0
        self.world.tell(f"FAULT the job restores a state {commits - keep} commits ago")
        self.world.faults += 1
        self.engine.restore(keep)
        self._wait_a_while()

    def _rescale(self, awake: list[Attempt]) -> None:
        self.world.trace.append(82)
        self._all_end()
        workers = (3, 1, 2)[self.world.choices.pick(3)]
        self.world.tell(f"the job is rescaled from {self.engine.workers} to {workers} workers")
        self.engine.rescale(workers)

    def _let_time_pass(self, awake: list[Attempt]) -> None:
        self.world.trace.append(83)
        parts = (0.4, 1.0, 2.0)[self.world.choices.pick(3)]
        self.world.advance(parts * (self._lease_seconds + self.world.grace_seconds))
        self.world.tell("time has passed")

    def _let_calls_arrive(self, awake: list[Attempt]) -> None:
        self.world.trace.append(84)
        self.world.arrive(self.world.late[:])

    def _lose_redis(self, awake: list[Attempt]) -> None:
        if self._redis.used:
            self.world.trace.append(85)
            self._redis.lose()
            self.engine.losses += 1

    def _redis_from_a_copy(self, awake: list[Attempt]) -> None:
        if self._redis.used:
            self.world.trace.append(86)
            self._redis.fall_back()
            self.engine.copies += 1

    def _reconcile(self, awake: list[Attempt]) -> None:
        """Let a reconciler begin, if none is at work; most often when leases are over."""
        if self._upkeep is None or any(not each.batch for each in [*self.world.busy, *self._unnoticed]):
            return
        self.world.trace.append(88)
        if self.world.choices.pick(3):
            self.world.advance(2.0 * (self._lease_seconds + self.world.grace_seconds))
        self.world.tell("a reconciler begins a pass")
        self.engine.reconcile(*self._upkeep.open())

    def _shuffle(self, awake: list[Attempt]) -> None:
        """Bring what comes again in another order, and with other neighbours."""
        self.world.trace.append(87)
        self.engine.pending.reverse()

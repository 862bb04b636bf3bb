"""Run real gates side by side, one I/O step at a time, in an order and with faults that a test chooses.

Every call of a ledger, a cache or a sink has two points: before it is applied, and after it, before its caller
knows. At each the test decides which worker goes on, and whether it crashes, fails, loses the reply, or has the call
applied later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from oncesink.connectors.clock import ManualClock
from oncesink.connectors.contract import Scope
from oncesink.connectors.errors import OutcomeUnknown, Unavailable
from oncesink.connectors.memory import MemoryCache, MemoryLedger, MemoryStore

T = TypeVar("T")
FAULTS = ("none", "crash", "fail", "lose", "late")


class Crash(BaseException):
    """The process dies here."""


class Worker:
    """A thread that stands still at every point until it is told to go on."""

    def __init__(self, world: World, number: int, work: Callable[[Worker], None]) -> None:
        self.number = number
        self.at = "start"
        self.done = False
        self.zombie = False
        self.error: BaseException | None = None
        self.call_ends = float("inf")
        self._world = world
        self._fault = "none"
        self._go = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[Worker], None]) -> None:
        self._go.acquire()
        self._world.current = self
        try:
            work(self)
        except BaseException as error:  # noqa: BLE001 - a crash is one, and it is looked at by the test
            self.error = error
        self.done = True
        self._stopped.release()

    def step(self, fault: str = "none") -> None:
        """Let it run to its next point."""
        if self.done:
            return
        self._fault = fault
        self._world.current = self
        self._go.release()
        self._stopped.acquire()
        if self.done:
            self._thread.join()

    def point(self, name: str) -> str:
        """Stand still; return the fault to play."""
        self.at = name
        self._stopped.release()
        self._go.acquire()
        fault, self._fault = self._fault, "none"
        if fault == "crash":
            raise Crash(name)
        return fault


@dataclass
class World:
    """One set of stores, one clock, and the calls that will be applied later."""

    name: str
    sink_timeout_seconds: float = 5.0
    grace_seconds: float = 10.0
    clock: ManualClock = field(default_factory=ManualClock)
    workers: list[Worker] = field(default_factory=list)
    late: list[tuple[float, Callable[[], object]]] = field(default_factory=list)
    current: Worker | None = None

    def call(self, verb: str, apply: Callable[[], T]) -> T:
        """Play one call of the current worker."""
        worker = self.current
        assert worker is not None
        fault = worker.point(f"before {verb}")
        if fault == "fail":
            raise Unavailable(f"{verb} failed")
        if fault == "late":
            self.late.append((self.clock.now + self.grace_seconds, apply))
            raise OutcomeUnknown(f"{verb} hangs")
        value = apply()
        if worker.point(f"after {verb}") in ("lose", "late"):
            raise OutcomeUnknown(f"the reply to {verb} was lost")
        return value

    def advance(self, seconds: float) -> None:
        """Let time pass, but not past the time-out of a sink call that is under way."""
        limit = min((each.call_ends for each in self.workers if not each.done), default=float("inf"))
        now = max(self.clock.now, min(self.clock.now + seconds, limit))
        for due, apply in [each for each in self.late if each[0] <= now]:
            self.late.remove((due, apply))
            apply_quietly(apply)
        self.clock.now = now

    def apply_late(self) -> None:
        """Let the calls arrive that were on their way."""
        for each in self.late[:]:
            self.late.remove(each)
            apply_quietly(each[1])


def apply_quietly(apply: Callable[[], object]) -> None:
    """Apply a call whose caller does not listen any more."""
    try:
        apply()
    except (Unavailable, OutcomeUnknown):
        return


@dataclass
class WorkerClock:
    """The world's clock; a sleep is a point, and time passes in it."""

    world: World

    def monotonic(self) -> float:
        return self.world.clock.now

    def sleep(self, seconds: float) -> None:
        worker = self.world.current
        assert worker is not None
        worker.point("asleep")
        self.world.advance(seconds)


@dataclass(frozen=True, eq=False)
class SteppedLedger:
    """A memory ledger whose every call is two points."""

    world: World

    retention = timedelta(days=7)
    shared = True

    @property
    def store(self) -> MemoryStore:
        return MemoryLedger(self.world.name).store

    def open(self, scope: Scope) -> SteppedSession:
        return SteppedSession(self.world, MemoryLedger(self.world.name).open(scope))


class SteppedSession:
    """See `SteppedLedger`. A transaction that is lost at its commit is applied, or rolled back by the server later."""

    def __init__(self, world: World, inner: Any) -> None:
        self.inner = inner
        self._world = world
        self._in_transaction = False

    @property
    def ledger_id(self) -> bytes:
        return bytes(self.inner.ledger_id)

    def claim(self, claims: Any, **how: Any) -> Any:
        apply = lambda: self.inner.claim(claims, **how)  # noqa: E731
        return self._fail_or(apply) if self._in_transaction else self._world.call("claim", apply)

    def read(self, digests: Any) -> Any:
        return self._world.call("read", lambda: self.inner.read(digests))

    def take(self, takes: Any, **how: Any) -> Any:
        return self._world.call("take", lambda: self.inner.take(takes, **how))

    def finish(self, finishes: Any, **how: Any) -> Any:
        return self._world.call("finish", lambda: self.inner.finish(finishes, **how))

    def release(self, digests: Any, **how: Any) -> Any:
        return self._world.call("release", lambda: self.inner.release(digests, **how))

    def open_rows(self, **which: Any) -> Any:
        return self._world.call("open rows", lambda: self.inner.open_rows(**which))

    def count_open(self, **which: Any) -> Any:
        return self._world.call("count open", lambda: self.inner.count_open(**which))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        worker = self._world.current
        assert worker is not None
        lost = False
        with self.inner.transaction():
            self._in_transaction = True
            try:
                yield
                if worker.point("before commit") != "none":
                    raise Unavailable("the transaction was rolled back")
            finally:
                self._in_transaction = False
        lost = worker.point("after commit") in ("lose", "late")
        if lost:
            raise OutcomeUnknown("the reply to the commit was lost")

    def _fail_or(self, apply: Callable[[], T]) -> T:
        worker = self._world.current
        assert worker is not None
        if worker.point("before claim in a transaction") != "none":
            raise Unavailable("claim failed")
        return apply()

    def close(self) -> None:
        self.inner.close()


@dataclass(frozen=True, eq=False)
class SteppedCache:
    """A memory cache whose every call is two points."""

    world: World
    ttl = timedelta(minutes=10)

    def open(self, ledger_id: bytes) -> SteppedCacheSession:
        return SteppedCacheSession(self.world, MemoryCache(self.world.name).open(ledger_id))


class SteppedCacheSession:
    """Trouble of a cache is always `Unavailable`, whether the call was applied or not."""

    def __init__(self, world: World, inner: Any) -> None:
        self._world = world
        self._inner = inner

    def get(self, digests: Any) -> Any:
        return self._call("cache get", lambda: self._inner.get(digests))

    def put(self, entries: Mapping[bytes, Any]) -> None:
        self._call("cache put", lambda: self._inner.put(entries))

    def _call(self, verb: str, apply: Callable[[], T]) -> T:
        try:
            return self._world.call(verb, apply)
        except OutcomeUnknown as error:
            raise Unavailable(str(error)) from error

    def close(self) -> None:
        self._inner.close()


@dataclass(frozen=True)
class SteppedSink:
    """A sink whose write and probe are points; a call ends within its time-out, and applies within the grace."""

    world: World
    inner: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def timeout(self) -> timedelta:
        return timedelta(seconds=self.world.sink_timeout_seconds)

    def open(self, scope: Scope, ledger: Any) -> SteppedSinkSession:
        return SteppedSinkSession(self.world, self.inner.open(scope, ledger), self.inner)


class SteppedSinkSession:
    def __init__(self, world: World, inner: Any, recipe: Any) -> None:
        self._world = world
        self._inner = inner
        self._steps = recipe.kind.value != "transactional"
        self.store_id = inner.store_id

    def write(self, writes: Sequence[Any], *, timeout_seconds: float) -> Any:
        apply = lambda: self._inner.write(writes, timeout_seconds=timeout_seconds)  # noqa: E731
        if not self._steps:
            return self._inside(apply)
        return self._timed("write", timeout_seconds, apply)

    def probe(self, writes: Sequence[Any], *, timeout_seconds: float) -> Any:
        return self._timed("probe", timeout_seconds, lambda: self._inner.probe(writes, timeout_seconds=timeout_seconds))

    def _inside(self, apply: Callable[[], T]) -> T:
        worker = self._world.current
        assert worker is not None
        if worker.point("before write in a transaction") != "none":
            raise Unavailable("the write failed")
        return apply()

    def _timed(self, verb: str, timeout_seconds: float, apply: Callable[[], T]) -> T:
        worker = self._world.current
        assert worker is not None
        worker.call_ends = self._world.clock.now + timeout_seconds
        try:
            return self._world.call(verb, apply)
        finally:
            worker.call_ends = float("inf")

    def close(self) -> None:
        self._inner.close()

"""A sink whose every call is a point of a schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...connectors.contract import Answer, LedgerSession, Outcome, Scope, Sink, SinkKind, SinkSession, Write
from ...connectors.errors import OutcomeUnknown, Unavailable
from .attempt import NEVER
from .cells import Step
from .world import IN_PART, LOSE_REPLY, PROBE, STATEMENT, WRITE, World


class SteppedSink:
    """A sink whose write and probe are points; a call ends within its time-out, and applies within the grace."""

    def __init__(self, world: World, inner: Sink, effects: Effects) -> None:
        self.inner = inner
        self._world = world
        self._effects = effects

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def open(self, scope: Scope, ledger: LedgerSession | None) -> SteppedSinkSession:
        return SteppedSinkSession(self._world, self.inner, self.inner.open(scope, ledger), self._effects)


Effects = Callable[[Sequence[bytes]], None]
"""Told the digests of the writes that a sink has just said to be new."""


class SteppedSinkSession:
    """An open sink."""

    def __init__(self, world: World, recipe: Sink, inner: SinkSession, effects: Effects) -> None:
        self._world = world
        self._inner = inner
        self._effects = effects
        self._inside = recipe.kind is SinkKind.TRANSACTIONAL
        self._whole = recipe.atomic
        self.store_id = inner.store_id

    def write(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer]:
        world = self._world
        me = world.current
        digests = [each.digest for each in writes]

        def apply(some: Sequence[Write] = writes) -> Sequence[Answer]:
            answers = self._inner.write(some, timeout_seconds=timeout_seconds)
            done = [w.digest for w, a in zip(some, answers, strict=True) if a.outcome is not Outcome.REJECTED]
            me.reached(done, Step.WRITTEN)
            if not self._inside:
                new = [w.digest for w, a in zip(some, answers, strict=True) if a.outcome is Outcome.WRITTEN]
                self._effects(new)
            return answers

        if self._inside:
            return world.call("ledger", STATEMENT, digests, apply)
        me.call_ends = world.now + timeout_seconds
        try:
            return self._outside(apply, writes, digests)
        finally:
            me.call_ends = NEVER

    def _outside(
        self, apply: Callable[..., Sequence[Answer]], writes: Sequence[Write], digests: Sequence[bytes]
    ) -> Sequence[Answer]:
        world = self._world
        me = world.current
        if "sink" in me.cut_off:
            world.trace.append(WRITE)
            raise Unavailable("sink cannot be reached")
        order = world.point(WRITE)
        if order == IN_PART and not self._whole:
            apply(writes[: max(1, len(writes) // 2)])
            world.tell(f"{me.name}: a part of the write is applied")
            raise OutcomeUnknown("the connection broke in the middle of the write")
        if order:
            world.refuse(me, "sink", WRITE, order, apply)
        answers = apply()
        if world.story is not None:
            world.tell(f"{me.name}: write of {world.name(digests)}: {', '.join(a.outcome.value for a in answers)}")
        if world.point(WRITE + 1) == LOSE_REPLY:
            world.lose(me, WRITE, digests)
            raise OutcomeUnknown("the reply to the write was lost")
        return answers

    def probe(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer | None]:
        world = self._world
        me = world.current
        me.call_ends = world.now + timeout_seconds
        try:
            return world.call(
                "sink",
                PROBE,
                [each.digest for each in writes],
                lambda: self._inner.probe(writes, timeout_seconds=timeout_seconds),
            )
        finally:
            me.call_ends = NEVER

    def close(self) -> None:
        self._inner.close()

"""`Reconciler`: settle open rows that nobody brings again, by the last line of the decision table.

    list -> take over -> probe, or write the stored record -> finish

Each step is the gate's own (`way_claimed.py`), for rows in the place of records: a row speaks for the occurrence that
had claimed it, and is never given back. So it may die at any point, as a writer may: what it had taken is listed again
when its own lease, and the grace, are over.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from types import TracebackType

from ..connectors.clock import Clock
from ..connectors.contract import Row, Sink, SinkKind
from ..connectors.errors import Misconfigured
from ..connectors.upkeep import ListsOpen, OpenCount, OpenPage
from .decide import OnReplay, Rules
from .gate import Gate, write_rules
from .groups import LeftOver
from .metrics import Counts, LevelName, MetricName, Metrics
from .reconciled import Reconciled
from .retry import Attempts, Backoff, repeat
from .session import GateSession

PAGE_BYTES = 64 * 1024 * 1024
"""What the records of one page may take up at most."""

FARTHEST_PAGES = 64
"""How far a reconciler jumps, at most, when another one was at its page: so that they part."""

VAIN_PAGES = 3
"""After so many pages in a row of which trouble, or a sink that is too slow, left everything as it was, a pass ends."""

log = logging.getLogger("oncesink")


def check_reconcilable(gate: Gate, sink: Sink) -> Rules:
    """Return the rules. Raises `Misconfigured` where rows are never in doubt, or could never be settled."""
    rules = write_rules(gate, sink)
    if sink.kind is SinkKind.TRANSACTIONAL:
        raise Misconfigured(f"{sink.target} commits together with its ledger: its rows are never in doubt")
    if gate.observe:
        raise Misconfigured("observe=True takes no row over and writes whatever it is given: reconcile without it")
    if gate.ledger is None:
        raise Misconfigured(f"{sink.target} has no ledger, so there are no rows in doubt")
    if gate.redrive is None and sink.kind is SinkKind.DROPS_BY_KEY:
        raise Misconfigured(f"{sink.target} is asked by writing again: redrive='json' stores what that needs")
    if gate.redrive is None and gate.on_replay == "write":
        raise Misconfigured("on_replay='write' writes the record again: redrive='json' stores it in its row")
    return rules


class Reconciler:
    """Settle open rows of one scope, at its current generation.

    A context manager, used by one thread::

        with Reconciler(gate, sink) as reconciler:
            print(reconciler.run())

    Gate and sink are those of the job. Without `redrive=` a probe is given `Write`s whose record is None: it has to go
    by their `idempotency_key`. Raises `Misconfigured` at once for what can never be settled.

    Any number may be at work, beside any number of writers: each row is taken by compare-and-set.
    """

    def __init__(
        self,
        gate: Gate,
        sink: Sink,
        *,
        metrics: Metrics | None = None,
        clock: Clock | None = None,
        attempts: Attempts | None = None,
        seed: int | None = None,
    ) -> None:
        self._rules = check_reconcilable(gate, sink)
        self._counts = _Both(metrics)
        self._attempts = attempts or Backoff()
        self._random = random.Random(seed)  # noqa: S311 - it parts reconcilers, and guards nothing
        self._limit = max(1, min(gate.batch.rows, PAGE_BYTES // gate.batch.payload_bytes))
        self._session = GateSession(gate, sink, metrics=self._counts, clock=clock, attempts=attempts)
        ledger = self._session.ledger
        if not isinstance(ledger, ListsOpen):
            self.close()
            raise Misconfigured(f"{gate.ledger!r} cannot list its open rows")
        self._ledger: ListsOpen = ledger

    @property
    def metrics(self) -> Counts:
        """What was counted so far, by the names that all entries share."""
        return self._counts.seen

    def overdue(self) -> int:
        """Return how many rows a pass would find now."""
        return self._count().current

    def run(self, watch: Callable[[Reconciled], object] = lambda _: None) -> Reconciled:
        """Make one pass; `watch` is given what it came to after each page.

        From the row whose lease ended first to the last; once more where it left rows to another reconciler, which may
        have died. Raises what the ledger raises while rows are listed.
        """
        there = self._count()
        self._counts.level("rows_in_doubt", there.current)
        done = Reconciled(older_generations=there.older_generations)
        # Not farther than half of what there is: behind the end there is nothing to do.
        farthest = min(FARTHEST_PAGES, max(1, there.current // (2 * self._limit)))
        while self._round(done, watch, farthest):
            continue
        return done

    def look(self) -> dict[OnReplay, int]:
        """Tell what a pass would do with the rows that it would find now. Nothing is taken, and the sink not asked."""
        plan: dict[OnReplay, int] = {"write": 0, "probe": 0, "park": 0}
        after: object | None = None
        while True:
            page = self._page(after, 0)
            for row in page.rows:
                plan[self._rules.replay(row)] += 1
            after = page.after
            if after is None:
                return plan

    def _round(self, done: Reconciled, watch: Callable[[Reconciled], object], farthest: int) -> bool:
        """Go from beginning to end; return whether rows were jumped over and another round may find some of them."""
        after: object | None = None
        skip, settled, vain, jumped = 0, 0, 0, False
        while vain < VAIN_PAGES:
            page = self._page(after, skip)
            after, skip = page.after, 0
            if page.rows:
                found = self._settle(page.rows)
                done.add(found)
                watch(done)
                settled += found.there + found.written
                vain = vain + 1 if found.is_vain else 0
                if 2 * found.elsewhere > len(page.rows):
                    skip = self._limit * (1 + self._random.randrange(farthest))
                    jumped = True
            if after is None:
                return jumped and settled > 0
        return False

    def _page(self, after: object | None, skip: int) -> OpenPage:
        grace = self._rules.grace_seconds
        return repeat(
            lambda: self._ledger.open_rows(older_than_seconds=grace, limit=self._limit, after=after, skip=skip),
            self._attempts,
            self._counts,
        )

    def _count(self) -> OpenCount:
        grace = self._rules.grace_seconds
        return repeat(lambda: self._ledger.count_open(older_than_seconds=grace), self._attempts, self._counts)

    def _settle(self, rows: Sequence[Row]) -> Reconciled:
        late = self._counts.seen["late_finishes"]
        flushed = self._session.resume([(self._left_over(row), row) for row in rows])
        found = Reconciled(
            listed=len(rows),
            elsewhere=len(flushed.elsewhere),
            in_doubt=len(flushed.waiting),
            troubled=len(flushed.unsettled),
            late_finishes=self._counts.seen["late_finishes"] - late,
            trouble="" if flushed.trouble is None else str(flushed.trouble),
        )
        for _, outcome in flushed.settled:
            found.note(outcome)
        return found

    def _left_over(self, row: Row) -> LeftOver:
        records = self._session.records
        if row.payload is None or records is None:
            return LeftOver(row, None, recorded=False)
        try:
            return LeftOver(row, records.unpack(row.payload), recorded=True)
        except ValueError as error:
            log.warning("the record of key %s cannot be read: %s", row.digest.hex(), error)
            return LeftOver(row, None, recorded=False)

    def close(self) -> None:
        """Give every connection back. Safe to repeat."""
        self._session.close()

    def __enter__(self) -> Reconciler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Both:
    """Counts for itself, and for whoever wants the counts."""

    def __init__(self, other: Metrics | None) -> None:
        self.seen = Counts()
        self._other = other

    def count(self, name: MetricName, by: int = 1) -> None:
        self.seen.count(name, by)
        if self._other is not None:
            self._other.count(name, by)

    def level(self, name: LevelName, value: int) -> None:
        if self._other is not None:
            self._other.level(name, value)

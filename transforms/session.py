"""A gate with its stores open: what every binding drives."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack

from ..connectors.clock import Clock, SystemClock
from ..connectors.contract import LedgerSession, ProvesFirst, Sink, SinkKind, SinkSession, TimedByRecord, Unguarded
from ..connectors.errors import Misconfigured
from .cache_ages import CacheAges
from .destinations import Destinations
from .flush import Flushed, Kit, Way, flush, resume
from .gate import Gate, describe_guarantee, drop_rules, drop_scope, write_rules, write_scope
from .lookup import Known, Lookup, Membership, Memory
from .membership import NumericRecipe, SharedFilter, SharedRecipe
from .metrics import Counts, Metrics
from .numbers import Numbered
from .prepare import Item, Preparer
from .results import AnyOutcome, Duplicate, Results, Written
from .retry import Attempts, Backoff
from .sender import Sender
from .settle import Settlement
from .stored import RecordStore, ResultStore
from .way_claimed import ClaimedWay
from .way_direct import DirectWay
from .way_drop import DropWay
from .way_observe import ObserveWay, ObservingSettlement, OwnTransaction
from .way_unit import UnitWay

log = logging.getLogger("oncesink")


class GateSession:
    """An open gate: with a sink it writes once, without one it drops duplicates. Belongs to one thread.

    Raises `Misconfigured` for settings that contradict each other or the stores, `Unavailable` where a store cannot
    be reached.
    """

    def __init__(
        self,
        gate: Gate,
        sink: Sink | None,
        *,
        metrics: Metrics | None = None,
        clock: Clock | None = None,
        attempts: Attempts | None = None,
    ) -> None:
        self.gate = gate
        self.sink = sink
        self.metrics = metrics if metrics is not None else Counts()
        self.clock = clock or SystemClock()
        self._attempts = attempts or Backoff()
        self.rules = write_rules(gate, sink) if sink is not None else drop_rules(gate)
        self.scope = write_scope(gate, sink) if sink is not None else drop_scope(gate)
        self.prepare = Preparer(gate, self.scope)
        self._numeric = gate.membership if isinstance(gate.membership, NumericRecipe) else None
        self._shared: SharedFilter | None = None
        self._unguarded = 0
        self._results = ResultStore(gate.results, gate.batch.result_bytes, self.metrics)
        self.records = None if gate.redrive is None else RecordStore(gate.redrive, gate.batch.payload_bytes)
        self._open = ExitStack()
        with self._open:
            self._connect()
            self._open = self._open.pop_all()
        log.info("%s", describe_guarantee(gate, sink))

    def _connect(self) -> None:
        gate, sink = self.gate, self.sink
        if isinstance(sink, ProvesFirst):
            sink.prove()
        ledger = self.ledger = gate.ledger.open(self.scope) if gate.ledger is not None else None
        if ledger is not None:
            self._open.callback(ledger.close)
        # Asked once: whether a value has what a protocol names takes longer than many a flush.
        self._degrading = ledger if isinstance(ledger, Unguarded) else None
        target = sink.open(self.scope, ledger) if sink is not None else None
        if target is not None:
            self._open.callback(target.close)
        cache = gate.cache.open(_cache_namespace(ledger, target)) if gate.cache is not None else None
        if cache is not None:
            self._open.callback(cache.close)
        if isinstance(gate.membership, SharedRecipe):
            self._shared = gate.membership.open(self.metrics)
            self._open.callback(self._shared.close)
        ages = self._ages()
        self._lookup = Lookup(ledger, cache, self._attempts, self.metrics, ages)
        self._way = self._choose(ledger, target, Memory(cache, self.metrics, ages))
        self._destinations = self._open.enter_context(Destinations(gate, self.scope))

    def _ages(self) -> CacheAges | None:
        cache = self.gate.cache
        if not isinstance(cache, TimedByRecord) or cache.ttl_by is None:
            return None
        return CacheAges(cache.ttl_by, cache.ttl, self.metrics)

    def _choose(self, ledger: LedgerSession | None, target: SinkSession | None, memory: Memory) -> Way:
        sink = self.sink
        kit = Kit(
            rules=self.rules,
            memory=memory,
            attempts=self._attempts,
            metrics=self.metrics,
            clock=self.clock,
            sink_timeout_seconds=0.0 if sink is None else sink.timeout.total_seconds(),
            results=self._results,
            records=self.records,
        )
        if sink is None or target is None:
            assert ledger is not None
            return DropWay(ledger, kit)
        if self.gate.observe:
            assert ledger is not None
            if sink.kind is SinkKind.TRANSACTIONAL:
                target = OwnTransaction(ledger, target)
            return ObserveWay(ledger, Sender(target, kit, atomic=sink.atomic), kit)
        if sink.kind is SinkKind.TRANSACTIONAL:
            assert ledger is not None
            return UnitWay(ledger, target, kit)
        sender = Sender(target, kit, atomic=sink.atomic)
        if ledger is None:
            return DirectWay(sender, kit, tells_occurrence=sink.tells_occurrence)
        return ClaimedWay(ledger, target, sender, kit)

    def flush(self, items: Sequence[Item], membership: Membership | None) -> Flushed:
        """Take one batch through the gate. A store's trouble is returned, not raised: what is certain comes out.

        `membership` is the binding's own filter; one that jobs share is the session's.
        """
        if membership is None:
            membership = self._shared
        elif self._numeric is not None:
            membership = Numbered(membership, self._numeric, items)
        done = flush(items, self._lookup, self._way, self._settlement(), membership)
        self.metrics.count("flushes")
        self.metrics.count("waited", len(done.waiting))
        if self._degrading is not None:
            self.metrics.count("unguarded", self._degrading.unguarded - self._unguarded)
            self._unguarded = self._degrading.unguarded
        return self._with_results(done)

    def resume(self, known: Known) -> Flushed:
        """Take rows that nobody brings again through the last line of the table: see `Reconciler`."""
        done = self._with_results(resume(known, self._way, Settlement(), self._shared))
        results = Results()
        results.collect([outcome for _, outcome in done.settled])
        _count(results, self.metrics)
        return done

    def _with_results(self, done: Flushed) -> Flushed:
        """Give results as the sink gave them; tell of those that were not stored."""
        self._results.warn(self.gate.scope)
        if self._results.decodes:
            done.settled = [(item, self._decoded(outcome)) for item, outcome in done.settled]
        return done

    def _decoded(self, outcome: AnyOutcome) -> AnyOutcome:
        if isinstance(outcome, (Written, Duplicate)) and outcome.result is not None:
            return outcome._replace(result=self._results.decode(outcome.result))
        return outcome

    def _settlement(self) -> Settlement:
        if self.gate.observe and self.sink is None:
            return ObservingSettlement(self.metrics)
        told_apart = self.gate.ledger is not None or (self.sink is not None and self.sink.tells_occurrence)
        return Settlement(told_apart=told_apart)

    def deliver(self, results: Results) -> Exception | None:
        """Count the outcomes, hand over what was rejected and parked; return what must be raised, if anything."""
        _count(results, self.metrics)
        return self._destinations.deliver(results)

    def close(self) -> None:
        """Give every connection back. Safe to repeat."""
        self._open.close()


def _cache_namespace(ledger: LedgerSession | None, target: SinkSession | None) -> bytes:
    named = ledger.ledger_id if ledger is not None else target.store_id if target is not None else None
    if named is None:
        raise Misconfigured(
            "cache= needs a ledger, or a sink that registers its scope: its entries belong to one of them"
        )
    return named


def _count(results: Results, metrics: Metrics) -> None:
    replayed = sum([each.replayed for each in results.written])
    stale = sum([each.stale and not each.replayed for each in results.written])
    metrics.count("written", len(results.written) - replayed - stale)
    metrics.count("replayed", replayed)
    metrics.count("stale", stale)
    metrics.count("passed", len(results.passed))
    metrics.count("duplicates", len(results.duplicates))
    metrics.count("rejected", len(results.rejected))
    metrics.count("parked", len(results.parked))

"""What is known of a batch before anything is claimed: filter, cache, and a read of the ledger."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ..connectors.contract import AnyRow, CacheSession, Entry, LedgerSession, Row
from ..connectors.errors import Unavailable
from .cache_ages import CacheAges
from .groups import Group
from .membership import Keys
from .metrics import Metrics
from .retry import Attempts, repeat

log = logging.getLogger("oncesink")

Known = list[tuple[Group, AnyRow]]
"""Groups of which a row is known, with it."""


class Membership(Protocol):
    """The filter side of a flush: one filter, or one a shard."""

    def query(self, keys: Keys) -> Any:
        """Return one truth value a key, in order; False: certainly never seen."""
        ...

    def add(self, keys: Keys) -> None: ...


class Lookup:
    """Sort a batch into keys to claim at once and keys whose row is known.

    A negative of the filter saves the look, never the claim. Cache trouble is counted and done without.
    """

    def __init__(
        self,
        ledger: LedgerSession | None,
        cache: CacheSession | None,
        attempts: Attempts,
        metrics: Metrics,
        ages: CacheAges | None = None,
    ) -> None:
        self._ledger = ledger
        self._ages = ages
        self._cache = cache
        self._attempts = attempts
        self._metrics = metrics

    def __call__(self, groups: Sequence[Group], membership: Membership | None) -> tuple[list[Group], Known]:
        """Return the groups to claim, and those whose row was found, with it."""
        if self._ages is not None:
            self._ages.meet(groups)
        unseen, maybe = self._ask_filter(groups, membership)
        if not maybe:
            return unseen, []
        known, missed = self._ask_cache(maybe)
        if missed and membership is not None and self._ledger is not None:
            found, missed = self._read_ledger(missed)
            known += found
        return unseen + missed, known

    def _ask_filter(self, groups: Sequence[Group], membership: Membership | None) -> tuple[list[Group], list[Group]]:
        if membership is None:
            return [], list(groups)
        answers = membership.query(Keys([each.digest for each in groups])).tolist()
        maybe = [each for each, seen in zip(groups, answers, strict=True) if seen]
        self._metrics.count("filter_positive", len(maybe))
        self._metrics.count("filter_negative", len(groups) - len(maybe))
        if len(maybe) == len(groups):
            return [], maybe
        return [each for each, seen in zip(groups, answers, strict=True) if not seen], maybe

    def _ask_cache(self, groups: list[Group]) -> tuple[Known, list[Group]]:
        if self._cache is None:
            return [], groups
        self._metrics.count("cache_asked", len(groups))
        try:
            entries = self._cache.get([each.digest for each in groups])
        except Unavailable as error:
            self._metrics.count("cache_errors")
            log.debug("cache look-up done without: %s", error)
            return [], groups
        self._metrics.count("cache_hits", len(entries))
        if not entries:
            return [], groups
        known: Known = [(each, entries[each.digest]) for each in groups if each.digest in entries]
        if len(known) == len(groups):
            return known, []
        return known, [each for each in groups if each.digest not in entries]

    def _read_ledger(self, groups: list[Group]) -> tuple[Known, list[Group]]:
        ledger = self._ledger
        assert ledger is not None
        digests = [each.digest for each in groups]
        self._metrics.count("ledger_read", len(digests))
        rows = repeat(lambda: ledger.read(digests), self._attempts, self._metrics)
        known: Known = [(each, rows[each.digest]) for each in groups if each.digest in rows]
        return known, [each for each in groups if each.digest not in rows]


def remember(row: AnyRow, entries: dict[bytes, Entry]) -> None:
    """Let a finished row that the ledger answered be kept; one that the cache answered is kept already."""
    if isinstance(row, Row) and row.finished:
        entries[row.digest] = Entry(row.occurrence, row.payload_hash, row.result, row.age_seconds)


class Memory:
    """What is remembered of finished keys, after the commit: cache and filter."""

    def __init__(self, cache: CacheSession | None, metrics: Metrics, ages: CacheAges | None = None) -> None:
        self._cache = cache
        self._ages = ages
        self._metrics = metrics

    def wants(self, membership: Membership | None) -> bool:
        """Whether there is anybody to remember."""
        return self._cache is not None or membership is not None

    def keep(self, entries: Mapping[bytes, Entry], membership: Membership | None) -> None:
        """Fill both. Their failure is harmless: the ledger knows."""
        if not entries:
            return
        if membership is not None:
            membership.add(Keys(list(entries)))
        if self._cache is None:
            return
        try:
            self._cache.put(entries if self._ages is None else self._ages.aged(entries))
        except Unavailable as error:
            self._metrics.count("cache_errors")
            log.debug("cache not filled: %s", error)

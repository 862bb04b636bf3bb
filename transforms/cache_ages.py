"""A cache's rule of times to live, record by record.

A cache counts each entry's age against its one `ttl`. So an entry that is to live shorter is put as one that is older
by the difference, in every kind of cache, and without a rule nothing is done at all.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta

from ..connectors.cache_times import TTLRule
from ..connectors.contract import Entry
from .groups import Group
from .metrics import Metrics

log = logging.getLogger("oncesink")


class CacheAges:
    """The rule, and the groups of the round whose records it is asked about."""

    def __init__(self, rule: TTLRule, ttl: timedelta, metrics: Metrics) -> None:
        self._rule = rule
        self._ttl_seconds = ttl.total_seconds()
        self._metrics = metrics
        self._groups: Sequence[Group] = ()
        self._failed = False

    def meet(self, groups: Sequence[Group]) -> None:
        """Remember whose entries may be kept next."""
        self._groups = groups

    def aged(self, entries: Mapping[bytes, Entry]) -> dict[bytes, Entry]:
        """Return the entries that the rule gives any time, with the age that leaves them so much."""
        records = {each.digest: each.leader.record for each in self._groups}
        kept = {}
        for digest, entry in entries.items():
            seconds = self._seconds(records[digest]) if digest in records else 0.0
            if seconds > 0:
                less_seconds = max(0.0, self._ttl_seconds - seconds)
                kept[digest] = entry._replace(age_seconds=entry.age_seconds + less_seconds)
        return kept

    def _seconds(self, record: object) -> float:
        """Ask the rule; nothing is kept where it has no answer: that costs a look into the ledger."""
        try:
            return self._rule(record).total_seconds()
        except Exception:
            self._metrics.count("cache_errors")
            if not self._failed:
                log.warning("ttl_by gave no duration for a record, which is not cached", exc_info=True)
            self._failed = True
            return 0.0

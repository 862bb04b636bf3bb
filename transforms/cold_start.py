"""Filters of shards that have no state yet: from the files that `oncesink rebuild` stored, else empty.

A filter is a hint, so nothing that is wrong with the files stops a job: it is counted, logged, and costs look-ups.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from functools import partial

from ..connectors.errors import Misconfigured, OnceSinkError
from ..connectors.file_folder import FileFolder
from .gate import Gate
from .membership import FilterState, MembershipFilter, MembershipRecipe
from .membership.stored import Manifest, Meaning, load_manifest, load_shard
from .metrics import Metrics
from .numbers import of_one_shard
from .retry import Backoff, repeat

log = logging.getLogger("oncesink")


PATIENCE = Backoff(attempts=3, timeout=timedelta(seconds=5))
"""A filter that starts empty stays poor for long, and a job that does not start is worse."""


def meaning_of(gate: Gate, *, shards: int | None = None) -> Meaning:
    """Return what the stored filters of a gate are made for. Raises `Misconfigured` where there are none to store."""
    many = gate.shards if shards is None else shards
    return Meaning(
        scope=gate.scope, generation=gate.generation, shards=many, filter=stored_recipe(gate, many).description
    )


def stored_recipe(gate: Gate, shards: int) -> MembershipRecipe:
    """Return the recipe of each of so many filters of a gate. Raises `Misconfigured` where it has none to store."""
    if not isinstance(gate.membership, MembershipRecipe):
        raise Misconfigured(f"membership={gate.membership!r}: there is no filter to store or to load")
    return of_one_shard(gate.membership, shards)


class ColdStart:
    """The stored filters of a gate. Raises `Misconfigured` where no file system takes the URL."""

    def __init__(self, url: str, meaning: Meaning, metrics: Metrics) -> None:
        self._folder = FileFolder(url)
        self._meaning = meaning
        self._metrics = metrics
        self._manifest: Manifest | None = None

    @classmethod
    def of(cls, gate: Gate, metrics: Metrics) -> ColdStart | None:
        """Return that of a gate which names some."""
        if gate.start_from is None:
            return None
        return cls(gate.start_from, meaning_of(gate), metrics)

    def snapshot(self, shard: int) -> bytes | None:
        """Return one shard's filter as it is stored, None where it cannot be had."""
        try:
            found = repeat(lambda: self._load(shard), PATIENCE, self._metrics)
        except OnceSinkError as error:
            self._manifest = None
            self._metrics.count("filter_not_started")
            log.warning("the filter of shard %d starts empty, its keys cost a look at the ledger: %s", shard, error)
            return None
        self._metrics.count("filter_started")
        return found

    def _load(self, shard: int) -> bytes:
        # The manifest is kept, so that the shards of a worker are of one run.
        if self._manifest is None:
            self._manifest = load_manifest(self._folder, self._meaning)
        return load_shard(self._folder, self._manifest, shard)


def began(gate: Gate, metrics: Metrics) -> MembershipFilter | None:
    """Return the one filter of a process without an engine, if it keeps one: `rebuild --shards 1` makes it."""
    if not isinstance(gate.membership, MembershipRecipe):
        return None
    cold = ColdStart.of(replace(gate, shards=1), metrics)
    state = FilterState(gate.membership, start=None if cold is None else partial(cold.snapshot, 0))
    for reason in state.put_aside:
        metrics.count("filter_damaged")
        log.warning("a stored filter was put aside, its keys cost a look at the ledger: %s", reason)
    return state.filter

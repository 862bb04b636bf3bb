"""What is counted, and by which names."""

from __future__ import annotations

from collections import Counter
from typing import Literal, Protocol

MetricName = Literal[
    "written",  # effects that this job caused
    "replayed",  # records on `written` whose effect an earlier attempt, or a copy in the batch, had caused
    "stale",  # records on `written` that came too late to have an effect: the sink holds a newer version
    "passed",  # records that `DropDuplicates` let through
    "duplicates",  # records whose key another occurrence had finished
    "would_drop",  # records that `observe=True` wrote, or let pass, and that the gate alone would not have
    "rejected",  # records refused for ever
    "parked",  # records that a person must look at
    "in_doubt",  # open rows of somebody else that were met
    "waited",  # records that had to wait for a lease
    "taken_over",  # rows whose owner was replaced
    "probed",  # records for which the sink was asked whether the effect is there
    "released",  # claims given back unsent
    "late_finishes",  # finishes whose row had another owner by then
    "results_dropped",  # results that were not stored: too large, or no JSON
    "retries",  # calls repeated after a passing trouble
    "filter_negative",  # keys that the filter had surely never seen
    "filter_positive",  # keys that it had perhaps seen
    "filter_damaged",  # filters in state that could not be read and started empty
    "filter_started",  # filters of new shards that began with a snapshot from files
    "filter_not_started",  # those that began empty, since theirs was missing, damaged or foreign
    "filter_unknown",  # keys asked of a shared filter that was lost or could not be reached: perhaps seen
    "cache_asked",  # digests bound in a cache look-up
    "cache_hits",  # digests that the cache knew
    "cache_errors",  # cache calls that failed and were done without
    "ledger_read",  # digests bound in a ledger look-up
    "ledger_claimed",  # digests bound in a claim
    "ledger_finished",  # digests bound in a finish
    "unguarded",  # claims made while the ledger was away, each with a line in its audit
    "older_than_retention",  # records whose event time lies before all rows that are kept: a replay would be new
    "flushes",  # batches that went through the gate
    "repeats",  # batches that a consumer held, paused, and wrote again
    "put_back",  # messages that a consumer let go unfinished, since their partition went to somebody else
    "commits_failed",  # commits of offsets that were put off
]

LevelName = Literal[
    "filter_fill_percent",  # bits of the fullest filter that are set
    "filter_used_percent",  # its keys, of its capacity
    "filter_error_ppm",  # absent keys of a million that it takes for known, as its bits tell
    "filter_generations",  # filters that follow each other, in one
    "rows_in_doubt",  # open rows with lease and grace over, when a reconciler's pass began
    "filter_window_seconds",  # how far back keys are remembered
]


class Metrics(Protocol):
    """Where counts and levels go: an engine's own metrics, a registry, a dict."""

    def count(self, name: MetricName, by: int = 1) -> None: ...

    def level(self, name: LevelName, value: int) -> None: ...


class Counts(Counter[str]):
    """Counts kept in memory."""

    def count(self, name: MetricName, by: int = 1) -> None:
        self[name] += by

    def level(self, name: LevelName, value: int) -> None:
        self[name] = value

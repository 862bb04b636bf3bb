"""Whether the times of a gate fit those of the engine around it: lease, retention, cache, checkpoints, polls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from oncesink.connectors.contract import SinkKind
from oncesink.connectors.errors import Misconfigured
from oncesink.connectors.findings import Finding
from oncesink.connectors.spoken import spoken
from oncesink.pipelines.jobs import Job


@dataclass(frozen=True, kw_only=True, slots=True)
class Times:
    """Times of the engine, of the consumer, and of what may come again; None where nothing is known.

    `longest_replay` is how far back a savepoint may be restored or offsets may be set, `retry_interval` how long a
    producer goes on sending.
    """

    checkpoint_interval: timedelta | None = None
    checkpoint_timeout: timedelta | None = None
    max_poll_interval: timedelta | None = None
    longest_replay: timedelta | None = None
    retry_interval: timedelta | None = None

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) for name in self.__dataclass_fields__}
        nothing = [name for name, value in given.items() if value is not None and value <= timedelta(0)]
        if nothing:
            raise Misconfigured(f"{', '.join(nothing)} must be longer than nothing")
        if self.checkpoint_interval and self.longest_replay and self.longest_replay < self.checkpoint_interval:
            raise Misconfigured(
                f"longest_replay={spoken(self.longest_replay)} cannot be shorter than"
                f" checkpoint_interval={spoken(self.checkpoint_interval)}: every failure replays that much"
            )


def check_times(job: Job, times: Times) -> list[Finding]:
    """Return what does not fit. An `error`: records are written twice, or a flush never comes to its end."""
    return [*_flush(job, times), *_retention(job, times), *_cache(job, times), *_memory_of_sink(job, times)]


def longest_flush(job: Job) -> timedelta | None:
    """Return how long a flush may hold back what called it: three leases and the grace; None where none is taken.

    One lease for its own records, one with its grace to wait for somebody who died, one to write what it takes over.
    """
    if job.gate.ledger is None or job.sink is None or job.sink.kind is SinkKind.TRANSACTIONAL:
        return None
    return timedelta(seconds=3 * job.gate.lease_seconds + job.gate.grace_seconds)


def _flush(job: Job, times: Times) -> Iterator[Finding]:
    longest = longest_flush(job)
    if longest is None:
        return
    consequences = {
        "checkpoint time-out": (times.checkpoint_timeout, "the checkpoint fails, and its replay waits again"),
        "max.poll.interval.ms": (times.max_poll_interval, "the consumer is thrown out of its group in mid-flush"),
    }
    for name, (bound, consequence) in consequences.items():
        if bound is not None and bound <= longest:
            yield Finding(
                severity="error",
                what=f"a flush that meets records in doubt takes up to {spoken(longest)} (3 x lease + grace),"
                f" and {name} is {spoken(bound)}: {consequence}",
                todo=f"raise it above {spoken(longest)}, or shorten lease= and grace=",
            )


def _retention(job: Job, times: Times) -> Iterator[Finding]:
    if job.gate.ledger is None:
        return
    kept = job.gate.ledger.retention
    reasons = {
        "the longest replay": times.longest_replay,
        "the checkpoint interval": times.checkpoint_interval,
        "the retry interval": times.retry_interval,
    }
    for name, reach in reasons.items():
        if reach is not None and kept <= reach:
            yield Finding(
                severity="error",
                what=f"rows are kept for {spoken(kept)}, and {name} is {spoken(reach)}:"
                " what comes later is new, and written again",
                todo="lengthen the ledger's retention=",
            )


def _cache(job: Job, times: Times) -> Iterator[Finding]:
    if job.gate.cache is None:
        return
    ttl = job.gate.cache.ttl
    if times.retry_interval is not None and ttl < times.retry_interval:
        yield Finding(
            severity="warning",
            what=f"the cache forgets a key after {spoken(ttl)},"
            f" and second sends come within {spoken(times.retry_interval)}",
            todo="make ttl= a quarter longer than the retry interval, or do without a cache: the ledger answers, too",
        )
    if times.checkpoint_interval is not None and ttl <= times.checkpoint_interval:
        yield Finding(
            severity="warning",
            what=f"the cache forgets a key after {spoken(ttl)},"
            f" and a failure replays {spoken(times.checkpoint_interval)} at the least",
            todo="make ttl= longer than the checkpoint interval, or let the ledger answer replays",
        )


def _memory_of_sink(job: Job, times: Times) -> Iterator[Finding]:
    remembers = job.sink.remembers if job.sink is not None and job.sink.kind is SinkKind.DROPS_BY_KEY else None
    if remembers is not None and times.longest_replay is not None and remembers < times.longest_replay:
        yield Finding(
            severity="warning",
            what=f"the sink remembers keys for {spoken(remembers)},"
            f" and replays reach back {spoken(times.longest_replay)}: an open row that is older is in doubt",
            todo=f"see that on_replay={job.gate.on_replay!r} is what you want for those",
        )

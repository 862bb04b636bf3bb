"""`examine`: try a sink in every way in which a gate, an engine or a network will."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

from ..contract import Sink, SinkKind
from ..json_lines import json_line
from . import trials
from .deaths import Death, killed
from .report import Flaw, Report
from .subject import Identify, ReadBack, Subject


def examine(
    sink: Sink,
    *,
    records: Iterable[Any],
    read_back: ReadBack,
    identify: Identify = json_line,
    bad: Sequence[Any] = (),
    stall: Callable[[], AbstractContextManager[object]] | None = None,
    kills: int = 3,
    grace: timedelta = timedelta(seconds=1),
) -> Report:
    """Tell which guarantee a sink really gives.

    It writes, so give it a place that may be filled, under a scope of its own. `records` gives ever new ones that the
    sink accepts, some hundreds of them. `read_back` returns the effects that are there now, and `identify` makes of an
    effect, and of a record, what tells whose effect it is. `bad` are records that the sink must refuse. `stall` is a
    context manager inside which the other side does not answer. `kills` processes are killed while they write; for
    that the sink and the records must be picklable. `grace` is how long an effect may take to show.

    A sink that fails with a plain batch is tried no further. Raises `Misconfigured` if it cannot be opened, or if the
    records do not suffice.
    """
    subject = Subject(sink, iter(records), read_back, identify, grace.total_seconds())
    trials.plain(subject)
    if subject.findings:
        subject.remarks.append("it was tried no further than a plain batch: mend that first")
        return _report(subject)
    trials.bad_in_the_middle(subject, bad)
    trials.hurried(subject)
    if stall is not None:
        trials.stalled(subject, stall)
    else:
        subject.remarks.append("no other side that stands still was tried: give stall=")
    drops = trials.repeated(subject)
    whole = trials.alike(subject)
    if sink.can_probe:
        trials.probed(subject)
    concurrent = trials.crowded(subject)
    death = killed(subject, kills) if kills and not subject.has(Flaw.OVERRUNS) else Death(seen=False)
    return _report(subject, drops=drops, whole=whole, concurrent=concurrent, death=death)


def _report(
    subject: Subject,
    *,
    drops: bool | None = None,
    whole: bool | None = None,
    concurrent: bool | None = None,
    death: Death | None = None,
) -> Report:
    seen = death is not None and death.seen
    return Report(
        target=subject.sink.target,
        kind=subject.sink.kind,
        truthful=not subject.has(Flaw.LIES, Flaw.HALF_APPLIES),
        in_time=not subject.has(Flaw.OVERRUNS),
        typed=not subject.has(Flaw.BARE_ERRORS),
        concurrent=concurrent,
        drops_by_key=drops,
        whole_key=whole if drops else None,
        all_or_nothing=_all_or_nothing(subject, death) if seen else None,
        survives=not subject.has(Flaw.LOSES) if seen else None,
        slowest_seconds=subject.slowest_seconds,
        findings=tuple(subject.findings),
        remarks=tuple(subject.remarks),
    )


def _all_or_nothing(subject: Subject, death: Death | None) -> bool | None:
    """Parts prove that it is not; their absence proves nothing where there is no transaction."""
    if death is not None and death.parts:
        return False
    return True if subject.sink.kind is SinkKind.TRANSACTIONAL else None

"""Ask a table for records that may be there, also for those that it could never take."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .contract import Answer, Write
from .errors import Rejected

Answers = Sequence[Answer | None]


def probe_each(ask: Callable[[Sequence[Write]], Answers], writes: Sequence[Write]) -> Answers:
    """Return what `ask` does, and None for each record that it rejects: what cannot be written is not there.

    A worker may have claimed such a record and died before it could reject it. The write that follows does.
    """
    try:
        return ask(writes)
    except Rejected:
        if len(writes) == 1:
            return [None]
    half = len(writes) // 2
    return [*probe_each(ask, writes[:half]), *probe_each(ask, writes[half:])]

"""Repetitions of a call as lines that say why: what stamina logs has the reason in its fields, not in the text."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from stamina.instrumentation import RetryDetails, set_on_retry_hooks

log = logging.getLogger("oncesink")


@contextmanager
def told_retries() -> Iterator[None]:
    """Log each repetition at level WARNING while the block runs. For programs: the hooks are those of the process."""
    set_on_retry_hooks([_tell])
    try:
        yield
    finally:
        set_on_retry_hooks(None)


def _tell(details: RetryDetails) -> None:
    log.warning("tried again in %.1f s: %s", details.wait_for, details.caused_by)

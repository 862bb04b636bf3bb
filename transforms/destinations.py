"""Where rejected and parked records go: to a sink, to the output of that name, or up the stack."""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import ExitStack
from hashlib import blake2b
from types import TracebackType
from typing import Any

from ..connectors.contract import Outcome, Scope, Sink, SinkSession, Write
from ..connectors.errors import OnceSinkError, OutcomeUnknown, RecordsParked, RecordsRejected
from .gate import Destination, Gate
from .results import Parked, Refused, Results

log = logging.getLogger("oncesink")

_SHOWN = 3
"""How many records an error names."""


class Destinations:
    """The open dead-letter sinks of a gate."""

    def __init__(self, gate: Gate, scope: Scope) -> None:
        self._gate = gate
        self._stack = ExitStack()
        self._rejected = self._open(gate.rejected, scope)
        self._parked = self._open(gate.parked, scope)

    def _open(self, destination: Destination, scope: Scope) -> SinkSession | None:
        if isinstance(destination, str):
            return None
        session = destination.open(scope, None)
        self._stack.callback(session.close)
        return session

    def deliver(self, results: Results) -> Exception | None:
        """Hand over what was rejected and parked; return the error that must be raised once the flush is finished.

        A dead-letter sink gets a record again when the engine replays it.
        """
        rejected = self._hand_over(results.rejected, self._rejected, self._gate.rejected)
        parked = self._hand_over(results.parked, self._parked, self._gate.parked)
        return rejected or parked

    def _hand_over(
        self, records: list[Any], session: SinkSession | None, destination: Destination
    ) -> OnceSinkError | None:
        if not records:
            return None
        if session is not None:
            return _write(records, session, _timeout_seconds(destination))
        if destination == "output":
            log.warning("%d records of scope %r: %s", len(records), self._gate.scope, _name(records))
            return None
        return _error(records, self._gate.scope)

    def __enter__(self) -> Destinations:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def _write(records: list[Any], session: SinkSession, timeout_seconds: float) -> OnceSinkError | None:
    try:
        answers = session.write(_letters(records), timeout_seconds=timeout_seconds)
    except OnceSinkError as error:
        return error
    except Exception as error:  # noqa: BLE001 - what is certain has to go with it
        unknown = OutcomeUnknown(f"the dead-letter sink raised {type(error).__name__}: {error}")
        unknown.__cause__ = error
        return unknown
    lost = [each for each in answers if each.outcome not in (Outcome.WRITTEN, Outcome.ALREADY)]
    return OutcomeUnknown(f"the dead-letter sink did not take {len(lost)} records: {lost[0]}") if lost else None


def _letters(records: list[Any]) -> list[Write]:
    """Give each its own digest, also where one is there twice."""
    seen: Counter[str] = Counter()
    writes = []
    for each in records:
        text = _shown(each)
        seen[text] += 1
        digest = blake2b(f"{seen[text]} {text}".encode("utf-8", "backslashreplace"), digest_size=16).digest()
        writes.append(Write(each._asdict(), digest, None))
    return writes


def _timeout_seconds(destination: Destination) -> float:
    assert isinstance(destination, Sink)
    return destination.timeout.total_seconds()


def _error(records: list[Any], scope: str) -> OnceSinkError:
    text = _name(records)
    if isinstance(records[0], Refused):
        choices = "rejected='output' or rejected=<a dead-letter sink> lets the rest go on"
        return RecordsRejected(records[0].reason, f"{len(records)} records of scope {scope!r}: {text}; {choices}")
    choices = "parked='output' or parked=<a sink> lets the rest go on"
    return RecordsParked(
        f"{len(records)} records of scope {scope!r} may or may not have been written: {text}; {choices}"
    )


def _name(records: list[Refused] | list[Parked]) -> str:
    shown = [_describe(each) for each in records[:_SHOWN]]
    more = len(records) - _SHOWN
    return "; ".join(shown) + (f"; and {more} more" if more > 0 else "")


def _describe(record: Refused | Parked) -> str:
    text = _shown(record.record)
    text = text if len(text) <= 200 else text[:197] + "..."
    if isinstance(record, Refused):
        return f"{record.reason} ({record.detail}) in {text}"
    return f"key {record.idempotency_key} ({record.detail}) in {text}"


def _shown(value: Any) -> str:
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - records are of any kind, and an error here would hide the reason
        return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"

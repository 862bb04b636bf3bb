"""Where rejected and parked records go: to a sink, to the output of that name, or up the stack."""

from __future__ import annotations

import logging
import secrets
from contextlib import ExitStack
from hashlib import blake2b
from types import TracebackType
from typing import Any

from ..connectors.contract import Outcome, Scope, Sink, SinkSession, Write
from ..connectors.errors import OnceSinkError, OutcomeUnknown, RecordsParked, RecordsRejected
from .digest import DIGEST_BYTES
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
        self._rejected = self._open(gate.rejected, scope, "rejected")
        self._parked = self._open(gate.parked, scope, "parked")

    def _open(self, destination: Destination, scope: Scope, kind: str) -> SinkSession | None:
        if isinstance(destination, str):
            return None
        # Letters are no records of the scope: a sink that registers what it is for does that under another name.
        name = f"{blake2b(scope.name.encode(), digest_size=8).hexdigest()} {kind}"
        meaning = {"of": scope.name, "target": destination.target}
        session = destination.open(Scope(name=name, use=scope.use, meaning=meaning), None)
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
            log.warning("%s of scope %r: %s", _count(records), self._gate.scope, _name(records))
            return None
        return _error(records, self._gate.scope)

    def __enter__(self) -> Destinations:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def _write(records: list[Any], session: SinkSession, timeout_seconds: float) -> OnceSinkError | None:
    """Hand over all of them, as long as each call gets on with some."""
    letters = [Write(each._asdict(), secrets.token_bytes(DIGEST_BYTES), None) for each in records]
    while letters:
        try:
            answers = session.write(letters, timeout_seconds=timeout_seconds)
        except OnceSinkError as error:
            return error
        except Exception as error:  # noqa: BLE001 - what is certain has to go with it
            return _unknown(f"raised {type(error).__name__}: {error}", error)
        if len(answers) != len(letters):
            return _unknown(f"gave {len(answers)} answers to {len(letters)} records")
        left = [each for each, answer in zip(letters, answers, strict=True) if answer.outcome not in _TAKEN]
        lost = [answer for answer in answers if answer.outcome not in (*_TAKEN, Outcome.UNAVAILABLE)]
        if lost or len(left) == len(letters):
            return _unknown(f"did not take {len(left)} records: {(lost or answers)[0]}")
        letters = left
    return None


_TAKEN = (Outcome.WRITTEN, Outcome.ALREADY, Outcome.STALE)


def _unknown(what: str, cause: Exception | None = None) -> OutcomeUnknown:
    error = OutcomeUnknown(f"the dead-letter sink {what}")
    error.__cause__ = cause
    return error


def _timeout_seconds(destination: Destination) -> float:
    assert isinstance(destination, Sink)
    return destination.timeout.total_seconds()


def _error(records: list[Any], scope: str) -> OnceSinkError:
    text = _name(records)
    if isinstance(records[0], Refused):
        choices = "rejected='output' or rejected=<a dead-letter sink> lets the rest go on"
        return RecordsRejected(records[0].reason, f"{_count(records)} of scope {scope!r}: {text}; {choices}")
    choices = "parked='output' or parked=<a sink> lets the rest go on"
    return RecordsParked(f"{_count(records)} of scope {scope!r} may or may not have been written: {text}; {choices}")


def _count(records: list[Any]) -> str:
    return f"{len(records)} record{'s' * (len(records) != 1)}"


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

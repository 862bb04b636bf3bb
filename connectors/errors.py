"""The error tree.

    OnceSinkError
    ├── Unavailable          a passing trouble; nothing was applied
    ├── OutcomeUnknown       the reply was lost; it may have been applied, or may still be
    │   └── InDoubt          records whose outcome stayed unknown until the end of the flush
    ├── Rejected             this record, for ever
    │   └── RecordsRejected  the flush is done, but some records were refused
    ├── RecordsParked        the flush is done, but some records need a person
    └── Misconfigured        settings, schema or servers do not fit; nothing was written

No message shows a password. What a writer raises carries, as `results`, every outcome that is certain.
"""

from __future__ import annotations

from typing import Any, Literal

Reason = Literal[
    "conflict",
    "no_field",
    "no_key",
    "no_position",
    "not_finite",
    "not_json",
    "not_unicode",
    "out_of_range",
    "refused",
    "tombstone",
    "too_large",
    "wrong_type",
]
"""Why a record was rejected. `conflict`: its key was finished with another content. `refused`: the sink said so."""


class OnceSinkError(Exception):
    """Base of everything that this library raises on purpose."""

    results: Any = None
    """The `Results` that are certain, where a writer raised it."""


class Unavailable(OnceSinkError):
    """A store or a sink cannot be reached or is busy; the call was not applied and may be repeated."""

    def __init__(self, message: str = "unavailable", *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class OutcomeUnknown(OnceSinkError):
    """The call was sent and its reply did not arrive: it may have been applied."""


class Rejected(OnceSinkError):
    """A record that will never be accepted as it is."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason: Reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


class Misconfigured(OnceSinkError):
    """Settings, schema or servers endanger the guarantee, or contradict each other; the message says what to do."""


class InDoubt(OutcomeUnknown):
    """Records whose effect may or may not have happened when the flush had waited for as long as it may.

    Writing the same records again is right: it asks for them once more.
    """


class RecordsRejected(Rejected):
    """Everything else of the flush is finished; these records were refused and nobody was named to take them."""


class RecordsParked(OnceSinkError):
    """Everything else of the flush is finished; these may or may not have been written: only a person can tell."""

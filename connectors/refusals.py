"""What a sink answers for a record that it cannot send as it is."""

from __future__ import annotations

from .contract import Answer, Outcome
from .errors import Rejected
from .rows import RECORD_ERRORS


def refusal(error: Exception) -> Answer:
    """Return the answer for a record over which a function raised this, before anything of it was sent.

    `RECORD_ERRORS` and refusals of this library speak of the record: it is rejected. Whatever else it is may pass.
    """
    if isinstance(error, Rejected):
        return Answer(Outcome.REJECTED, detail=error.detail, reason=error.reason)
    if isinstance(error, UnicodeEncodeError):
        return Answer(Outcome.REJECTED, detail="a lone surrogate", reason="not_unicode")
    what = f"what makes its request raised {type(error).__name__}: {error}"
    if isinstance(error, RECORD_ERRORS):
        return Answer(Outcome.REJECTED, detail=what, reason="wrong_type")
    return Answer(Outcome.UNAVAILABLE, detail=what)

"""What a sink answers for a record that it cannot send as it is."""

from __future__ import annotations

from .contract import Answer, Outcome
from .errors import Rejected


def refusal(error: Rejected | UnicodeEncodeError) -> Answer:
    """Return the answer that stands for a refusal of this library, or of Python's encoding of text."""
    if isinstance(error, Rejected):
        return Answer(Outcome.REJECTED, detail=error.detail, reason=error.reason)
    return Answer(Outcome.REJECTED, detail="a lone surrogate", reason="not_unicode")

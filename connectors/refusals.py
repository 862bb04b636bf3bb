"""What a sink answers for a record that it cannot send as it is."""

from __future__ import annotations

from .contract import Answer, Outcome
from .errors import Rejected

UNFIT = (Rejected, LookupError, TypeError, ValueError, AttributeError)
"""What a user's function raises for a record that is not as it expects: that one is refused, its batch goes on."""


def refusal(error: Exception) -> Answer:
    """Return the answer that stands for a refusal of this library, for text without an encoding, or for `UNFIT`."""
    if isinstance(error, Rejected):
        return Answer(Outcome.REJECTED, detail=error.detail, reason=error.reason)
    if isinstance(error, UnicodeEncodeError):
        return Answer(Outcome.REJECTED, detail="a lone surrogate", reason="not_unicode")
    what = f"what makes its request raised {type(error).__name__}: {error}"
    return Answer(Outcome.REJECTED, detail=what, reason="wrong_type")

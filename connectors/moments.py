"""Date-times as tables hold them: UTC, without a time zone."""

from __future__ import annotations

from datetime import datetime, timezone

from .errors import Rejected


def in_utc(value: datetime) -> datetime:
    """Return an aware date-time as UTC, any other as it is. Raises `Rejected` (`out_of_range`) outside years 1 to 9999.

    The time zone is dropped.
    """
    if value.tzinfo is None:
        return value
    try:
        return value.astimezone(timezone.utc).replace(tzinfo=None)
    except (OverflowError, ValueError) as error:
        # Not the value itself in the text: at the edges, a time zone may fail to show it, too.
        raise Rejected("out_of_range", f"a date-time that is none in UTC: {error}") from error

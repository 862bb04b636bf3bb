"""What a purge of a ledger did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Purged:
    """Rows deleted, and the open rows whose lease ended before the same time."""

    deleted: int
    old_open_rows: int
    oldest_open_seconds: float | None

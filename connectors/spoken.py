"""Durations as people write them, for messages: `7d`, `1h 30m`, `12.5s`."""

from __future__ import annotations

from datetime import timedelta

_UNITS = (("d", 86400), ("h", 3600), ("m", 60))


def spoken(duration: timedelta) -> str:
    """Return it in the units that options of the command take; `0s` for nothing."""
    rest = abs(duration)
    parts = []
    for unit, seconds in _UNITS:
        count, rest = divmod(rest, timedelta(seconds=seconds))
        if count:
            parts.append(f"{count}{unit}")
    if rest or not parts:
        parts.append(f"{rest.total_seconds():.6f}".rstrip("0").rstrip(".") + "s")
    return "-" * (duration < timedelta(0)) + " ".join(parts)

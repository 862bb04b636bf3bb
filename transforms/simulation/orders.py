"""What may break at each point."""

from __future__ import annotations

from .world import (
    ARRIVE_LATE,
    ASLEEP,
    COMMIT,
    CUT_OFF,
    IN_PART,
    INSIDE,
    LOSE_REPLY,
    NAMES,
    OUTPUT,
    REFUSE,
    START,
    WRITE,
)

DIE = -1
TOLD = {
    DIE: "dies",
    REFUSE: "fails",
    LOSE_REPLY: "is done, but its reply is lost",
    ARRIVE_LATE: "hangs and will arrive late",
    IN_PART: "breaks in the middle",
    CUT_OFF: "fails, and so will all others to that store",
}

_BUNDLE = (REFUSE, DIE)
_BEFORE = (DIE, REFUSE, CUT_OFF, ARRIVE_LATE)
_BEFORE_WRITE = (DIE, IN_PART, REFUSE, CUT_OFF, ARRIVE_LATE)
_WITHIN = (DIE, REFUSE, CUT_OFF)
_AFTER = (DIE, LOSE_REPLY)


def _orders(code: int) -> tuple[int, ...]:
    if code in (START, OUTPUT):
        return _BUNDLE
    if code == ASLEEP:
        return (DIE,)
    if code & 1:
        return _AFTER
    if code in INSIDE or code == COMMIT:
        return _WITHIN
    return _BEFORE_WRITE if code == WRITE else _BEFORE


ORDERS = {code + odd: _orders(code + odd) for code in NAMES for odd in (0, 1)}
"""By the point where an attempt stands."""

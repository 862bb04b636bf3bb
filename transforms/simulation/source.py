"""What a schedule delivers: a few keys, each sent once or more often, some with another content, some refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .choices import Choices

LEAST_DELIVERIES = 8
LEAST_KEYS = 3


class Delivery(NamedTuple):
    """One send of a key. A replay brings it with the same position `at`, a second send has another one.

    `content` is 0 but where a producer sent the key again with something else in it. A sink is to refuse what is
    `poison`, for ever.
    """

    at: int
    key: int
    content: int = 0
    poison: bool = False


MakeRecord = Callable[[Delivery], Any]
"""Makes the record of a delivery; the gate's recipes read key and occurrence off it."""


def make_record(delivery: Delivery) -> dict[str, Any]:
    """Make the record that the built-in gates read."""
    at, key, content, poison = delivery
    return {"key": f"k{key}", "at": at, "content": content, "poison": poison}


def refuses(record: dict[str, Any]) -> str | None:
    """Say what a sink says to a record that it will never take."""
    return "poison" if record["poison"] else None


def deliveries(choices: Choices, *, poison: bool) -> list[Delivery]:
    """Draw at least 8 deliveries of at least 3 keys."""
    pick = choices.pick
    keys = LEAST_KEYS + pick(2)
    numbers = [*range(keys), *(pick(keys) for _ in range(LEAST_DELIVERIES - LEAST_KEYS + pick(4)))]
    odd = pick(4)
    drawn = []
    for at in range(len(numbers)):
        # Every number is used once: the last takes the place of the one that is taken out.
        number = pick(len(numbers))
        numbers[number], last = numbers[-1], numbers[number]
        numbers.pop()
        content = int(odd == 1 and pick(4) == 3)
        drawn.append(Delivery(at, last, content, poison and odd >= 2 and pick(4) == 3))
    return drawn

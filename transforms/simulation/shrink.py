"""Make a failing schedule as short as it gets: fewer choices, and plainer ones."""

from __future__ import annotations

from collections.abc import Callable

Fails = Callable[[list[int]], bool]


def shrink(choices: list[int], fails: Fails, *, tries: int = 1500) -> list[int]:
    """Return choices that still fail. `fails` runs a schedule; it is asked at most `tries` times."""
    left = _Tries(fails, tries)
    best = choices
    before = None
    while best != before and left.tries > 0:
        before = best
        best = _cut_the_end(best, left)
        best = _take_pieces_out(best, left)
        best = _make_plainer(best, left)
    return best


class _Tries:
    def __init__(self, fails: Fails, tries: int) -> None:
        self._fails = fails
        self.tries = tries

    def __call__(self, choices: list[int]) -> bool:
        if self.tries <= 0:
            return False
        self.tries -= 1
        return self._fails(choices)


def _cut_the_end(best: list[int], fails: Fails) -> list[int]:
    """Halve what is kept; what is missing counts as the plainest choices."""
    step = len(best)
    while step:
        while step <= len(best) and fails(best[: len(best) - step]):
            best = best[: len(best) - step]
        step //= 2
    return best


def _take_pieces_out(best: list[int], fails: Fails) -> list[int]:
    for size in (16, 8, 4, 2, 1):
        at = len(best) - size
        while at >= 0:
            shorter = best[:at] + best[at + size :]
            if fails(shorter):
                best = shorter
            at -= size
    return best


def _make_plainer(best: list[int], fails: Fails) -> list[int]:
    for at in range(len(best) - 1, -1, -1):
        for value in (0, 1, best[at] // 2):
            if at < len(best) and value < best[at]:
                plainer = [*best[:at], value, *best[at + 1 :]]
                if fails(plainer):
                    best = plainer
                    break
    return best

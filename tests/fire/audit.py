"""Count what is lost, twice and wrong, from the source data and the target's rows. Knows nothing of the library."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Audit:
    """The three counts, and some of the keys behind them."""

    lost: int
    twice: int
    wrong: int
    examples: list[str] = field(default_factory=list)


def audit(source: Iterable[tuple[Hashable, Hashable]], target: Iterable[tuple[Hashable, Hashable]]) -> Audit:
    """Compare (key, content) of all well-formed deliveries with (key, content) of all rows of the target."""
    first: dict[Hashable, Hashable] = {}
    # Few keys have several contents, and a set for each of millions would fill the memory.
    others: dict[Hashable, set[Hashable]] = {}
    for key, content in source:
        if first.setdefault(key, content) != content:
            others.setdefault(key, set()).add(content)
    rows: Counter[Hashable] = Counter()
    wrong = []
    for key, content in target:
        rows[key] += 1
        if key not in first or (first[key] != content and content not in others.get(key, ())):
            wrong.append(key)
    lost = [key for key in first if key not in rows]
    twice = [key for key, count in rows.items() if count > 1]
    told = {"lost": lost, "twice": twice, "wrong": wrong}
    examples = [f"{what}: {key}" for what, keys in told.items() for key in keys[:20]]
    return Audit(len(lost), sum(rows[key] - 1 for key in twice), len(wrong), examples)

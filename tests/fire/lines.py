"""The deliveries of a run, made of their line numbers: every third one is a resend of a somewhat earlier order."""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

BACK = 600
"""How many lines a resend may come late."""


def order_of(line: int) -> int:
    """Return the order that a line delivers."""
    if line % 3 == 2:
        line = max(0, line - 1 - crc32(line.to_bytes(8, "big")) % BACK)
        line -= line % 3 == 2
    return line - line // 3


def amount_of(order: int) -> int:
    """Return what is in an order."""
    return order * 3 % 97


def source(lines: int) -> Iterator[tuple[int, int]]:
    """Yield key and content of each delivery."""
    for line in range(lines):
        order = order_of(line)
        yield order, amount_of(order)

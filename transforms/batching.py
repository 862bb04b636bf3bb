"""How much goes through the gate at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .gate import Batch
from .prepare import Item


def batches(items: Sequence[Item], bounds: Batch) -> Iterator[list[Item]]:
    """Cut by rows and by bytes."""
    if len(items) <= bounds.rows and sum([each.size for each in items]) <= bounds.bytes:
        yield from (list(items),) if items else ()
        return
    batch: list[Item] = []
    size = 0
    for each in items:
        if batch and (len(batch) >= bounds.rows or size + each.size > bounds.bytes):
            yield batch
            batch, size = [], 0
        batch.append(each)
        size += each.size
    yield batch

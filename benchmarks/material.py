"""Random digests for benchmarks of filters, as many as are wanted, without keeping them all."""

from collections.abc import Iterator

import numpy as np

STEP = 50_000

Digests = list[bytes]


def digests_of(count: int, *, seed: int) -> Digests:
    """Return random digests; two seeds share none."""
    return [digest for raw in pieces(count, seed=seed) for digest in cut(raw)]


def pieces(count: int, *, seed: int) -> Iterator[bytes]:
    """Yield random digests, joined, some at a time."""
    random = np.random.default_rng(seed)
    for at in range(0, count, STEP):
        yield random.bytes(16 * min(STEP, count - at))


def cut(raw: bytes) -> Digests:
    """Return joined digests one by one."""
    found: Digests = np.frombuffer(raw, dtype="V16").tolist()
    return found

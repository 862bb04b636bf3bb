"""Digests for filters, as evenly spread as real ones and the same in every run; clocks for those that forget."""

from hashlib import blake2b

import numpy as np
from hypothesis import strategies as st


def digests(count: int, *, seed: int = 0) -> list[bytes]:
    """Return random digests; two seeds share none."""
    raw = np.random.default_rng(seed).bytes(16 * count)
    return [raw[at : at + 16] for at in range(0, len(raw), 16)]


def frozen_digests(count: int) -> list[bytes]:
    """Return digests that do not depend on any generator of numpy's."""
    return [blake2b(number.to_bytes(4, "little"), digest_size=16).digest() for number in range(count)]


class Now:
    """A clock of wall time that a test sets."""

    def __init__(self) -> None:
        self.seconds = 1_000_000.0

    def __call__(self) -> float:
        return self.seconds


def nowhen() -> float:
    """Return the same time on every machine, for stored forms."""
    return 1_000_000.0


any_digests = st.lists(st.binary(min_size=16, max_size=16), max_size=60)
"""What a batch may hold: nothing, the same digest twice, all zeros."""

"""Digests for filters: as evenly spread as real ones, and the same in every run."""

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


any_digests = st.lists(st.binary(min_size=16, max_size=16), max_size=60)
"""What a batch may hold: nothing, the same digest twice, all zeros."""

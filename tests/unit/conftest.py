"""What all unit tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from oncesink.connectors.memory import forget_all


@pytest.fixture(autouse=True)
def _no_memory_of_other_tests() -> Iterator[None]:
    """Memory stores belong to one test."""
    yield
    forget_all()

"""Programs say why a call is repeated."""

import logging
from datetime import timedelta

import pytest
from oncesink.connectors.errors import Unavailable
from oncesink.pipelines.told_retries import told_retries
from oncesink.transforms import Counts
from oncesink.transforms.retry import Backoff, repeat


def test_a_repetition_is_a_line_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    """In place of stamina's own; behind the block that is as it was."""
    hasty = Backoff(attempts=2, wait_initial=timedelta(milliseconds=1), wait_max=timedelta(milliseconds=1))

    def away() -> None:
        raise Unavailable("Redis at cache:6379 did not answer")

    def trouble() -> list[str]:
        caplog.clear()
        with caplog.at_level(logging.WARNING), pytest.raises(Unavailable):
            repeat(away, hasty, Counts())
        return [f"{each.name}: {each.getMessage()}" for each in caplog.records]

    with told_retries():
        assert trouble() == ["oncesink: tried again in 0.0 s: Redis at cache:6379 did not answer"]
    assert trouble() == ["stamina: stamina.retry_scheduled"]

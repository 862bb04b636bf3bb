"""The circuit breaker, on a clock that tests set."""

import pytest
from oncesink.connectors.breaker import Breaker
from oncesink.connectors.clock import ManualClock
from oncesink.connectors.errors import Unavailable


@pytest.fixture
def clock() -> ManualClock:
    """Give a clock that stands."""
    return ManualClock(50.0)


@pytest.fixture
def breaker(clock: ManualClock) -> Breaker:
    """Give a breaker that pauses 1, 2, 4, 5, 5 ... seconds."""
    return Breaker("the thing", first_seconds=1.0, longest_seconds=5.0, clock=clock)


def test_the_first_failure_opens_it(breaker: Breaker) -> None:
    """One time-out is enough; the error says how long the pause lasts."""
    breaker.check()
    breaker.failed()
    with pytest.raises(Unavailable) as raised:
        breaker.check()
    assert raised.value.retry_after_seconds == 1.0


def test_pauses_grow_up_to_a_bound(breaker: Breaker, clock: ManualClock) -> None:
    """What stays dead is asked ever more seldom, but never given up."""
    pauses = []
    for _ in range(5):
        breaker.failed()
        pauses.append(breaker.left_seconds)
        clock.sleep(breaker.left_seconds)
        breaker.check()
    assert pauses == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_a_success_closes_it_and_begins_anew(breaker: Breaker, clock: ManualClock) -> None:
    """What came back is trusted again at once."""
    for _ in range(3):
        breaker.failed()
    clock.sleep(breaker.left_seconds)
    breaker.succeeded()
    breaker.check()
    breaker.failed()
    assert breaker.left_seconds == 1.0

"""What a Redis recipe refuses before it connects, and where its password shows."""

import pickle
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from oncesink.connectors.errors import Misconfigured
from oncesink.connectors.redis_cache import RedisCache
from oncesink.connectors.redis_client import RedisClient
from oncesink.connectors.redis_ledger import RedisLedger
from oncesink.connectors.secret import Secret

PASSWORD = "s3cr3t-p@ss"
HOUR = timedelta(hours=1)

Recipe = Callable[..., Any]


def cache(url: str, **options: Any) -> RedisCache:
    """Make a cache."""
    return RedisCache(url, ttl=HOUR, **options)


def ledger(url: str, **options: Any) -> RedisLedger:
    """Make a ledger."""
    return RedisLedger(url, retention=HOUR, **options)


@pytest.fixture(params=[cache, ledger])
def recipe(request: pytest.FixtureRequest) -> Recipe:
    """Give both recipes that take a URL."""
    made: Recipe = request.param
    return made


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://localhost", "redis://host"),
        ("localhost:6379", "redis://host"),
        ("cluster://localhost:7000", "single server"),
        ("cluster://localhost:7000/3", "database 0 only"),
        ("redis://localhost/orders", "is a number"),
        ("redis://localhost:port", "port"),
        ("redis://localhost?socket_timeout=100", "socket_timeout"),
        ("redis://localhost?ssl_ca_certs=/ca.pem", "ssl_ca_certs"),
        ("rediss://localhost?ssl_password=x", "ssl_password"),
    ],
)
def test_a_url_that_cannot_work_is_refused_at_once(recipe: Recipe, url: str, says: str) -> None:
    """The message names what is wrong; an option that would do nothing is wrong, too."""
    with pytest.raises(Misconfigured, match=says):
        recipe(url)


@pytest.mark.parametrize(
    "url", ["redis://localhost", "redis://[::1]:7000/3", "rediss://user@host/0?ssl_ca_certs=/ca.pem&ssl_cert_reqs=none"]
)
def test_other_urls_are_taken(recipe: Recipe, url: str) -> None:
    """User, database number and TLS options pass."""
    assert recipe(url).url == url


@pytest.mark.parametrize("options", [{"prefix": ""}, {"prefix": "x" * 65}])
def test_a_useless_prefix_is_refused(recipe: Recipe, options: dict[str, str]) -> None:
    """Every key bears it."""
    with pytest.raises(Misconfigured, match="prefix"):
        recipe("redis://localhost", **options)


def test_times_that_are_no_times_are_refused() -> None:
    """Redis counts whole milliseconds."""
    with pytest.raises(Misconfigured, match="ttl must be at least one millisecond"):
        RedisCache("redis://localhost", ttl=timedelta(microseconds=10))
    with pytest.raises(Misconfigured, match="budget must be at least one millisecond"):
        cache("redis://localhost", budget=timedelta(0))
    with pytest.raises(Misconfigured, match="retention"):
        RedisLedger("redis://localhost", retention=timedelta(0))
    with pytest.raises(Misconfigured, match="pause"):
        cache("redis://localhost", first_pause=timedelta(seconds=9), longest_pause=timedelta(seconds=3))


def test_a_password_shows_nowhere(recipe: Recipe) -> None:
    """Neither in the repr, nor in the URL, nor in what a refusal says, nor in a pickle, which is refused."""
    made = recipe(f"redis://user:{PASSWORD.replace('@', '%40')}@localhost:1/0")
    assert made.url == "redis://user@localhost:1/0"
    assert made.endpoint.password.reveal() == PASSWORD
    assert "s3cr3t" not in repr(made) + repr(made.endpoint) + repr(RedisClient(made.endpoint))
    with pytest.raises(Misconfigured) as refused:
        pickle.dumps(made)
    assert "s3cr3t" not in str(refused.value)
    for url in (f"redis://u:{PASSWORD}@localhost/orders", f"redis://localhost?password={PASSWORD}"):
        with pytest.raises(Misconfigured) as refused:
            recipe(url)
        assert "s3cr3t" not in str(refused.value)


def test_a_password_from_the_environment_stays_there(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the name of its place travels."""
    monkeypatch.setenv("ONCESINK_TEST_PASSWORD", PASSWORD)
    made = recipe("redis://localhost", password=Secret.env("ONCESINK_TEST_PASSWORD"))
    pickled = pickle.dumps(made)
    assert b"s3cr3t" not in pickled
    assert pickle.loads(pickled) == made


def test_two_passwords_are_refused(recipe: Recipe) -> None:
    """One of them would be ignored."""
    with pytest.raises(Misconfigured, match="two passwords"):
        recipe("redis://:a@localhost", password=Secret.literal("b"))


def test_a_missing_driver_says_what_to_install(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe can be made without it, and opening it gives the command."""
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(Misconfigured, match=r"pip install 'oncesink\[redis\]'"):
        RedisClient(recipe("redis://localhost").endpoint)

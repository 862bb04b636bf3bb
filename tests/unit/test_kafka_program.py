"""The program to copy, as far as it goes without a broker: what it is asked for, and what it says."""

from __future__ import annotations

import pytest
from oncesink.connectors import RedisCache, Secret
from oncesink.pipelines.kafka_to_mysql import gate, main, parser

REQUIRED = (
    *("--brokers", "127.0.0.1:1", "--topics", "orders", "--group", "writer", "--start", "earliest"),
    *("--source", "orders@eu-1/1", "--table", "orders", "--columns", "order_id", "--key", "order_id"),
)
MYSQL = ("--mysql", "mysql://writer@127.0.0.1:1/shop")


def test_redis_may_want_a_password() -> None:
    """It is read from the environment of the process, and never an argument."""
    options = parser().parse_args(
        [*REQUIRED, *MYSQL, "--redis", "redis://127.0.0.1:1/0", "--redis-password-env", "CACHE_PASSWORD"]
    )
    cache = gate(options).cache
    assert isinstance(cache, RedisCache)
    assert cache.password == Secret.env("CACHE_PASSWORD")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--mysql", "nowhere"), "a MySQL URL looks like"),
        ((*MYSQL, "--mysql-password-env", "NO_SUCH_VARIABLE"), "no password in"),
        ((*MYSQL, "--batch-rows", "0"), "every bound of a batch is positive"),
        (MYSQL, "cannot connect to mysql://writer@127.0.0.1:1/shop"),
    ],
)
def test_what_it_cannot_begin_is_one_line(arguments: tuple[str, ...], said: str) -> None:
    """The reason alone, and a status that is not 0."""
    with pytest.raises(SystemExit) as end:
        main([*REQUIRED, *arguments])
    assert str(end.value.code).startswith("kafka_to_mysql: ")
    assert said in str(end.value.code)


def test_a_setting_without_a_value_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """As any other option that is wrong."""
    with pytest.raises(SystemExit) as end:
        main([*REQUIRED, *MYSQL, "--setting", "client.id"])
    assert end.value.code == 2
    assert "NAME=VALUE is wanted, not 'client.id'" in capsys.readouterr().err

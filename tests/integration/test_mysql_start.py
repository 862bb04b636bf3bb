"""What is proved before the first record. Each error says what to do, and never the password."""

import pickle
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from oncesink.connectors.contract import Scope, Use
from oncesink.connectors.errors import Misconfigured, Unavailable
from oncesink.connectors.mysql_check import check_server
from oncesink.connectors.mysql_ledger import MySQLLedger
from oncesink.connectors.mysql_purge import purge
from oncesink.connectors.mysql_table import MySQLTable
from oncesink.connectors.secret import Secret

from tests.conftest import MySQLDatabase
from tests.integration.mysql_worlds import IMPATIENT, LEASE_SECONDS, SCOPE, A, World, claims, digest, world_of
from tests.servers import HOST, MYSQL_USER, free_port

KEYED = "CREATE TABLE orders (order_id VARCHAR(20) NOT NULL, at FLOAT NOT NULL, n INT, note BINARY(16), KEY (order_id))"


@pytest.fixture
def world(mysql_database: MySQLDatabase) -> Iterator[World]:
    """Give an empty ledger."""
    with world_of(mysql_database) as world:
        yield world


@pytest.mark.parametrize(
    ("change", "todo"),
    [
        ("DROP TABLE oncesink_ledger", "oncesink init --apply"),
        ("DROP TABLE oncesink_scopes", "oncesink init --apply"),
        ("ALTER TABLE oncesink_ledger ENGINE=MyISAM", "ENGINE=InnoDB"),
        ("ALTER TABLE oncesink_ledger DROP KEY digest, ADD KEY digest (digest)", "ADD UNIQUE KEY"),
        ("ALTER TABLE oncesink_ledger DROP KEY digest, ADD UNIQUE KEY digest (digest, scope)", "ADD UNIQUE KEY"),
        ("ALTER TABLE oncesink_ledger DROP KEY digest, ADD UNIQUE KEY digest (digest(8))", "ADD UNIQUE KEY"),
        ("ALTER TABLE oncesink_ledger MODIFY digest CHAR(16) NOT NULL", "digest .* is char"),
        ("ALTER TABLE oncesink_ledger MODIFY occurrence VARBINARY(100)", r"occurrence .* is varbinary\(100\)"),
        ("ALTER TABLE oncesink_ledger MODIFY lease_until DATETIME", "lease_until"),
        ("ALTER TABLE oncesink_ledger DROP COLUMN payload_hash", "payload_hash .* is missing"),
        (
            "CREATE TRIGGER t BEFORE INSERT ON oncesink_ledger FOR EACH ROW SET NEW.state=1",
            r"triggers \(t\).* drop them",
        ),
        ("DROP TABLE oncesink_ledger; CREATE VIEW oncesink_ledger AS SELECT 1", "is a VIEW"),
        ("UPDATE oncesink_scopes SET tables_format=99", "format 99"),
    ],
)
def test_a_ledger_that_cannot_keep_its_promise_is_refused(world: World, change: str, todo: str) -> None:
    """What would break the guarantee is found at start."""
    world.open()
    world.sql(*change.split("; "))
    with pytest.raises(Misconfigured, match=todo) as refused:
        world.open()
    assert world.database.password not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "password", "error", "todo"),
    [
        ("mysql://{user}@{host}:{port}/{name}", "wrong-secret", Misconfigured, "check user and password"),
        ("mysql://nobody@{host}:{port}/{name}", "wrong-secret", Misconfigured, "check user and password"),
        ("mysql://{user}@{host}:{port}/nowhere", None, Misconfigured, "create the database"),
        ("mysql://{user}@{host}:{free}/{name}", None, Unavailable, "cannot connect to mysql://"),
    ],
)
def test_a_wrong_address_is_told_without_the_password(
    world: World, url: str, password: str | None, error: type[Exception], todo: str
) -> None:
    """The message shows where it tried, and what to do."""
    server, name = world.database.server, world.database.name
    place = url.format(user=MYSQL_USER, host=HOST, port=server.port, free=free_port(), name=name)
    secret = password or world.database.password
    with pytest.raises(error, match=todo) as refused:
        world.ledger(url=place, password=Secret.literal(secret), timeouts=IMPATIENT).open(SCOPE)
    shown = f"{refused.value!r} {refused.value} {refused.value.__cause__!r}"
    assert secret not in shown


@pytest.mark.parametrize("url", ["redis://h/0", "mysql://h", "mysql:///db", "mysql://h:x/db", "h", "mysql://h/db?a=1"])
def test_an_address_of_another_form_is_refused_at_once(url: str) -> None:
    """Before anything is opened."""
    with pytest.raises(Misconfigured):
        MySQLLedger(url, retention=timedelta(days=1))


def test_a_password_in_the_url_is_taken_out(world: World) -> None:
    """It works, shows nowhere, and does not leave the process."""
    place = world.database.url.replace("mysql://", "").removeprefix(f"{MYSQL_USER}@")
    ledger = MySQLLedger(f"mysql://{MYSQL_USER}:p%40ss%3A%2Fw0rd%20%2541@{place}", retention=timedelta(days=1))
    session = ledger.open(SCOPE)
    session.close()
    table = MySQLTable(ledger, "orders")
    for shown in (repr(ledger), repr(session), repr(table), ledger.url, table.target):
        assert "w0rd" not in shown
    for recipe in (ledger, table):
        with pytest.raises(Misconfigured, match="must not leave"):
            pickle.dumps(recipe)


def test_a_pickled_recipe_holds_the_place_of_the_password_only(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked up again where it is opened."""
    monkeypatch.setenv("SOME_PASSWORD", world.database.password)
    table = MySQLTable(world.database.url, "orders", unique=("order_id",), password=Secret.env("SOME_PASSWORD"))
    data = pickle.dumps((world.ledger(password=Secret.env("SOME_PASSWORD")), table))
    assert world.database.password.encode() not in data
    ledger, again = pickle.loads(data)
    assert again == table
    ledger.open(SCOPE).close()
    monkeypatch.delenv("SOME_PASSWORD")
    with pytest.raises(Misconfigured, match="SOME_PASSWORD"):
        ledger.open(SCOPE)


@pytest.mark.parametrize(
    ("settings", "todo"),
    [
        ({"unique": ("order_id",)}, r"ADD UNIQUE KEY \(order_id\)"),
        ({"unique": ("nothere",)}, "no column nothere"),
        ({"unique": ("n",), "also": "ADD UNIQUE KEY (n)"}, "MODIFY n int.* NOT NULL"),
        ({"unique": ("at",), "also": "ADD UNIQUE KEY (at)"}, "FLOAT"),
        (
            {"unique": ("order_id",), "also": "ADD UNIQUE KEY (order_id)", "occurrence_column": "note"},
            r"MODIFY note VARBINARY\(255\)",
        ),
        ({"unique": ("order_id",), "also": "ADD UNIQUE KEY (order_id)", "occurrence_column": "x"}, "no column x"),
    ],
)
def test_a_table_that_cannot_recognise_its_key_is_refused(world: World, settings: dict[str, Any], todo: str) -> None:
    """Declared columns, uniqueness, NOT NULL and exact types are proved."""
    world.sql(KEYED, *([f"ALTER TABLE orders {settings.pop('also')}"] if "also" in settings else []))
    table = MySQLTable(world.database.url, "orders", password=Secret.literal(world.database.password), **settings)
    with pytest.raises(Misconfigured, match=todo):
        table.open(SCOPE, None)


def test_contradicting_settings_of_a_table_are_refused(world: World) -> None:
    """The message names all of them."""
    ledger, url = world.ledger(), world.database.url
    with pytest.raises(Misconfigured, match="unique="):
        MySQLTable(url, "orders")
    with pytest.raises(Misconfigured, match=r"unique=.*password="):
        MySQLTable(ledger, "orders", unique=("a",), password=Secret.env("X"))
    with pytest.raises(Misconfigured, match="order_id"):
        MySQLTable(url, "orders", unique=("order_id",), columns={"other": "x"})
    with pytest.raises(Misconfigured, match="occurrence_column"):
        MySQLTable(ledger, "orders", occurrence_column="o", columns={"o": "x"})
    with pytest.raises(Misconfigured, match="retention"):
        MySQLLedger(url, retention=timedelta(0))
    with pytest.raises(Misconfigured, match="letters"):
        MySQLLedger(url, retention=timedelta(days=1), table="a; DROP TABLE b")


def test_a_table_opens_with_the_ledger_of_its_recipe_only(world: World) -> None:
    """Rows in another database cannot commit together with the claims."""
    world.sql("CREATE TABLE orders (a INT)")
    other = world.ledger(retention=timedelta(days=2), timeouts=IMPATIENT)
    with pytest.raises(Misconfigured, match="ledger="):
        MySQLTable(other, "orders").open(SCOPE, world.open())


def test_another_ledger_table_under_one_scope_is_refused(world: World) -> None:
    """Its rows would be forgotten in silence."""
    world.open()
    other = world.ledger(table="other_ledger")
    other.create_tables()
    with pytest.raises(Misconfigured, match="other_ledger"):
        other.open(SCOPE)


def test_a_read_only_server_is_refused(world: World) -> None:
    """A replica would take no claims."""
    world.sql("SET GLOBAL read_only=1")
    try:
        with pytest.raises(Misconfigured, match="primary"):
            world.open()
    finally:
        world.sql("SET GLOBAL read_only=0")


def test_every_session_is_strict_and_reads_what_is_committed(world: World) -> None:
    """Whatever the server's own settings are."""
    world.sql(
        "SET GLOBAL sql_mode=''", "SET GLOBAL unique_checks=0", "SET GLOBAL TRANSACTION ISOLATION LEVEL SERIALIZABLE"
    )
    try:
        asked = "SELECT @@sql_mode, @@unique_checks, @@autocommit, @@wait_timeout, @@innodb_lock_wait_timeout"
        session = world.open()
        [(mode, *numbers)] = session.connection.query(asked)
        # MariaDB and MySQL 8 call it differently.
        isolations = session.connection.query(
            "SHOW VARIABLES WHERE variable_name IN ('tx_isolation', 'transaction_isolation')"
        )
        assert "STRICT_ALL_TABLES" in mode
        assert numbers == ["1", "1", "60", "5"]
        assert {isolation for _, isolation in isolations} == {"READ-COMMITTED"}
    finally:
        world.sql(
            "SET GLOBAL sql_mode=DEFAULT",
            "SET GLOBAL unique_checks=1",
            "SET GLOBAL TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        )


def test_what_narrows_the_guarantee_is_a_warning(world: World) -> None:
    """`check` tells of it, and a session opens all the same."""
    connection = world.open().connection
    assert [each for each in check_server(connection) if "log_at_trx" in each.what] == []
    world.sql("SET GLOBAL innodb_flush_log_at_trx_commit=2")
    try:
        [found] = [each for each in check_server(connection) if "log_at_trx" in each.what]
        assert found.severity == "warning"
        assert found.todo == "set 1"
        world.open()
    finally:
        world.sql("SET GLOBAL innodb_flush_log_at_trx_commit=1")


def test_a_purge_takes_what_was_finished_long_ago(world: World) -> None:
    """It counts from the finish, goes in pages, and leaves young and open rows; old open ones are told of."""
    session = world.open()
    session.claim(claims(*range(10)), owner=A, lease_seconds=None)
    session.claim(claims(10, 11), owner=A, lease_seconds=LEASE_SECONDS)
    session.claim(claims(12), owner=A, lease_seconds=None)
    back = "UTC_TIMESTAMP(6) - INTERVAL 2 DAY"
    world.sql(
        f"UPDATE oncesink_ledger SET created_at={back}, finished_at=IF(state, {back}, NULL), "
        f"lease_until=IF(state, NULL, {back}) WHERE id<=11",
        f"UPDATE oncesink_ledger SET finished_at=UTC_TIMESTAMP(6) WHERE digest={'0x' + digest(0).hex()}",
    )
    first = purge(world.ledger(), older_than=timedelta(days=1), page_rows=3, pages=2)
    assert (first.deleted, first.old_open_rows) == (5, 1)
    second = purge(world.ledger(), older_than=timedelta(days=1), page_rows=3)
    assert second.deleted == 4
    assert second.oldest_open_seconds == pytest.approx(2 * 86400, abs=120)
    assert set(session.read([digest(number) for number in range(13)])) == {digest(number) for number in (0, 10, 11, 12)}


def test_a_purge_below_the_retention_is_refused(world: World) -> None:
    """A cache could still answer for a row that is gone; the scope is named."""
    world.open(Scope(name="slow", use=Use.WRITE), retention=timedelta(days=30))
    with pytest.raises(Misconfigured, match=r"slow .30d"):
        purge(world.ledger(), older_than=timedelta(days=7))

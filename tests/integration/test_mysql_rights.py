"""Users who may not do what a job does are told so at start, and what to grant."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from oncesink.connectors import Misconfigured, MySQLLedger, MySQLTable, Scope, Secret, Use, Versioned
from oncesink.pipelines.cli import main
from oncesink.pipelines.findings import of_ledger

from tests.conftest import MySQLDatabase
from tests.servers import HOST

SCOPE = Scope(name="orders", use=Use.WRITE)
PASSWORD = "p4ss"
DAY = timedelta(days=1)


@dataclass
class Limited:
    """A user of one database, with the rights that a test gives it."""

    database: MySQLDatabase
    user: str

    @property
    def url(self) -> str:
        """Return where the user connects."""
        return f"mysql://{self.user}@{HOST}:{self.database.server.port}/{self.database.name}"

    def sql(self, *statements: str) -> None:
        """Run statements as somebody who may."""
        with closing(self.database.server.connect(self.database.name)) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def grant(self, rights: str, table: str = "*") -> None:
        """Give the user rights to a table, or to all of them."""
        self.sql(f"GRANT {rights} ON {self.database.name}.{table} TO {self.user}@'%'")

    def ledger(self, **settings: Any) -> MySQLLedger:
        """Return the ledger as this user opens it."""
        return MySQLLedger(self.url, retention=DAY, password=Secret.literal(PASSWORD), **settings)

    def table(self, **settings: Any) -> MySQLTable:
        """Return a table as this user opens it."""
        return MySQLTable(self.url, "orders", unique=("id",), password=Secret.literal(PASSWORD), **settings)


@pytest.fixture
def limited(mysql_database: MySQLDatabase) -> Iterator[Limited]:
    """Make the tables, and a user who may nothing."""
    MySQLLedger(mysql_database.url, retention=DAY, password=Secret.literal(mysql_database.password)).create_tables()
    made = Limited(mysql_database, f"u_{mysql_database.name}")
    made.sql(
        f"CREATE USER {made.user}@'%' IDENTIFIED BY '{PASSWORD}'",
        "CREATE TABLE orders (id INT PRIMARY KEY, version INT NOT NULL, doubled INT AS (2 * id) STORED)",
    )
    yield made
    made.sql(f"DROP USER {made.user}@'%'")


def test_check_tells_what_the_user_may_not_do(limited: Limited) -> None:
    """SELECT alone reads all that `check` reads, and writes nothing of what a job writes."""
    limited.grant("SELECT")
    told = [(each.severity, each.what.partition(" may not ")[2], each.todo) for each in of_ledger(limited.ledger())]
    place = limited.database.name
    wanted = [(verb, "oncesink_scopes") for verb in ("INSERT", "UPDATE")]
    wanted += [(verb, "oncesink_ledger") for verb in ("INSERT", "UPDATE", "DELETE")]
    found = [each for each in told if each[1]]
    assert found == [
        ("error", f"{verb} in {place}.{table}", f"GRANT {verb} ON {place}.{table}") for verb, table in wanted
    ]
    limited.grant("INSERT, UPDATE, DELETE")
    assert [each for each in of_ledger(limited.ledger()) if each.severity == "error"] == []


def test_a_job_does_not_start_without_its_rights(limited: Limited) -> None:
    """It is told all of them at once, and nothing is registered."""
    limited.grant("SELECT, INSERT")
    with pytest.raises(Misconfigured, match=r"may not UPDATE in .*may not DELETE in"):
        limited.ledger().open(SCOPE)
    limited.grant("UPDATE, DELETE")
    with closing(limited.ledger().open(SCOPE)) as session:
        assert session.read([bytes(16)]) == {}


def test_a_table_is_asked_for_what_is_done_to_it(limited: Limited) -> None:
    """Rows are inserted; where they are versioned they are updated, too."""
    limited.grant("SELECT")
    limited.grant("INSERT, UPDATE", "oncesink_scopes")
    versioned = limited.table(columns={"id": "id", "version": "version"}, versioned=Versioned(by="version"))
    with pytest.raises(Misconfigured, match=r"may not INSERT in .*\.orders"):
        limited.table().prove()
    limited.grant("INSERT", "orders")
    limited.table().prove()
    with pytest.raises(Misconfigured, match=r"may not UPDATE in .*\.orders"):
        versioned.prove()
    limited.grant("UPDATE (id, version)", "orders")
    with ExitStack() as stack:
        stack.enter_context(closing(versioned.open(SCOPE, None)))
        assert limited.database.server.connect(limited.database.name).query("SELECT 1 FROM oncesink_scopes") == 1


def test_who_may_not_make_tables_is_told_that(
    limited: Limited, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """CREATE is what `init --apply` needs, and not what a job needs."""
    limited.grant("SELECT, INSERT, UPDATE, DELETE")
    monkeypatch.setenv("LIMITED", PASSWORD)
    given = ["--ledger", limited.url, "--password-env", "LIMITED", "--table", "other"]
    assert main(["init", *given, "--apply"]) == 2
    told = capsys.readouterr().err
    assert "GRANT CREATE" in told
    assert "oncesink init" in told
    limited.grant("CREATE")
    with pytest.raises(SystemExit) as done:
        main(["init", *given, "--apply"])
    assert done.value.code == 0


def test_a_missing_table_is_made_by_the_command_that_names_it(limited: Limited) -> None:
    """What `check --table other` suggests makes that table and no other one."""
    limited.grant("SELECT, INSERT, UPDATE, DELETE")
    todos = [each.todo for each in of_ledger(limited.ledger(table="other")) if each.severity == "error"]
    assert todos == ["run `oncesink init --table other --apply`"]
    with pytest.raises(Misconfigured, match="init --table other --apply"):
        limited.ledger(table="other").open(SCOPE)

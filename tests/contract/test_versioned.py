"""The suite of versioned tables on SQLite and MariaDB."""

import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oncesink.connectors import (
    ALREADY,
    STALE,
    WRITTEN,
    Answer,
    Claim,
    LedgerSession,
    Misconfigured,
    MySQLLedger,
    MySQLTable,
    Rejected,
    Scope,
    Secret,
    Sink,
    SQLiteLedger,
    SQLiteTable,
    Unavailable,
    Use,
    Versioned,
)
from oncesink.connectors.mysql_versioned import MySQLVersionedSession
from oncesink.transforms import Fields, OnceWriter, SourcePosition

from tests.conftest import MySQLDatabase
from tests.contract.versioned_contract import (
    BY,
    COLUMNS,
    OPTIONAL,
    SECONDS,
    AnyRow,
    VersionedContract,
    order,
    writes,
)
from tests.integration.mysql_worlds import both

SCOPE = Scope(name="orders", use=Use.WRITE)
DAY = timedelta(days=1)

ORDERS = """
CREATE TABLE orders (
  order_id VARCHAR(20) NOT NULL {key},
  version BIGINT NOT NULL {version_default},
  amount INTEGER NOT NULL DEFAULT 0 CHECK (amount >= 0),
  note VARCHAR(20) NULL UNIQUE,
  loose BIGINT NULL,
  gone INTEGER NOT NULL DEFAULT 0
)
"""
USUAL: dict[str, Any] = {"columns": COLUMNS, "optional": OPTIONAL, "unique": ("order_id",), "versioned": BY}


class InTransaction(VersionedContract):
    """Rows and claims are one transaction."""

    def apply(self, records: Sequence[Any], sink: Sink | None = None) -> Sequence[Answer]:
        """Claim and write."""
        ledger = self.ledger()
        assert ledger is not None
        with ExitStack() as stack:
            opened: LedgerSession = stack.enter_context(closing(ledger.open(SCOPE)))
            session = stack.enter_context(closing((sink or self.make()).open(SCOPE, opened)))
            stack.enter_context(opened.transaction())
            opened.claim([Claim(b"c" * 16, None, None)], owner=b"o" * 16, lease_seconds=None)
            return session.write(writes(records), timeout_seconds=SECONDS)


class TestSQLite(InTransaction):
    """A table in the ledger's file."""

    @pytest.fixture(autouse=True)
    def store(self, tmp_path: Path) -> None:
        """Make the table."""
        self.path = str(tmp_path / "once.db")
        self.sql(ORDERS.format(key="UNIQUE", version_default=""))

    def ledger(self) -> SQLiteLedger:
        """Return the ledger's recipe."""
        return SQLiteLedger(self.path, retention=DAY)

    def make(self, **settings: Any) -> SQLiteTable:
        """Return the table's recipe."""
        return SQLiteTable(self.ledger(), "orders", **(USUAL | settings))

    def sql(self, statement: str) -> Sequence[AnyRow]:
        """Run a statement."""
        with closing(sqlite3.connect(self.path)) as connection, connection:
            return connection.execute(statement).fetchall()

    def moments(self) -> None:
        """Make the table anew."""
        self.sql("DROP TABLE orders")
        self.sql(ORDERS.format(key="UNIQUE", version_default="").replace("version BIGINT", "version TEXT"))

    def test_a_key_that_may_be_null_is_refused(self) -> None:
        """A unique index takes NULL any number of times."""
        self.sql("CREATE UNIQUE INDEX loose_key ON orders (loose)")
        sink = self.make(columns={**COLUMNS, "loose": "loose"}, unique=("loose",))
        with pytest.raises(Exception, match="NOT NULL"):
            sink.prove()

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.data())
    def test_any_order_batching_and_replay_ends_with_the_newest(self, shared: OnceWriter, data: st.DataObject) -> None:
        """Whatever comes late, twice or together: the table holds the newest, and what was told is what changed."""
        self.converges(data, shared)


class OnMySQL(VersionedContract):
    """A table in a database of each test's own."""

    @pytest.fixture(autouse=True)
    def store(self, mysql_database: MySQLDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make the table; the password is found in the environment."""
        monkeypatch.setenv("TABLE_PASSWORD", mysql_database.password)
        self.database = mysql_database
        self.password = Secret.env("TABLE_PASSWORD")
        self.sql(ORDERS.format(key="UNIQUE", version_default=""))
        self.recipe().create_tables()

    def recipe(self) -> MySQLLedger:
        """Return the ledger's recipe."""
        return MySQLLedger(self.database.url, retention=DAY, password=self.password)

    def sql(self, statement: str, *, lax: bool = False) -> Sequence[AnyRow]:
        """Run a statement."""
        with closing(self.database.server.connect(self.database.name)) as connection, connection.cursor() as cursor:
            if lax:
                cursor.execute("SET sql_mode=''")
            cursor.execute(statement)
            return list(cursor.fetchall())

    def moments(self) -> None:
        """Change the column."""
        self.sql("ALTER TABLE orders MODIFY version DATETIME(6) NOT NULL")

    def test_writers_that_meet_leave_the_newest(self) -> None:
        """Three of them, each with all versions in an order of its own; every change is told by one of them."""
        told: Counter[tuple[str, int]] = Counter()

        def work(number: int) -> None:
            chosen = random.Random(number)
            records = [order(f"k{key}", version, version) for key in range(15) for version in range(1, 9)]
            chosen.shuffle(records)
            with OnceWriter(self.gate(occurrence=SourcePosition(f"s{number}", "at")), self.make()) as writer:
                for start in range(0, len(records), 20):
                    batch = records[start : start + 20]
                    results = writer.write([{**each, "at": start + n} for n, each in enumerate(batch)])
                    changes = [each for each in results.written if not each.stale and not each.replayed]
                    told.update((each.record["order_id"], each.record["version"]) for each in changes)

        both(*[partial(work, number) for number in range(3)])
        assert [row[:3] for row in self.rows()] == [(f"k{key}", 8, 8) for key in sorted(range(15), key=str)]
        assert set(told.values()) == {1}
        assert {key for key, version in told if version == 8} == {f"k{key}" for key in range(15)}


class TestMySQLOnItsLedger(OnMySQL, InTransaction):
    """Business rows in the ledger's transaction."""

    def ledger(self) -> MySQLLedger:
        """Return the ledger's recipe."""
        return self.recipe()

    def make(self, **settings: Any) -> MySQLTable:
        """Return the table's recipe."""
        return MySQLTable(self.recipe(), "orders", **(USUAL | settings))

    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.data())
    def test_any_order_batching_and_replay_ends_with_the_newest(self, shared: OnceWriter, data: st.DataObject) -> None:
        """Whatever comes late, twice or together: the table holds the newest, and what was told is what changed."""
        self.converges(data, shared)


class TestMySQLByItsOwnKey(OnMySQL):
    """The table alone, without a ledger."""

    equal = ALREADY

    def ledger(self) -> None:
        """There is none."""

    def make(self, **settings: Any) -> MySQLTable:
        """Return the table's recipe."""
        return MySQLTable(self.database.url, "orders", password=self.password, **(USUAL | settings))

    def open(self, stack: ExitStack, **settings: Any) -> MySQLVersionedSession:
        """Open the table."""
        session = stack.enter_context(closing(self.make(**settings).open(SCOPE, None)))
        assert isinstance(session, MySQLVersionedSession)
        return session

    def apply(self, records: Sequence[Any], sink: Sink | None = None) -> Sequence[Answer]:
        """Write."""
        with closing((sink or self.make()).open(SCOPE, None)) as session:
            return session.write(writes(records), timeout_seconds=SECONDS)

    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.data())
    def test_any_order_batching_and_replay_ends_with_the_newest(self, shared: OnceWriter, data: st.DataObject) -> None:
        """Whatever comes late, twice or together: the table holds the newest, and what was told is what changed."""
        self.converges(data, shared)

    def test_a_race_is_unavailable_and_nothing_of_it_stays(self) -> None:
        """Another writer inserts, or replaces, between the look and the write: the caller does it again, exactly."""
        with ExitStack() as stack:
            session, other = self.open(stack), self.open(stack)
            for version in (2, 4):
                interfere(session, partial(apply, other, order("a", version)))
                with pytest.raises(Unavailable):
                    apply(session, order("a", version - 1))
                interfere(session, None)
                assert apply(session, order("a", version - 1), order("b", version)) == [STALE, WRITTEN]
        assert [row[:2] for row in self.rows()] == [("a", 4), ("b", 4)]

    def test_a_race_in_a_batch_undoes_the_batch(self) -> None:
        """A caller that halves it comes to the end; nothing is half there meanwhile."""
        with ExitStack() as stack:
            session, other = self.open(stack), self.open(stack)
            apply(session, order("a", 1), order("b", 1))
            interfere(session, lambda: apply(other, order("a", 9)))
            with pytest.raises(Rejected):
                apply(session, order("a", 2), order("b", 2), order("c", 1))
            assert [row[:2] for row in self.rows()] == [("a", 9), ("b", 1)]

    def test_keys_that_only_the_table_takes_for_equal_end_at_the_newest(self) -> None:
        """The gate halves such a batch until each stands alone."""
        writer_settings = {"occurrence": None}
        for versions in ((1, 2), (4, 3)):
            with OnceWriter(self.gate(**writer_settings), self.make()) as writer:
                results = writer.write([order("a", versions[0]), order("A", versions[1])])
            assert len(results.written) == 2
            assert [row[1] for row in self.rows()] == [max(versions)]

    def test_a_key_that_the_server_looks_at_first_leads_to_no_other_row(self) -> None:
        """An upsert goes to the first row in its way, here that of the primary key: that one stays as it is."""
        self.sql("ALTER TABLE orders MODIFY note VARCHAR(20) NOT NULL, ADD PRIMARY KEY (note)")
        sink = self.make(versioned=Versioned(by="version"), optional=("gone",))
        self.apply([order("a", 1, 10, note="n"), order("b", 1, 20, note="m")], sink)
        with pytest.raises(Rejected, match="another unique key"):
            self.apply([order("b", 9, 90, note="n")], sink)
        assert [row[:4] for row in self.rows()] == [("a", 1, 10, "n"), ("b", 1, 20, "m")]

    def test_a_key_that_the_column_cannot_hold_is_rejected(self) -> None:
        """The look-up leads to no other row, beside whose version this one would be stale."""
        self.sql("ALTER TABLE orders MODIFY order_id DECIMAL(6,0) NOT NULL")
        with OnceWriter(self.gate(occurrence=None, rejected="output"), self.make()) as writer:
            assert len(writer.write([order("999999", 5)]).written) == 1
            results = writer.write([order("1000001", 3), order("999999", 6), order("7", 1)])
        assert [each.record["order_id"] for each in results.rejected] == ["1000001"]
        assert [(each.record["order_id"], each.stale) for each in results.written] == [("999999", False), ("7", False)]

    def test_half_a_character_in_the_key_is_rejected_alone(self) -> None:
        """Before a look-up is sent; the rest of the batch is written."""
        with OnceWriter(self.gate(key=Fields("version"), occurrence=None, rejected="output"), self.make()) as writer:
            results = writer.write([order("a", 1), order("\ud800", 2), order("\udc80", 3), order("b", 4)])
        assert [each.reason for each in results.rejected] == ["not_unicode", "not_unicode"]
        assert [row[0] for row in self.rows()] == ["a", "b"]

    def test_a_row_without_a_date_is_older_than_any(self) -> None:
        """A lax session stores zeros for none; what has a zero in its middle is a matter for a person."""
        self.moments()
        for zeros in ("0000-00-00", "2026-00-07"):
            self.sql(f"INSERT INTO orders (order_id, version) VALUES ('{zeros}', '{zeros}')", lax=True)
        moment = datetime(2026, 1, 1)  # noqa: DTZ001
        assert self.apply([order("0000-00-00", moment)]) == [WRITTEN]
        assert self.apply([order("0000-00-00", moment)]) == [ALREADY]
        with pytest.raises(Misconfigured, match="UPDATE orders SET version"):
            self.apply([order("2026-00-07", moment)])

    def test_the_occurrence_of_the_newest_is_kept_and_told(self) -> None:
        """So a replay of the version that is there is told from a second send of it."""
        self.sql("ALTER TABLE orders ADD COLUMN occurrence VARBINARY(255) NULL")
        sink = self.make(occurrence_column="occurrence")
        with OnceWriter(self.gate(), sink) as writer:
            writer.write([order("a", 1, offset=1)])
            again = writer.write([order("a", 1, offset=1), order("a", 1, offset=2)])
            assert (len(again.written), len(again.duplicates)) == (1, 1)
            later = writer.write([order("a", 2, offset=3), order("a", 1, offset=1)])
            assert [(each.stale, each.replayed) for each in later.written] == [(False, False), (True, False)]

    def test_a_probe_tells_what_is_there(self) -> None:
        """The version, a newer one, or nothing that is as new."""
        with ExitStack() as stack:
            session = self.open(stack)
            apply(session, order("a", 2))
            asked = writes([order("a", 2), order("a", 1), order("a", 3), order("b", 1)])
            assert session.probe(asked, timeout_seconds=SECONDS) == [ALREADY, STALE, None, None]
            never = writes([order("a", None), order("a", 2), order(chr(0xD800), 1)])
            assert session.probe(never, timeout_seconds=SECONDS) == [None, ALREADY, None]


def apply(session: MySQLVersionedSession, *records: Any) -> Sequence[Answer]:
    """Write over an open session."""
    return session.write(writes(records), timeout_seconds=SECONDS)


def interfere(session: MySQLVersionedSession, work: Callable[[], object] | None) -> None:
    """Let something happen between a session's look and its write."""
    find = type(session)._find
    pending = [work] if work is not None else []

    def looked(batch: Any) -> Any:
        found = find(session, batch)
        if pending:
            pending.pop()()
        return found

    session._find = looked  # type: ignore[method-assign]

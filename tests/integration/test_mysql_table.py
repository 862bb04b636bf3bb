"""What only MySQL does to a table: rounding, collations, constraints, packets, concurrent writers."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from datetime import date, datetime, timedelta, timezone
from datetime import time as time_of_day
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any
from uuid import UUID

import pytest
from oncesink.connectors.contract import ALREADY, WRITTEN, Answer, Scope, Use, Write
from oncesink.connectors.errors import Misconfigured, OutcomeUnknown, Rejected, Unavailable
from oncesink.connectors.mysql_connection import MySQLConnection
from oncesink.connectors.mysql_literals import literal
from oncesink.connectors.mysql_table import MySQLTable
from oncesink.connectors.mysql_table_session import MySQLKeyedTableSession
from oncesink.connectors.secret import Secret

from tests.conftest import MySQLDatabase
from tests.integration.mysql_worlds import IMPATIENT, SCOPE, A, CuttingProxy, World, both, claims, digest, world_of

SECONDS = 20.0


class Colour(Enum):
    """An enum is stored by its value."""

    RED = "red"


class Level(IntEnum):
    """So is one of numbers."""

    HIGH = 3


class Loud(str):
    """A text whose own representation is something else."""

    __slots__ = ()

    def __str__(self) -> str:
        return "' OR 1=1"


@pytest.fixture
def world(mysql_database: MySQLDatabase) -> Iterator[World]:
    """Give an empty ledger."""
    with world_of(mysql_database) as world:
        yield world


def keyed(world: World, ddl: str, **settings: Any) -> MySQLKeyedTableSession:
    """Make a table whose key is `k`, and open it."""
    world.sql(
        "DROP TABLE IF EXISTS t",
        f"CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, {ddl}, UNIQUE KEY the_key (k)) DEFAULT CHARSET=utf8mb4",
    )
    return opened(world, **settings)


def opened(world: World, **settings: Any) -> MySQLKeyedTableSession:
    """Open the table."""
    given = {"unique": ("k",), "password": Secret.literal(world.database.password), **settings}
    table = MySQLTable(given.pop("url", world.database.url), "t", **given)
    session = table.open(Scope(name="t", use=Use.WRITE), None)
    assert isinstance(session, MySQLKeyedTableSession)
    world.stack.callback(session.close)
    return session


def apply(session: MySQLKeyedTableSession, *records: Any) -> list[Answer]:
    """Write records."""
    writes = [Write(record, digest(number), None) for number, record in enumerate(records)]
    return list(session.write(writes, timeout_seconds=SECONDS))


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("VARCHAR(20) COLLATE utf8mb4_general_ci", "it's"),
        ("VARCHAR(20)", 5),
        ("VARCHAR(40)", datetime(2026, 1, 2, 3, 4, 5, 678)),  # noqa: DTZ001
        ("BIGINT UNSIGNED", 2**64 - 1),
        ("BIGINT", "9007199254740993"),
        ("INT", Decimal("5.4")),
        ("INT", True),
        ("DECIMAL(10,2)", Decimal("1.005")),
        ("DECIMAL(30,0)", "123456789012345678901234567890"),
        ("DOUBLE", 0.1),
        ("DATETIME", datetime(2026, 1, 2, 3, 4, 5, 678_901)),  # noqa: DTZ001
        ("DATETIME(3)", datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=timezone(timedelta(hours=3)))),
        ("TIMESTAMP(6) DEFAULT '2000-01-01'", datetime(2026, 1, 2, 3, 4, 5, 678_901)),  # noqa: DTZ001
        ("DATE", datetime(2026, 1, 2, 3, 4, 5)),  # noqa: DTZ001
        ("DATE", date(2026, 1, 2)),
        ("YEAR", 26),
        ("YEAR", "2026"),
        ("DOUBLE", Decimal("0.1")),
        ("VARBINARY(16)", 12),
        ("SET('red','blue')", "red,blue"),
        ("TIME(1)", time_of_day(3, 4, 5, 660_000)),
        ("BINARY(16)", b"short"),
        ("VARBINARY(16)", b"'\\\x00\xff"),
        ("CHAR(10)", "pad  "),
        ("ENUM('red','blue')", Colour.RED),
        ("VARCHAR(40)", UUID(int=7)),
    ],
)
def test_a_key_is_found_as_the_column_keeps_it(world: World, kind: str, key: object) -> None:
    """Rounded, padded, converted or compared without case: a second write is ALREADY, never refused or doubled."""
    world.sql("SET GLOBAL explicit_defaults_for_timestamp=1")
    session = keyed(world, f"k {kind} NOT NULL, v INT")
    assert apply(session, {"k": key, "v": 1}) == [WRITTEN]
    assert apply(session, {"k": key, "v": 2}) == [ALREADY]
    assert session.probe([Write({"k": key, "v": 2}, digest(1), None)], timeout_seconds=SECONDS) == [ALREADY]
    assert world.sql("SELECT v FROM t") == ((1,),)


@pytest.mark.parametrize(
    ("kind", "there", "key"),
    [
        ("DECIMAL(6,0)", 999_999, 1_000_001),
        ("DECIMAL(5,2)", Decimal("999.99"), "999.99x"),
        ("BINARY(4)", b"abcd", b"abcdefgh"),
        ("INT", 12, "12abc"),
        ("BIGINT UNSIGNED", 5, "5 or 6"),
        ("DOUBLE", 1.5, "1.5x"),
        ("YEAR", 2026, "2026x"),
        ("TIME", time_of_day(1, 2, 3), "01:02:03x"),
        ("TIME", "838:59:59", "900:00:00"),
        ("DATE", date(2026, 1, 1), "2026-01-01T23:00:00Z"),
        ("DATE", date(2026, 1, 1), "2026-01-01 or so"),
        ("DATETIME", datetime(2026, 1, 1), "2026-01-01T00:00:00+05:00 or so"),  # noqa: DTZ001
        ("DATETIME(3)", datetime(2026, 1, 1), "2026-01-01T00:00:00Z"),  # noqa: DTZ001
    ],
)
def test_a_key_that_the_column_cannot_hold_is_refused(world: World, kind: str, there: object, key: object) -> None:
    """It is not taken for the row to which a lenient conversion leads, be it alone or among others."""
    session = keyed(world, f"k {kind} NOT NULL, v INT")
    assert apply(session, {"k": there, "v": 1}) == [WRITTEN]
    assert apply(session, {"k": there, "v": 1}) == [ALREADY]
    for records in ([{"k": key, "v": 2}], [{"k": there, "v": 1}, {"k": key, "v": 2}]):
        with pytest.raises(Rejected) as rejected:
            apply(session, *records)
        assert rejected.value.reason == "refused"
    writes = [Write({"k": each, "v": 2}, digest(number), None) for number, each in enumerate((key, there))]
    assert session.probe(writes, timeout_seconds=SECONDS) == [None, ALREADY]
    assert world.sql("SELECT v FROM t") == ((1,),)


def test_look_ups_are_cut_to_what_the_server_takes(world: World) -> None:
    """A single key that is too large is rejected for its size, and is not asked for without end."""
    session = keyed(world, "k VARCHAR(500) NOT NULL")
    records = [{"k": f"{number}" * 100} for number in range(10, 40)]
    assert apply(session, *records) == [WRITTEN] * 30
    session.connection.max_statement_bytes = 1_000
    writes = [Write(record, digest(number), None) for number, record in enumerate(records)]
    assert session.probe(writes, timeout_seconds=SECONDS) == [ALREADY] * 30
    with pytest.raises(Rejected) as rejected:
        session._key.find(session.connection, [("'a'",), ("x" * 1_000,)], "NULL")
    assert rejected.value.reason == "too_large"


def test_what_could_never_be_written_is_not_there(world: World) -> None:
    """A probe says so, and rejects nothing: the write that follows does, and the others of its batch are told."""
    session = keyed(world, "k VARCHAR(500) NOT NULL")
    apply(session, {"k": "a"}, {"k": "b"})
    session.connection.max_statement_bytes = 1_000
    records: list[Any] = [{"k": "a"}, {"k": float("nan")}, {"k": chr(0xD800)}, {"k": "x" * 1_000}, {"k": 10**65}]
    writes = [Write(record, digest(number), None) for number, record in enumerate([*records, {"v": 1}, {"k": "b"}])]
    assert session.probe(writes, timeout_seconds=SECONDS) == [ALREADY, None, None, None, None, None, ALREADY]
    for write in writes[1:-1]:
        with pytest.raises(Rejected):
            session.write([write], timeout_seconds=SECONDS)


@pytest.mark.parametrize(("there", "key"), [("01", 1), (b"12abc", 12), ("1.50", Decimal("1.5")), (b"a", "A")])
def test_a_binary_key_is_compared_byte_by_byte(world: World, there: object, key: object) -> None:
    """Never as a number or without case: both are rows."""
    session = keyed(world, "k VARBINARY(20) NOT NULL")
    assert apply(session, {"k": there}, {"k": key}) == [WRITTEN, WRITTEN]
    assert apply(session, {"k": key}, {"k": there}) == [ALREADY, ALREADY]
    world.sql("DELETE FROM t")
    assert apply(session, {"k": there}) == [WRITTEN]
    assert session.probe([Write({"k": key}, digest(1), None)], timeout_seconds=SECONDS) == [None]


def test_a_key_of_bits_is_refused_at_the_start(world: World) -> None:
    """A text would be stored as its bytes and found as its number."""
    with pytest.raises(Misconfigured, match="BIGINT UNSIGNED"):
        keyed(world, "k BIT(8) NOT NULL")


def test_a_number_does_not_match_the_beginning_of_a_text(world: World) -> None:
    """MySQL would compare them as numbers, and '5 apples' is 5."""
    session = keyed(world, "k VARCHAR(20) NOT NULL")
    assert apply(session, {"k": "5 apples"}, {"k": "05"}) == [WRITTEN, WRITTEN]
    assert session.probe([Write({"k": 5}, digest(1), None)], timeout_seconds=SECONDS) == [None]
    assert apply(session, {"k": 5}, {"k": "05"}) == [WRITTEN, ALREADY]


def test_keys_that_only_the_table_takes_for_equal(world: World) -> None:
    """In one call they are refused as a batch, which the caller splits; one after the other they are one row."""
    session = keyed(world, "k VARCHAR(20) COLLATE utf8mb4_general_ci NOT NULL")
    with pytest.raises(Rejected):
        apply(session, {"k": "a"}, {"k": "A"})
    assert world.sql("SELECT * FROM t") == ()
    assert [apply(session, {"k": key}) for key in ("a", "A", "a ")] == [[WRITTEN], [ALREADY], [ALREADY]]


def test_a_conflict_with_another_key_is_named(world: World) -> None:
    """It is refused with the constraint's name, and nothing of the batch is there."""
    session = keyed(world, "k INT NOT NULL, mail VARCHAR(20), UNIQUE KEY one_mail (mail)")
    apply(session, {"k": 1, "mail": "m"})
    for batch in ([{"k": 2, "mail": "m"}], [{"k": 1, "mail": "m"}, {"k": 3, "mail": "x"}, {"k": 2, "mail": "m"}]):
        with pytest.raises(Rejected, match="one_mail") as rejected:
            apply(session, *batch)
        assert rejected.value.reason == "refused"
    assert apply(session, {"k": 1, "mail": "m"}, {"k": 3, "mail": "x"}) == [ALREADY, WRITTEN]


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ({"k": 1, "name": "x" * 11}, "name"),
        ({"k": 1, "tiny": 300}, "tiny"),
        ({"k": 1, "tiny": -1}, "tiny"),
        ({"k": 1, "day": "2026-02-30"}, "day"),
        ({"k": 1, "tiny": "seven"}, "tiny"),
        ({"k": 1, "parent": 7}, "the_parent"),
        ({"k": 1, "checked": -5}, "not_negative"),
        ({"k": 1, "name": b"\xff\xfe"}, "name"),
        ({"k": 1, "colour": "green"}, "colour"),
        ({"k": 1, "document": "{"}, "document"),
    ],
)
def test_what_does_not_fit_is_refused_and_named(world: World, record: dict[str, Any], told: str) -> None:
    """Nothing is cut or changed in silence, whatever the server's own mode is."""
    world.sql("CREATE TABLE parents (id INT PRIMARY KEY)")
    session = keyed(
        world,
        "k INT NOT NULL, name VARCHAR(10), tiny TINYINT UNSIGNED, day DATE, parent INT, checked INT, "
        "colour ENUM('red'), document TEXT, CONSTRAINT document CHECK (JSON_VALID(document)), "
        "CONSTRAINT the_parent FOREIGN KEY (parent) REFERENCES parents (id), "
        "CONSTRAINT not_negative CHECK (checked >= 0)",
    )
    with pytest.raises(Rejected, match=told) as rejected:
        apply(session, {"k": 2}, record)
    assert rejected.value.reason == "refused"
    assert world.sql("SELECT * FROM t") == ()


def test_a_batch_larger_than_a_packet_is_rejected_for_its_size(world: World) -> None:
    """The caller halves it; one record alone that is too large is refused for ever."""
    session = keyed(world, "k INT NOT NULL, v LONGTEXT")
    session.connection.max_statement_bytes = 10_000
    for batch in ([{"k": number, "v": "x" * 100} for number in range(200)], [{"k": 1, "v": "x" * 10_000}]):
        with pytest.raises(Rejected) as rejected:
            apply(session, *batch)
        assert rejected.value.reason == "too_large"
    assert apply(session, {"k": 1, "v": "x" * 9_000}) == [WRITTEN]


def test_writers_that_meet_write_each_key_once(world: World) -> None:
    """Batches overlap, in different orders; `Unavailable` is repeated as the gate does."""
    keyed(world, "k INT NOT NULL, v INT")
    written: list[int] = []

    def work(step: int) -> None:
        session = opened(world)
        for start in range(0, 400, 40):
            records = [{"k": key, "v": step} for key in range(start, start + 40)][::step]
            written.extend(
                [r["k"] for r, answer in zip(records, patiently(session, records), strict=True) if answer == WRITTEN]
            )

    both(lambda: work(1), lambda: work(-1), lambda: work(1))
    assert sorted(written) == list(range(400))


def patiently(session: MySQLKeyedTableSession, records: list[dict[str, Any]]) -> list[Answer]:
    """Write until it is available."""
    for _ in range(50):
        with suppress(Unavailable):
            return apply(session, *records)
    raise AssertionError("unavailable 50 times")


def test_a_row_that_another_inserts_meanwhile_is_already_there(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the insert somebody was faster: that is no conflict with another key."""
    session = keyed(world, "k INT NOT NULL, v INT")
    apply(session, {"k": 1, "v": 1})
    look, late = session._find, iter((2, 3))

    def look_then_be_late(keys: Sequence[tuple[str, ...]]) -> dict[int, Answer]:
        found = look(keys)
        key = next(late, None)
        if key is not None:
            world.sql(f"INSERT INTO t (k, v) VALUES ({key}, 9)")
        return found

    monkeypatch.setattr(session, "_find", look_then_be_late)
    assert apply(session, *[{"k": key, "v": 1} for key in (1, 2, 3, 4)]) == [ALREADY, ALREADY, ALREADY, WRITTEN]
    assert world.sql("SELECT k, v FROM t ORDER BY k") == ((1, 1), (2, 9), (3, 9), (4, 1))


def test_a_lost_reply_is_found_again_by_the_key(world: World) -> None:
    """The first call is `OutcomeUnknown`, the second says ALREADY."""
    keyed(world, "k INT NOT NULL")
    with closing(CuttingProxy(world.database.server.port)) as proxy:
        session = opened(world, url=world.database.url.replace(str(world.database.server.port), str(proxy.port)))
        proxy.cut_after = b"INSERT INTO `t`"
        with pytest.raises(OutcomeUnknown):
            apply(session, {"k": 1}, {"k": 2})
        assert apply(session, {"k": 1}, {"k": 2}) == [ALREADY, ALREADY]


def test_a_call_ends_within_its_time(world: World) -> None:
    """However long a statement may take by itself."""
    session = keyed(world, "k INT NOT NULL")
    with world.hanging():
        begin = time.monotonic()
        with pytest.raises(OutcomeUnknown):
            session.write([Write({"k": 1}, digest(1), None)], timeout_seconds=0.5)
        assert time.monotonic() - begin < 2.0


def test_a_transactional_table_waits_no_longer_than_it_may(world: World) -> None:
    """A statement of the open transaction is `Unavailable`: nothing of it can be committed."""
    world.sql("CREATE TABLE t (k INT NOT NULL)")
    ledger = world.ledger(timeouts=IMPATIENT)
    session = world.open(timeouts=IMPATIENT)
    table = MySQLTable(ledger, "t").open(SCOPE, session)
    with pytest.raises(Unavailable):
        write_while_it_hangs(world, session, table)
    assert session.read([digest(1)]) == {}
    assert world.sql("SELECT * FROM t") == ()


def write_while_it_hangs(world: World, session: Any, table: Any) -> None:
    """Write inside a transaction while the server hangs."""
    with session.transaction():
        session.claim(claims(1), owner=A, lease_seconds=None)
        with world.hanging():
            table.write([Write({"k": 1}, digest(1), None)], timeout_seconds=0.5)


def test_a_float_that_is_no_key_may_be_anything_finite(world: World) -> None:
    """What is stored is the same double."""
    session = keyed(world, "k INT NOT NULL, v DOUBLE")
    values = [0.1, -0.0, 1e308, 5e-324, 123456789.123456789, 1e16]
    apply(session, *[{"k": number, "v": value} for number, value in enumerate(values)])
    assert [row[0] for row in world.sql("SELECT v FROM t ORDER BY k")] == values


@pytest.mark.parametrize(
    ("value", "selected"),
    [
        ("it's", "it's"),
        ("\\", "\\"),
        ("\\'", "\\'"),
        ('\x00\n\r\x1a"%', '\x00\n\r\x1a"%'),
        ("é😀\u2028", "é😀\u2028"),
        (Loud("plain"), "plain"),
        (b"\x00'\\\xff", b"\x00'\\\xff"),
        (bytearray(b"x"), b"x"),
        (2**63, str(2**63)),
        (-5, "-5"),
        (True, "1"),
        (None, None),
        (Colour.RED, "red"),
        (Level.HIGH, "3"),
        (Decimal("1E+3"), "1000"),
        (Decimal("-0.10"), "-0.10"),
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, 3, 4, 5, 6), "2026-01-02 03:04:05.000006"),  # noqa: DTZ001
        (datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=2))), "2026-01-02 01:00:00"),
        (timedelta(hours=-30, microseconds=5), "-29:59:59.999995"),
        (time_of_day(1, 2, 3), "01:02:03"),
        ({"a": [1, None, "é'"]}, '{"a":[1,null,"é\'"]}'),
        ((1, 2), "[1,2]"),
    ],
)
def test_a_literal_means_what_it_was_made_of(world: World, value: object, selected: object) -> None:
    """The server itself reads it back."""
    with closing(MySQLConnection(world.ledger().server)) as connection:
        assert connection.query(f"SELECT {literal(value)}") == ((selected,),)


def test_a_table_with_a_ledger_elsewhere_registers_nothing(world: World) -> None:
    """The ledger has the scope already."""
    world.sql("CREATE TABLE t (k INT NOT NULL, UNIQUE KEY (k))")
    table = MySQLTable(world.database.url, "t", unique=("k",), password=Secret.literal(world.database.password))
    with closing(table.open(SCOPE, world.open())) as session:
        assert session.store_id is None
    world.sql("DROP TABLE oncesink_scopes")
    with pytest.raises(Misconfigured, match="oncesink init"):
        table.open(SCOPE, None)

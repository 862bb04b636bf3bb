"""Everything shipped survives pickling, and no password is in what may leave the process or be read by people."""

from __future__ import annotations

import inspect
import logging
import pickle
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import pytest
from oncesink import connectors, transforms
from oncesink.connectors import (
    MySQLLedger,
    MySQLTable,
    MySQLTLS,
    RedisCache,
    RedisLedger,
    RedisSink,
    Secret,
)
from oncesink.connectors.errors import Misconfigured, OnceSinkError, Rejected, Unavailable
from oncesink.connectors.findings import Finding
from oncesink.connectors.kafka_messages import Partition
from oncesink.transforms import Fields, Gate, OnceWriter, RedisBloom, Results, SourcePosition, Written, membership

from tests.conftest import MySQLDatabase
from tests.servers import RedisServer

DAY = timedelta(days=1)
PASSWORD = "h0rse:b@ttery/staple %41"
MARK = b"ttery"
"""A part of the password that no way of quoting changes."""


def echo(record: Any, key: str) -> None:
    """Write nothing."""


def by_size(record: Any) -> timedelta:
    """Keep large records for a shorter time."""
    return DAY / max(1, len(record))


def password() -> str:
    return PASSWORD


LEDGER = connectors.MemoryLedger()
GATE = Gate(scope="orders", key=Fields("id"), occurrence=SourcePosition("s", "offset"), ledger=LEDGER)

OCCUPANCY = membership.Occupancy(capacity_keys=1, estimated_keys=1.0, estimated_error_rate=0.1, set_bits=1, bits=2)
KAFKA = {
    "bootstrap.servers": "kafka:9092",
    "group.id": "orders",
    "auto.offset.reset": "earliest",
    "sasl.password": Secret.env("P"),
}

VALUES: list[Any] = [
    connectors.ALREADY,
    connectors.CallableSink.each(echo, name="mails", drops_by_key=True, remembers=DAY),
    connectors.CallableSink(print, name="batches"),
    connectors.Claim(bytes(16), b"occurrence", None),
    connectors.Entry(None, None, b"result", 1.5),
    connectors.Fault.HANG,
    connectors.Faults(),
    connectors.FaultyCache(connectors.MemoryCache(), connectors.Faults()),
    connectors.FaultyLedger(LEDGER, connectors.Faults()),
    connectors.FaultySink(connectors.MemorySink(), connectors.Faults()),
    connectors.Finish(connectors.Claim(bytes(16), None, None), b"result"),
    connectors.HttpReply(200, {"a": "b"}, b"body"),
    connectors.HttpSink("https://h/{id}", headers={"Authorization": Secret.env("T")}, remembers=DAY, body=str),
    connectors.JsonLinesSink("dead.jsonl"),
    connectors.KafkaSink("h:9092", "t", key="{id}", settings={"sasl.password": Secret.env("P")}),
    connectors.KafkaMessage(Partition("orders", 1), 7, None, b"key", b"{}", [("uuid", b"1")]),
    connectors.KafkaSource("orders", settings=KAFKA),
    connectors.LRUCache(ttl=DAY, entries=10),
    connectors.MemoryCache(ttl=DAY),
    connectors.MemorySink("sink", drops_by_key=True),
    LEDGER,
    connectors.MemoryTable(LEDGER),
    MySQLTLS(ca="ca.pem"),
    connectors.MySQLTimeouts(),
    MySQLLedger("mysql://u@h/d", retention=DAY, password=Secret.env("P"), tls=MySQLTLS(ca="ca.pem")),
    MySQLTable(MySQLLedger("mysql://u@h/d", retention=DAY), "orders", columns={"id": "id"}),
    MySQLTable("mysql://u@h/d", "orders", unique=("id",), password=Secret.file("/run/p"), occurrence_column="o"),
    connectors.Outcome.UNKNOWN,
    transforms.RedisBloom("redis://h", "orders", capacity=9, error_rate=0.01, password=Secret.env("P")),
    RedisCache("redis://h", ttl=DAY, password=Secret.env("P")),
    RedisLedger("redis://h", retention=DAY, password=Secret.call(password)),
    RedisLedger("redis://h", retention=DAY, outage="at_least_once", audit="audit"),
    RedisCache("redis://h", ttl=DAY, ttl_by=by_size),
    RedisSink("redis://h", key="{id}", remembers=DAY, password=Secret.env("P")),
    connectors.Row(bytes(16), True, None, bytes(16), None, None, None, 0.0, 1.0),
    connectors.SQLiteLedger("once.db", retention=DAY),
    connectors.SQLiteTable(connectors.SQLiteLedger("once.db", retention=DAY), "orders"),
    connectors.Scope(name="orders", use=connectors.Use.DROP, generation=3, meaning={"a": "b"}),
    Secret.env("NAME"),
    connectors.SinkKind.EXTERNAL,
    connectors.Take(bytes(16), None, None),
    connectors.Use.WRITE,
    connectors.Versioned(by="version", deleted="gone"),
    connectors.Write({"id": 1}, bytes(16), None),
    Finding(severity="warning", what="w", todo="t"),
    transforms.Backoff(attempts=3),
    transforms.Batch(rows=3),
    transforms.Bitmap(id=("order", "id"), base=3, capacity=100),
    transforms.Bloom(capacity=100, error_rate=0.01),
    transforms.ByStamp(stable_order=True),
    transforms.Computed(str, name="p"),
    transforms.Content(without=("a",)),
    transforms.Counts({"written": 3}),
    transforms.Cuckoo(capacity=100, window=DAY),
    transforms.Duplicate({}, b"r"),
    Fields("a", ("b", "c"), nfc=True),
    GATE,
    transforms.Generations(transforms.Bloom(capacity=100, error_rate=0.01), transforms.Rotation(keep=3)),
    transforms.Rotation(window=DAY, keep=2),
    transforms.Header("uuid"),
    transforms.KafkaPosition("orders@eu-1/1"),
    transforms.Parked({}, "00", "d"),
    transforms.Passed({}),
    transforms.Json(),
    transforms.Reconciled(listed=3, there=2, keys=[("00", "why")]),
    transforms.Refused({}, "no_key", "d"),
    Results(written=[Written({"id": 1}, True, b"r")]),
    transforms.Rules(use=connectors.Use.WRITE, on_replay="probe"),
    SourcePosition("s", "a", ("b", "c")),
    transforms.Stamped(b"1", {}),
    transforms.Verdict.WAIT,
    Written({}),
    OCCUPANCY,
    membership.Alarm(filter="bloom", number=0, occupancy=OCCUPANCY, next_capacity=150, given_up=1),
]

LIVE = {
    "BitmapFilter",
    "BloomFilter",
    "CuckooFilter",
    "FilterState",
    "GateSession",
    "GenerationsFilter",
    "Keys",
    "OnceConsumer",
    "OnceWriter",
    "Reconciler",
    "RedisBloomFilter",
    "PrometheusMetrics",
}
"""What is open, or belongs to one batch, and stays where it is."""

CLOCKS = [connectors.ManualClock(3.0), connectors.SystemClock()]


def public_classes() -> dict[str, type]:
    """Return every class that is a public name, without protocols."""
    found: dict[str, type] = {}
    for package in (connectors, transforms, membership):
        for name in package.__all__:
            value = getattr(package, name)
            if inspect.isclass(value) and Protocol not in value.__bases__:
                found[name] = value
    return found


def errors() -> list[type[BaseException]]:
    """Return every error that the library defines, public or not."""
    kinds: list[type[BaseException]] = [OnceSinkError, connectors.Crash]
    for kind in kinds:
        kinds += kind.__subclasses__()
    return kinds


def test_nothing_public_is_missing_here() -> None:
    """A new public class stands above, or is said to be live."""
    shown = {type(value).__name__ for value in [*VALUES, *CLOCKS]} | {kind.__name__ for kind in errors()}
    assert set(public_classes()) - shown == LIVE


@pytest.mark.parametrize("value", VALUES, ids=[f"{type(value).__name__} {n}" for n, value in enumerate(VALUES)])
@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_values_survive(value: Any, protocol: int) -> None:
    """Equal by value, of the same kind, and shown alike."""
    copy = pickle.loads(pickle.dumps(value, protocol))
    assert type(copy) is type(value)
    assert copy == value
    assert repr(copy) == repr(value)


@pytest.mark.parametrize("clock", CLOCKS, ids=lambda clock: type(clock).__name__)
def test_clocks_survive(clock: Any) -> None:
    """As parts of recipes."""
    assert type(pickle.loads(pickle.dumps(clock))) is type(clock)


@pytest.mark.parametrize("kind", errors(), ids=lambda kind: kind.__name__)
def test_errors_survive_with_what_they_carry(kind: type[BaseException]) -> None:
    """Message, reason and results: engines send errors from workers to the client."""
    arguments = ("no_key", "no value at id") if issubclass(kind, Rejected) else ("what went wrong",)
    error = kind(*arguments)
    if isinstance(error, OnceSinkError):
        error.results = Results(written=[Written({"id": 1})])
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (str(copy), copy.args, vars(copy)) == (str(error), error.args, vars(error))


def test_how_long_to_wait_survives() -> None:
    """`Retry-After` of the other side."""
    assert pickle.loads(pickle.dumps(Unavailable("busy", retry_after_seconds=3.5))).retry_after_seconds == 3.5


def test_a_literal_password_refuses_to_leave_the_process() -> None:
    """In any recipe that holds it, and the refusal does not show it."""
    for recipe in (recipes(Secret.literal(PASSWORD)), by_url()):
        for each in recipe:
            with pytest.raises(Misconfigured, match=r"Secret\.env") as caught:
                pickle.dumps(each)
            assert_hidden("".join(traceback.format_exception(caught.value)))


def recipes(secret: Secret) -> list[Any]:
    return [
        secret,
        MySQLLedger("mysql://u@h/d", retention=DAY, password=secret),
        MySQLTable("mysql://u@h/d", "orders", unique=("id",), password=secret),
        MySQLTable(MySQLLedger("mysql://u@h/d", retention=DAY, password=secret), "orders"),
        RedisLedger("redis://h/0", retention=DAY, password=secret),
        RedisSink("redis://h/0", key="{id}", remembers=DAY, password=secret),
        RedisCache("redis://h/0", ttl=DAY, password=secret),
        RedisBloom("redis://h/0", "orders", capacity=9, error_rate=0.01, password=secret),
    ]


def by_url() -> list[Any]:
    quoted = quote(PASSWORD, safe="")
    return [
        MySQLLedger(f"mysql://u:{quoted}@h:3306/d", retention=DAY),
        MySQLTable(f"mysql://u:{quoted}@h/d", "orders", unique=("id",)),
        RedisLedger(f"redis://u:{quoted}@h/0", retention=DAY),
        RedisSink(f"redis://u:{quoted}@h/0", key="{id}", remembers=DAY),
        RedisCache(f"rediss://:{quoted}@h/0", ttl=DAY),
        RedisBloom(f"redis://u:{quoted}@h/0", "orders", capacity=9, error_rate=0.01),
    ]


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Secret]:
    """Give the places where a password may be; reading one gives it."""
    monkeypatch.setenv("ONCESINK_TEST_PASSWORD", PASSWORD)
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    return [Secret.env("ONCESINK_TEST_PASSWORD"), Secret.file(file), Secret.call(password)]


def assert_hidden(*shown: Any) -> None:
    for each in shown:
        raw = each if isinstance(each, bytes) else str(each).encode()
        assert MARK not in raw, "the password shows"


def test_no_password_is_in_a_pickle_or_a_repr(places: list[Secret]) -> None:
    """Only the place where it is; it is read on the worker."""
    for place in places:
        assert place.reveal() == PASSWORD
        for recipe in recipes(place):
            gate = GATE if isinstance(recipe, Secret) else _around(recipe)
            assert_hidden(*(pickle.dumps(each, protocol) for each in (recipe, gate) for protocol in range(6)))
            assert_hidden(repr(recipe), str(recipe), repr(gate))
            assert pickle.loads(pickle.dumps(recipe)) == recipe


def test_no_password_of_a_url_is_in_a_repr() -> None:
    """It is taken out of the URL before anybody can see it."""
    for recipe in by_url():
        assert recipe.password.reveal() == PASSWORD
        assert_hidden(repr(recipe), str(recipe), repr(_around(recipe)), getattr(recipe, "target", ""))


def _around(recipe: Any) -> Gate:
    settings: dict[str, Any] = {"scope": "s", "key": Fields("id"), "occurrence": None}
    if isinstance(recipe, RedisCache):
        return Gate(**settings, cache=recipe)
    if isinstance(recipe, RedisBloom):
        return Gate(**settings, membership=recipe)
    if hasattr(recipe, "kind"):
        return Gate(**settings, rejected=recipe)
    return Gate(**settings, ledger=recipe)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Secret.env("NO_SUCH_VARIABLE").reveal(),
        lambda: Secret.file("/no/such/file").reveal(),
        lambda: MySQLLedger(f"mysql://u:{quote(PASSWORD, safe='')}@h/d", retention=DAY, password=Secret.env("P")),
        lambda: MySQLLedger(f"mysql://u:{quote(PASSWORD, safe='')}@h", retention=DAY),
        lambda: MySQLLedger(f"mysql://u:{quote(PASSWORD, safe='')}@h:x/d", retention=DAY),
        lambda: MySQLLedger(f"http://u:{quote(PASSWORD, safe='')}@h/d", retention=DAY),
        lambda: MySQLTable(f"mysql://u:{quote(PASSWORD, safe='')}@h/d", "orders"),
        lambda: RedisLedger(f"redis://u:{quote(PASSWORD, safe='')}@h/x", retention=DAY),
        lambda: RedisLedger(f"cluster://u:{quote(PASSWORD, safe='')}@h/3", retention=DAY),
        lambda: RedisCache(f"http://u:{quote(PASSWORD, safe='')}@h", ttl=DAY),
        lambda: RedisCache(f"redis://u:{quote(PASSWORD, safe='')}@h:x", ttl=DAY),
        lambda: RedisCache(f"redis://u:{quote(PASSWORD, safe='')}@h", ttl=timedelta(0)),
    ],
    ids=range(12),
)
def test_no_error_of_settings_shows_a_password(make: Callable[[], Any]) -> None:
    """Not even in the chain of causes."""
    with pytest.raises(Misconfigured) as caught:
        make()
    assert_hidden("".join(traceback.format_exception(caught.value)), pickle.dumps(caught.value))


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Take everything that anybody logs, drivers included."""
    with caplog.at_level(logging.DEBUG):
        yield caplog
    assert_hidden(caplog.text, *(vars(each) for each in caplog.records))


def test_a_refused_password_shows_nowhere(
    mysql_database: MySQLDatabase, redis_server: RedisServer, places: list[Secret], logged: pytest.LogCaptureFixture
) -> None:
    """Real servers, a wrong password from every kind of place: the error names the user and the server only."""
    redis_url = f"redis://default@127.0.0.1:{redis_server.port}/0"
    for place in [*places, Secret.literal(PASSWORD)]:
        opened: list[Callable[[], object]] = [
            lambda place=place: MySQLLedger(mysql_database.url, retention=DAY, password=place).create_tables(),  # type: ignore[misc]
            lambda place=place: RedisLedger(redis_url.replace("default", "nobody"), retention=DAY, password=place).open(
                SCOPE
            ),  # type: ignore[misc]
            lambda place=place: RedisCache(redis_url.replace("default", "nobody"), ttl=DAY, password=place).open(
                bytes(16)
            ),  # type: ignore[misc]
        ]
        for attempt in opened:
            with pytest.raises(Misconfigured) as caught:
                attempt()
            assert_hidden("".join(traceback.format_exception(caught.value)), pickle.dumps(caught.value))


SCOPE = connectors.Scope(name="orders", use=connectors.Use.WRITE)


def test_an_accepted_password_shows_nowhere(
    mysql_database: MySQLDatabase, tmp_path: Path, logged: pytest.LogCaptureFixture
) -> None:
    """A whole run with a password that a server takes: log, repr of what is open, error of a server that goes away."""
    del logged
    file = tmp_path / "password"
    file.write_text(mysql_database.password)
    ledger = MySQLLedger(mysql_database.url, retention=DAY, password=Secret.file(file))
    ledger.create_tables()
    with mysql_database.server.connect(mysql_database.name) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE orders (id VARCHAR(10), `offset` BIGINT)")
    gate = Gate(scope="orders", key=Fields("id"), occurrence=SourcePosition("s", "offset"), ledger=ledger)
    with OnceWriter(gate, MySQLTable(ledger, "orders")) as writer:
        writer.write([{"id": "A", "offset": 1}])
        shown = [repr(writer), repr(writer._session), repr(vars(writer._session))]
        with pytest.raises(OnceSinkError) as caught:
            writer.write([{"id": "A" * 99, "offset": 2}])
    shown += traceback.format_exception(caught.value)
    assert not any("w0rd" in each for each in shown)

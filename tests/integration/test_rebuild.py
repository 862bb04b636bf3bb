"""`oncesink rebuild`: filters from rows, through kills, in files that workers start from."""

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path

import pytest
import redis
from oncesink.connectors import MySQLTable
from oncesink.connectors.errors import Misconfigured
from oncesink.connectors.file_folder import FileFolder
from oncesink.pipelines.jobs import Job
from oncesink.pipelines.key_pages import KeyPages
from oncesink.pipelines.rebuild import rebuild, refill
from oncesink.pipelines.table_records import source_of
from oncesink.pipelines.walk_file import WalkFile
from oncesink.transforms import Bitmap, Bloom, Counts, Cuckoo, Fields, Gate, Generations, RedisBloom, SourcePosition
from oncesink.transforms.gate import write_scope
from oncesink.transforms.membership import Keys
from oncesink.transforms.membership.rebuilding import PROGRESS
from oncesink.transforms.membership.stored import MANIFEST, Manifest, load_filters, parse_manifest
from oncesink.transforms.prepare import Item, Preparer
from oncesink.transforms.shards import shard_of

from tests.conftest import MySQLDatabase
from tests.integration.adopted import command, execute, killed, ledger_of, write_job
from tests.servers import MySQLServer

ROWS = 20_000
SHARDS = 4


@pytest.fixture(scope="module")
def filled(session_mysql: MySQLServer) -> MySQLDatabase:
    """Give a database with 20,000 rows of the scope, and some of others; tests only read them."""
    session_mysql.revive()
    name = session_mysql.new_database()
    database = MySQLDatabase(server=session_mysql, name=name, url=session_mysql.url(name))
    ledger_of(database).create_tables()
    execute(database, *(insert(digests(at, at + 5000), "orders") for at in range(0, ROWS, 5000)))
    execute(database, insert(digests(ROWS, ROWS + 500), "others"))
    execute(database, insert(digests(ROWS + 500, ROWS + 1000), "orders", generation=2))
    return database


@pytest.fixture
def database(filled: MySQLDatabase, tmp_path: Path) -> MySQLDatabase:
    """Give that database, with the job beside it."""
    write_job(tmp_path, filled)
    return filled


def digests(begin: int, end: int) -> list[bytes]:
    """Make digests, numbered."""
    return [blake2b(str(number).encode(), digest_size=16).digest() for number in range(begin, end)]


def insert(keys: Sequence[bytes], scope: str, *, generation: int = 1, age: str = "0 SECOND") -> str:
    """Build the statement for finished rows."""
    made = f"UTC_TIMESTAMP(6)-INTERVAL {age},UTC_TIMESTAMP(6)"
    rest = f"x'{scope.encode().hex()}',{generation},1,x'{bytes(16).hex()}',{made}"
    rows = ",".join(f"(x'{key.hex()}',{rest})" for key in keys)
    columns = "digest,scope,generation,state,owner,created_at,finished_at"
    return f"INSERT INTO oncesink_ledger ({columns}) VALUES {rows}"


def gate(database: MySQLDatabase) -> Gate:
    """Return the gate of the job."""
    return Gate(
        scope="orders",
        key=Fields("order_id"),
        occurrence=SourcePosition("orders/1", "offset"),
        ledger=ledger_of(database),
        membership=Bloom(capacity=10_000, error_rate=0.001),
        shards=SHARDS,
    )


def unbroken(database: MySQLDatabase, folder: Path, **options: object) -> list[bytes]:
    """Build in this process, without an accident; return the shards' bytes."""
    rebuild(Job(gate=gate(database), sink=None), str(folder), **options)  # type: ignore[arg-type]
    return stored(folder)


def stored(folder: Path) -> list[bytes]:
    """Return the bytes of each shard, in order."""
    return [(folder / each.name).read_bytes() for each in manifest(folder).files]


def manifest(folder: Path) -> Manifest:
    return parse_manifest((folder / MANIFEST).read_bytes())


def progress(folder: Path) -> int:
    """Return the id up to which a run has come."""
    file = folder / PROGRESS
    return int(json.loads(file.read_bytes())["last_id"]) if file.exists() else 0


def test_each_key_is_in_the_filter_of_its_shard(database: MySQLDatabase, tmp_path: Path) -> None:
    """All of the scope's generation, in the shard that engines ask; of others no more than the error rate lets in."""
    unbroken(database, tmp_path / "filters")
    recipe = Bloom(capacity=10_000, error_rate=0.001)
    live = load_filters(str(tmp_path / "filters"), recipe, scope="orders", generation=1, shards=SHARDS)
    for shard, each in enumerate(live):
        own = [key for key in digests(0, ROWS) if shard_of(key, SHARDS) == shard]
        assert each.query(Keys(own)).all()
        others = [key for key in digests(ROWS, ROWS + 1000) if shard_of(key, SHARDS) == shard]
        assert each.query(Keys(others)).sum() <= 5
    assert manifest(tmp_path / "filters").keys == ROWS


def test_a_killed_run_goes_on_and_ends_with_the_same_filters(database: MySQLDatabase, tmp_path: Path) -> None:
    """SIGKILL twice: what is stored in the end is bit by bit what an unbroken run stores, and little was read again."""
    broken = tmp_path / "broken"
    arguments = ("rebuild", "--gate", "job:gate", "--to", str(broken), "--page-rows", "200", "--checkpoint", "0s")
    killed(tmp_path, database, *arguments, when=lambda: progress(broken) > 3000)
    first = progress(broken)
    killed(tmp_path, database, *arguments, when=lambda: progress(broken) > first + 3000)
    second = progress(broken)
    assert first > 3000
    assert second > first + 3000
    done = command(tmp_path, database, *arguments)
    assert done.returncode == 0, done.stderr
    assert f"went on after id {second}" in done.stdout
    assert f"{ROWS} keys in {SHARDS} filters" in done.stdout
    assert stored(broken) == unbroken(database, tmp_path / "unbroken")
    assert len(list(broken.iterdir())) == SHARDS + 1, "nothing of the killed attempts is left"


@pytest.mark.parametrize(
    "recipe",
    [
        Generations(Bloom(capacity=2000, error_rate=0.001)),
        Cuckoo(capacity=10_000, window=timedelta(days=7)),
    ],
)
def test_filters_of_every_kind_are_built(database: MySQLDatabase, tmp_path: Path, recipe: Generations | Cuckoo) -> None:
    """One that grows is not full of its first keys only; one that forgets knows all keys from now on."""
    own = replace(gate(database), membership=recipe)
    rebuild(Job(gate=own, sink=None), str(tmp_path / "filters"))
    live = load_filters(str(tmp_path / "filters"), recipe, scope="orders", generation=1, shards=SHARDS)
    for shard, each in enumerate(live):
        keys = [key for key in digests(0, ROWS) if shard_of(key, SHARDS) == shard]
        assert each.query(Keys(keys)).mean() > 0.999
        others = [key for key in digests(ROWS + 2000, ROWS + 4000) if shard_of(key, SHARDS) == shard]
        assert each.query(Keys(others)).mean() < 0.02


def test_a_lost_connection_is_made_again(database: MySQLDatabase) -> None:
    """Each page stands alone: the walk goes on where it was, and no key is missing."""
    pages = KeyPages(Job(gate=gate(database), sink=None), None, since=None, page_rows=4000)
    found: list[bytes] = []
    for page in pages.after(None):
        found += page.digests
        with closing(database.server.connect(database.name)) as admin, admin.cursor() as cursor:
            cursor.execute(
                "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND db = DATABASE()"
            )
            for (number,) in cursor.fetchall():
                cursor.execute(f"KILL {number}")
    assert sorted(found) == sorted(digests(0, ROWS))


def test_a_run_that_died_behind_its_manifest_is_over(database: MySQLDatabase, tmp_path: Path) -> None:
    """The next one begins anew and does not remove what the manifest names."""
    folder = tmp_path / "filters"
    before = unbroken(database, folder)
    (folder / PROGRESS).write_bytes((folder / MANIFEST).read_bytes())
    named = [each.name for each in manifest(folder).files]
    assert unbroken(database, folder) == before
    assert all((folder / name).exists() for name in named), "workers may have read the manifest a moment ago"


def test_files_of_older_runs_go(database: MySQLDatabase, tmp_path: Path) -> None:
    """Those of the run before stay for who is loading them; after the next run they are gone, and nothing piles up."""
    folder = tmp_path / "filters"
    for _ in range(4):
        unbroken(database, folder, page_rows=5000, checkpoint=timedelta(0))
    assert len(list(folder.iterdir())) == 2 * SHARDS + 1


def test_other_settings_do_not_go_on_with_a_killed_run(database: MySQLDatabase, tmp_path: Path) -> None:
    """A checkpoint of another source would lack keys."""
    folder = tmp_path / "filters"
    arguments = ("rebuild", "--gate", "job:gate", "--to", str(folder), "--page-rows", "200", "--checkpoint", "0s")
    killed(tmp_path, database, *arguments, "--since", "1d", when=lambda: progress(folder) > 1000)
    done = command(tmp_path, database, *arguments)
    assert "went on" not in done.stdout
    assert stored(folder) == unbroken(database, tmp_path / "unbroken")


def test_since_leaves_older_rows_out(database: MySQLDatabase, tmp_path: Path) -> None:
    """Only rows that were inserted within that time go in."""
    execute(database, insert(digests(ROWS + 1000, ROWS + 1010), "orders", generation=3, age="3 DAY"))
    execute(database, insert(digests(ROWS + 1010, ROWS + 1017), "orders", generation=3, age="1 DAY"))
    own = Job(gate=replace(gate(database), generation=3), sink=None)
    rebuild(own, str(tmp_path / "filters"), since=timedelta(days=2))
    assert manifest(tmp_path / "filters").keys == 7


def test_any_table_gives_the_keys_that_the_job_makes(database: MySQLDatabase, tmp_path: Path) -> None:
    """Rows of a business table go through the gate's own recipe: whole numbers, text, negative ids."""
    execute(
        database,
        "CREATE TABLE sold (nr BIGINT PRIMARY KEY, order_id BIGINT NULL, day VARCHAR(10))",
        "INSERT INTO sold VALUES (-5, 100, 'mon'), (1, 101, 'tue'), (2, NULL, 'tue'), (9, 102, 'wed')",
    )
    folder = tmp_path / "filters"
    arguments = ("--from-table", "sold", "--id", "nr", "--column", "order_id", "--where", "day <> 'wed'")
    done = command(
        tmp_path, database, "rebuild", "--gate", "job:gate", "--sink", "job:table", "--to", str(folder), *arguments
    )
    assert done.returncode == 0, done.stderr
    assert "1 rows have no key" in done.stdout
    assert "2 keys in 4 filters" in done.stdout
    own = gate(database)
    prepare = Preparer(
        own, write_scope(own, MySQLTable(ledger_of(database), "orders", columns={"order_id": "order_id"}))
    )
    live = load_filters(
        str(folder), Bloom(capacity=10_000, error_rate=0.001), scope="orders", generation=1, shards=SHARDS
    )
    for number, known in ((100, True), (101, True), (102, False)):
        item = prepare({"order_id": number, "offset": 1})
        assert isinstance(item, Item)
        digest = item.claim.digest
        assert live[shard_of(digest, SHARDS)].query(Keys([digest])).tolist() == [known]


def test_a_bitmap_is_built_from_a_table_and_not_from_the_ledger(database: MySQLDatabase, tmp_path: Path) -> None:
    """It wants ids, and goes by them: a record's shard is its id modulo the shards."""
    rows = ",".join(f"({number},{number * 7})" for number in range(1, 2001))
    execute(
        database,
        "CREATE TABLE numbered (nr BIGINT PRIMARY KEY, order_id BIGINT)",
        f"INSERT INTO numbered VALUES {rows}",
    )
    own = replace(gate(database), membership=Bitmap(id="order_id", capacity=100_000))
    with pytest.raises(Misconfigured, match="build it from a table"):
        rebuild(Job(gate=own, sink=None), str(tmp_path / "filters"))
    source = source_of("numbered", ["order_id"], id_column="nr", where=None, at=ledger_of(database))
    rebuild(Job(gate=own, sink=None), str(tmp_path / "filters"), source=source)
    recipe = Bitmap(id="order_id", capacity=100_000, shards=SHARDS)
    live = load_filters(str(tmp_path / "filters"), recipe, scope="orders", generation=1, shards=SHARDS)
    for shard, each in enumerate(live):
        ids = [number for number in range(14_001) if number % SHARDS == shard]
        said = each.query(Keys([bytes(16)] * len(ids), ids=ids)).tolist()
        assert said == [number % 7 == 0 and number > 0 for number in ids]


def shared(database: MySQLDatabase, redis_url: str) -> tuple[Job, RedisBloom]:
    """Return the job with a filter in Redis."""
    recipe = RedisBloom(redis_url, "orders", capacity=40_000, error_rate=0.001)
    return Job(gate=replace(gate(database), membership=recipe), sink=None), recipe


def known(recipe: RedisBloom, keys: Sequence[bytes]) -> int:
    """Return how many of these keys the filter in Redis perhaps knows."""
    with closing(recipe.open(Counts())) as live:
        return int(live.query(Keys(keys)).sum())


def test_a_filter_in_redis_is_made_and_filled(database: MySQLDatabase, redis_url: str, tmp_path: Path) -> None:
    """All keys of the scope are in it, and those of others are not."""
    job, recipe = shared(database, redis_url)
    done = refill(job, progress=tmp_path / "progress.json", page_rows=3000)
    assert (done.keys, done.made, done.resumed_after) == (ROWS, True, None)
    assert known(recipe, digests(0, ROWS)) == ROWS
    assert known(recipe, digests(ROWS, ROWS + 500)) <= 5
    assert not (tmp_path / "progress.json").exists()


def test_a_refill_that_was_killed_goes_on_unless_the_filter_was_lost(
    database: MySQLDatabase, redis_url: str, tmp_path: Path
) -> None:
    """Where Redis forgot what was put in, going on would leave it out."""
    job, recipe = shared(database, redis_url)
    file = tmp_path / "progress.json"
    recipe.create_filter()
    walk = f"refill of {recipe.description} for orders from {KeyPages(job, None, since=None, page_rows=1).description}"
    WalkFile(file, walk=walk).save(15_000)
    done = refill(job, progress=file)
    assert (done.resumed_after, done.keys) == (15_000, ROWS - 15_000)
    WalkFile(file, walk=walk).save(15_000)
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()
    done = refill(job, progress=file)
    assert (done.made, done.resumed_after, done.keys) == (True, None, ROWS)


def test_a_filter_that_is_not_there_ends_a_refill(database: MySQLDatabase, redis_url: str) -> None:
    """It says so in one line; keys are not put nowhere in silence."""
    _, recipe = shared(database, redis_url)
    with closing(recipe.open(Counts())) as live, pytest.raises(Misconfigured, match="oncesink filter create"):
        live.put(Keys(digests(0, 10)))


def test_a_place_is_wanted_for_filters_of_a_job_and_refused_for_shared_ones(
    database: MySQLDatabase, redis_url: str, tmp_path: Path
) -> None:
    """Nobody waits for a file that is never written."""
    job, _ = shared(database, redis_url)
    with pytest.raises(Misconfigured, match="no filter to store"):
        rebuild(job, str(tmp_path))
    with pytest.raises(Misconfigured, match="say where its filters go, --to"):
        refill(Job(gate=gate(database), sink=None), progress=tmp_path / "progress.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scope": "mails"}, "scope=orders and not mails"),
        ({"generation": 2}, "generation=1 and not 2"),
        ({"shards": 8}, "shards=4 and not 8"),
    ],
)
def test_foreign_filters_are_refused(
    database: MySQLDatabase, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    """Loading them says what they were made for."""
    unbroken(database, tmp_path / "filters")
    wanted: dict[str, object] = {"scope": "orders", "generation": 1, "shards": SHARDS, **change}
    with pytest.raises(Misconfigured, match=message):
        load_filters(str(tmp_path / "filters"), Bloom(capacity=10_000, error_rate=0.001), **wanted)  # type: ignore[arg-type]


def test_damage_is_refused(database: MySQLDatabase, tmp_path: Path) -> None:
    """A flipped bit, a missing file, no manifest: each is named."""
    folder, recipe = tmp_path / "filters", Bloom(capacity=10_000, error_rate=0.001)
    unbroken(database, folder)
    victim = folder / manifest(folder).files[2].name
    content = bytearray(victim.read_bytes())
    content[500] ^= 1
    victim.write_bytes(content)
    for message in ("not what its manifest says", "lacks", "has no manifest"):
        with pytest.raises(Misconfigured, match=message):
            load_filters(str(folder), recipe, scope="orders", generation=1, shards=SHARDS)
        (victim if message.startswith("not") else folder / MANIFEST).unlink(missing_ok=True)


def test_a_url_with_a_password_is_refused_without_showing_it() -> None:
    """It would stand in manifests, logs and errors."""
    with pytest.raises(Misconfigured) as refused:
        FileFolder("ftp://user:hidden@host/filters")
    assert "hidden" not in str(refused.value)

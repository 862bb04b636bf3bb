"""What only SQLite does: a file that processes share, locks, and files that are no database."""

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from oncesink.connectors.contract import Claim, Scope, Use
from oncesink.connectors.errors import Misconfigured, Unavailable
from oncesink.connectors.sqlite_ledger import SQLiteLedger, SQLiteLedgerSession

SCOPE = Scope(name="orders", use=Use.WRITE)
A, B = b"a" * 16, b"b" * 16

WORKER = """
import sys
from datetime import timedelta
from oncesink.connectors.contract import Claim, Scope, Use
from oncesink.connectors.sqlite_ledger import SQLiteLedger

path, owner, stop = sys.argv[1], sys.argv[2].encode() * 16, int(sys.argv[3])
session = SQLiteLedger(path, retention=timedelta(days=1)).open(Scope(name="orders", use=Use.WRITE))
print("open", flush=True)
sys.stdin.readline()
for start in range(0, 2000, 20):
    claims = [Claim(number.to_bytes(16, "big"), b"o", None) for number in range(start, start + 20)]
    if start == stop:
        with session.transaction():
            session.claim(claims, owner=owner, lease_seconds=None)
            print("inside", flush=True)
            sys.stdin.readline()
    session.claim(claims, owner=owner, lease_seconds=60.0)
print("done", flush=True)
"""


def claims(*numbers: int) -> list[Claim]:
    """Make claims."""
    return [Claim(number.to_bytes(16, "big"), b"o", None) for number in numbers]


def opened(path: Path, busy: timedelta = timedelta(seconds=10)) -> SQLiteLedgerSession:
    """Open the ledger."""
    return SQLiteLedger(str(path), retention=timedelta(days=1), busy=busy).open(SCOPE)


def worker(path: Path, owner: str, *, stop: int = -1) -> "subprocess.Popen[str]":
    """Start a process that claims 2,000 keys in order, and stops inside a transaction if told to."""
    command = [sys.executable, "-c", WORKER, str(path), owner, str(stop)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    return process


def go_on(process: "subprocess.Popen[str]") -> None:
    """Let a worker go on from where it waits."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_processes_that_claim_at_once_share_the_keys(tmp_path: Path) -> None:
    """Each key has one owner, and nobody is turned away."""
    path = tmp_path / "once.db"
    processes = [worker(path, name) for name in "abc"]
    for process in processes:
        go_on(process)
    for process in processes:
        output, _ = process.communicate(timeout=120)
        assert (process.returncode, output) == (0, "done\n")
    with closing(opened(path)) as session:
        rows = session.read([each.digest for each in claims(*range(2000))])
    assert len(rows) == 2000
    assert {row.owner for row in rows.values()} <= {name.encode() * 16 for name in "abc"}


def test_a_process_that_is_killed_leaves_nothing_of_its_transaction(tmp_path: Path) -> None:
    """What was committed stays, the lock is free, and the next one goes on."""
    path = tmp_path / "once.db"
    process = worker(path, "a", stop=40)
    go_on(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "inside\n"
    with closing(opened(tmp_path / "other.db")), pytest.raises(Unavailable, match="locked"):
        opened(path, busy=timedelta(milliseconds=50))
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)
    with closing(opened(path)) as session:
        rows = session.claim(claims(*range(60)), owner=B, lease_seconds=60.0)
    owners = [rows[each.digest].owner for each in claims(*range(60))]
    assert owners == [A] * 40 + [B] * 20


def test_a_file_that_cannot_be_a_ledger_is_an_error_at_start(tmp_path: Path) -> None:
    """The error names the file."""
    text = tmp_path / "text.db"
    text.write_text("no database at all, but long enough to be looked at" * 50)
    for path in (text, tmp_path / "nowhere" / "once.db", tmp_path):
        with pytest.raises(Misconfigured, match=path.name):
            opened(path)


def test_another_table_of_that_name_is_an_error_at_start(tmp_path: Path) -> None:
    """Without its unique key it would let everything through."""
    with closing(sqlite3.connect(tmp_path / "once.db")) as connection:
        connection.execute("CREATE TABLE oncesink_ledger (digest BLOB, lease_until INTEGER, state INTEGER)")
    with pytest.raises(Misconfigured, match="no unique digest"):
        opened(tmp_path / "once.db")


@pytest.mark.parametrize("where", [":memory:", "", "sqlite:///", "sqlite:///:memory:", "mysql://h/d"])
def test_only_a_file_is_a_ledger(where: str) -> None:
    """What is in memory is gone with the process."""
    with pytest.raises(Misconfigured, match="file"):
        SQLiteLedger(where, retention=timedelta(days=1))


def test_urls_and_paths_lead_to_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three slashes and a relative path, four slashes and an absolute one."""
    monkeypatch.chdir(tmp_path)
    for where in ("sqlite:///once.db", f"sqlite:///{tmp_path / 'once.db'}", "once.db", str(tmp_path / "once.db")):
        with closing(SQLiteLedger(where, retention=timedelta(days=1)).open(SCOPE)) as session:
            session.claim(claims(1), owner=A, lease_seconds=60.0)
    assert [each.name for each in tmp_path.iterdir() if each.suffix == ".db"] == ["once.db"]

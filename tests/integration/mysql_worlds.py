"""What the MySQL tests share: a ledger in an empty database, and a proxy that cuts a connection at a chosen moment."""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from oncesink.connectors.contract import Claim, Scope, Use
from oncesink.connectors.mysql_ledger import MySQLLedger, MySQLLedgerSession
from oncesink.connectors.mysql_server import MySQLTimeouts
from oncesink.connectors.secret import Secret

from tests.conftest import MySQLDatabase
from tests.servers import HOST

SCOPE = Scope(name="orders", use=Use.WRITE, meaning={"key": "order_id"})
A, B = b"a" * 16, b"b" * 16
LEASE_SECONDS = 60.0
IMPATIENT = MySQLTimeouts(
    connect=timedelta(seconds=2), statement=timedelta(seconds=3), lock=timedelta(seconds=1), idle=timedelta(seconds=60)
)


def digest(number: int) -> bytes:
    """Make the digest of a number."""
    return number.to_bytes(16, "big")


def claims(*numbers: int, occurrence: bytes | None = b"o") -> list[Claim]:
    """Make claims."""
    return [Claim(digest(number), occurrence, None) for number in numbers]


@dataclass
class World:
    """A database with the ledger's tables; sessions that are opened here are closed at the end."""

    database: MySQLDatabase
    stack: ExitStack = field(default_factory=ExitStack)

    def ledger(self, **settings: Any) -> MySQLLedger:
        """Return the recipe."""
        given = {"retention": timedelta(days=1), "password": Secret.literal(self.database.password), **settings}
        return MySQLLedger(given.pop("url", self.database.url), **given)

    def open(self, scope: Scope = SCOPE, **settings: Any) -> MySQLLedgerSession:
        """Open a session."""
        return self.stack.enter_context(closing(self.ledger(**settings).open(scope)))

    def sql(self, *statements: str) -> tuple[tuple[Any, ...], ...]:
        """Run statements behind the library's back; return what the last one gave."""
        with closing(self.database.server.connect(self.database.name)) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return tuple(cursor.fetchall())

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Let the server hang. The signal alone would leave its threads time for another reply."""
        server = self.database.server
        server.pause()
        try:
            threads = Path(f"/proc/{server.pid}/task")
            while not all(is_stopped(thread) for thread in threads.iterdir()):
                time.sleep(0.001)
            yield
        finally:
            server.resume()

    def kill(self, session: MySQLLedgerSession) -> None:
        """End a session's connection from the server's side."""
        [(number,)] = session.connection.query("SELECT CONNECTION_ID()")
        self.sql(f"KILL {int(number)}")


def is_stopped(thread: Path) -> bool:
    """Tell whether a thread of a process is stopped."""
    state = (thread / "stat").read_text().rpartition(")")[2].split()[0]
    return state in "Tt"


@contextmanager
def world_of(database: MySQLDatabase) -> Iterator[World]:
    """Make the tables."""
    world = World(database)
    world.ledger().create_tables()
    with world.stack:
        yield world


def both(*works: Callable[[], None]) -> None:
    """Run functions at the same time; raise what one of them raised."""
    errors: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


class CuttingProxy:
    """Passes one connection through, until a statement that begins with a chosen word was *answered*.

    The answer is thrown away and the connection closed: the statement was applied and its reply lost.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server((HOST, 0))
        self.port = int(self._listener.getsockname()[1])
        self.cut_after: bytes | None = None
        self._threads: Sequence[threading.Thread] = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection((HOST, self._server_port)) as server:
            try:
                client.sendall(server.recv(65536))
                while request := self._packet(client):
                    server.sendall(request)
                    answer = server.recv(65536)
                    if self.cut_after is not None and request[5:].startswith(self.cut_after):
                        self.cut_after = None
                        return
                    client.sendall(answer)
            except OSError:
                return

    def _packet(self, client: socket.socket) -> bytes:
        head = client.recv(4, socket.MSG_WAITALL)
        if len(head) < 4:
            return b""
        return head + client.recv(int.from_bytes(head[:3], "little"), socket.MSG_WAITALL)

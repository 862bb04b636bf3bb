"""What external sinks write to: a log in a file, kept by a process of its own, one line a record.

`python -m benchmarks.target FILE` prints its port, then takes blocks (4 bytes of length, lines) and answers each with
one byte once the lines are in the file. What is lost or there twice is counted from that file, by the keys alone.
"""

import socket
import socketserver
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncesink.connectors.contract import Answer, Write

HOST = "127.0.0.1"
SECONDS = 30.0
DONE = b"."


@dataclass(frozen=True)
class Target:
    """A running log."""

    port: int
    file: Path

    def tally(self, keys: Iterable[str]) -> tuple[int, int]:
        """Return how many of these keys are not there, and how many lines are there beyond the first of a key."""
        there = Counter(self.file.read_text(encoding="utf-8").splitlines())
        return sum(1 for each in set(keys) if not there[each]), sum(there.values()) - len(there)


@contextmanager
def target(file: Path) -> Iterator[Target]:
    """Run a log until the block ends."""
    command = [sys.executable, "-m", "benchmarks.target", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield Target(int(process.stdout.readline()), file)
        finally:
            process.kill()


_CONNECTIONS: dict[int, socket.socket] = {}
"""By port: what is pickled connects where it is unpickled."""


@dataclass(frozen=True)
class Append:
    """Writes records to a log: a batch by one block, for a `CallableSink`."""

    port: int

    def __call__(self, writes: Sequence[Write]) -> Sequence[Answer] | None:
        """Append a batch."""
        self.lines([each.record["order_id"] for each in writes])
        return None

    def one(self, record: dict[str, Any]) -> None:
        """Append one record."""
        self.lines([record["order_id"]])

    def lines(self, keys: Sequence[str]) -> None:
        """Append keys and wait until they are there."""
        connection = _CONNECTIONS.get(self.port)
        if connection is None:
            connection = _CONNECTIONS[self.port] = socket.create_connection((HOST, self.port), SECONDS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        block = "".join(f"{key}\n" for key in keys).encode()
        connection.sendall(struct.pack(">I", len(block)) + block)
        if connection.recv(1) != DONE:
            raise ConnectionError("the log ended the connection")


def disconnect() -> None:
    """Close what `Append` opened in this process."""
    while _CONNECTIONS:
        _CONNECTIONS.popitem()[1].close()


class _Handler(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self) -> None:
        with Path(sys.argv[1]).open("ab", buffering=0) as file:
            while len(head := self.rfile.read(4)) == 4:
                file.write(self.rfile.read(*struct.unpack(">I", head)))
                self.wfile.write(DONE)


if __name__ == "__main__":
    with socketserver.ThreadingTCPServer((HOST, 0), _Handler) as server:
        server.daemon_threads = True
        print(server.server_address[1], flush=True)
        server.serve_forever()

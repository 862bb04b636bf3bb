"""A sink outside of everything: a process that appends one line for each call of a record, and can be asked.

`python -m tests.fire.log_server FILE [drops]` prints its port. With `drops` it recognises a key and writes it once.

A request is a line of JSON, `["write", [[digest, key, content], ...]]` or `["probe", [digest, ...]]`; the answer a line
with a list of booleans: whether each was new, or is there. Each record reaches the file before the next one is looked
at, so a client that dies in the middle leaves a part behind.
"""

from __future__ import annotations

import json
import os
import socketserver
import sys
import time
from contextlib import suppress
from typing import Any, ClassVar

AWAY_SECONDS = 0.02
"""How far away it is: a reply takes so long."""


class Log(socketserver.StreamRequestHandler):
    """One client's requests, one after the other."""

    known: ClassVar[set[str]] = set()
    file: ClassVar[int] = -1
    drops: ClassVar[bool] = False

    def handle(self) -> None:
        """Answer until the client has gone, killed or not."""
        with suppress(OSError):
            for line in self.rfile:
                if line.endswith(b"\n"):
                    self.wfile.write(json.dumps(self.answers(*json.loads(line))).encode() + b"\n")

    def answers(self, verb: str, values: list[Any]) -> list[bool]:
        """Say of each record whether it was new, of each digest whether it is there."""
        if verb == "probe":
            return [digest in self.known for digest in values]
        new = list(map(self.write, values))
        time.sleep(AWAY_SECONDS)
        return new

    def write(self, value: tuple[str, int, int]) -> bool:
        """Append a record; say whether it was new."""
        digest, key, content = value
        if self.drops and digest in self.known:
            return False
        os.write(self.file, f"{key} {content}\n".encode())
        self.known.add(digest)
        return True


class Server(socketserver.ThreadingTCPServer):
    """Its threads end with it."""

    daemon_threads = True
    allow_reuse_address = True


def main(path: str, *words: str) -> None:
    """Serve until killed."""
    Log.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    Log.drops = "drops" in words
    with Server(("127.0.0.1", 0), Log) as server:
        print(server.server_address[1], flush=True)  # noqa: T201 - its answer
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])

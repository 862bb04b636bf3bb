"""A TCP proxy that breaks what passes through it: before Redis, MySQL or anything that answers each request.

    with Proxy(server.port) as proxy:
        proxy.arm(Trouble.SWALLOW, match=b"COMMIT")

The next request that holds `COMMIT` goes through, and its reply is dropped with the connection.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from types import TracebackType

HOST = "127.0.0.1"
CHUNK_BYTES = 1 << 16


class Trouble(Enum):
    """What happens to a request, or to the reply to it."""

    CUT = "the request is not passed on, and the connection is cut"
    HANG = "the request is not passed on, and nobody answers"
    SWALLOW = "the request is passed on; its reply is dropped, and the connection is cut"
    SWALLOW_AND_HANG = "the request is passed on; its reply is dropped, and nobody answers any more"
    DELAY = "the request is passed on later"


@dataclass
class _Armed:
    trouble: Trouble
    match: bytes
    after: int
    seconds: float


class Proxy:
    """Listens on a port of its own until the block ends."""

    def __init__(self, port: int) -> None:
        self._server = port
        self._listener = socket.create_server((HOST, 0))
        self._lock = threading.Lock()
        self._armed: _Armed | None = None
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self.met = 0
        """How many requests met a trouble."""

    @property
    def port(self) -> int:
        """Return where clients connect to."""
        return int(self._listener.getsockname()[1])

    def arm(self, trouble: Trouble, *, match: bytes = b"", after: int = 0, seconds: float = 0.1) -> None:
        """Break one request: the first that holds `match`, or the one that comes so many matches `after` it."""
        with self._lock:
            self._armed = _Armed(trouble, match, after, seconds)

    def disarm(self) -> None:
        """Break nothing more."""
        with self._lock:
            self._armed = None

    def cut_all(self) -> None:
        """Cut every connection that is open now."""
        with self._lock:
            for each in self._open:
                _shut(each)

    def __enter__(self) -> Proxy:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _shut(self._listener)
        self._threads[0].join()
        self._listener.close()
        self.cut_all()
        for each in self._threads[1:]:
            each.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection((HOST, self._server), timeout=10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            with self._lock:
                self._open |= {client, server}
            self._threads += _Link(self, client, server).start()

    def meet(self, request: bytes) -> _Armed | None:
        """Return what this request meets, once."""
        with self._lock:
            armed = self._armed
            if armed is None or armed.match not in request:
                return None
            if armed.after > 0:
                armed.after -= 1
                return None
            self._armed = None
            self.met += 1
            return armed

    def forget(self, *ends: socket.socket) -> None:
        """Close both ends."""
        with self._lock:
            self._open -= set(ends)
        for each in ends:
            _shut(each)
            each.close()


class _Link:
    """One client's connection, and the one to the server for it."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._swallow: Trouble | None = None
        # The one that ends last waits for the other, which has begun before it.
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._down, self._up)]

    def start(self) -> list[threading.Thread]:
        for each in self._threads:
            each.start()
        return self._threads

    def _up(self) -> None:
        with suppress(OSError):
            while request := self._client.recv(CHUNK_BYTES):
                if not self._pass_on(request):
                    break
        _shut(self._server)
        _shut(self._client)
        self._threads[0].join()
        self._proxy.forget(self._client, self._server)

    def _pass_on(self, request: bytes) -> bool:
        """Send a request to the server, unless it meets something else; return False to cut."""
        met = self._proxy.meet(request)
        if met is None:
            self._server.sendall(request)
            return True
        if met.trouble is Trouble.CUT:
            return False
        if met.trouble is Trouble.HANG:
            while self._client.recv(CHUNK_BYTES):
                continue
            return False
        if met.trouble is Trouble.DELAY:
            time.sleep(met.seconds)
        else:
            self._swallow = met.trouble
        self._server.sendall(request)
        return True

    def _down(self) -> None:
        with suppress(OSError):
            while reply := self._server.recv(CHUNK_BYTES):
                if self._swallow is Trouble.SWALLOW:
                    break
                if self._swallow is None:
                    self._client.sendall(reply)
        _shut(self._client)


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)

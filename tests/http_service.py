"""A service over HTTP on this machine, whose behaviour is scripted request by request."""

import json
import ssl
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Does(str, Enum):
    """What the service does with a request, where it is not simply an answer."""

    MEET = "applies and answers as ever, once four such requests are there"
    LOSE_REPLY = "applies, then closes the connection without a word"
    HANG = "applies nothing, and is silent"
    HANG_APPLIED = "applies, and is silent"
    DRIP_BODY = "applies, then sends a body that does not end"
    DRIP_HEADERS = "applies, then sends headers that do not end"
    CUT_BODY = "applies, then ends the reply in the middle of its body"
    CLOSE_AFTERWARDS = "applies and answers as ever, then closes the connection"


@dataclass(frozen=True)
class Says:
    """An answer that applies nothing."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass
class Service:
    """What the other side has seen and done. `honours_keys`: it drops a second request of a key, as it says."""

    url: str = ""
    honours_keys: bool = False
    script: deque[Does | Says | None] = field(default_factory=deque)
    effects: list[Any] = field(default_factory=list)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    connections: int = 0
    most_at_once: int = 0
    at_once: int = 0
    reply: bytes = b'{"id": 7}'
    meeting: threading.Barrier = field(default_factory=lambda: threading.Barrier(4, timeout=10))
    over: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def apply(self, key: str, body: bytes) -> bool:
        """Apply a request; tell whether its key was known, and nothing was done."""
        with self.lock:
            known = self.honours_keys and key in self.keys
            if not known:
                self.effects.append(json.loads(body))
            self.keys.add(key)
            return known


@contextmanager
def http_service(certificate: Path | None = None) -> Iterator[Service]:
    """Run a service until the block ends, behind TLS if there is a certificate, its key in the same folder."""
    service = Service()

    class Handler(_Handler):
        it = service

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, certificate.with_name("key.pem"))
        server.socket = context.wrap_socket(server.socket, server_side=True)
    service.url = f"{'http' if certificate is None else 'https'}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield service
    finally:
        service.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and body go out in one packet: else each reply waits for the other side's acknowledgement.
    wbufsize = -1
    it: Service

    def setup(self) -> None:
        super().setup()
        self.it.connections += 1

    def do_POST(self) -> None:
        it = self.it
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with it.lock:
            it.requests.append((self.command, self.path, dict(self.headers.items())))
            does = it.script.popleft() if it.script else None
            it.at_once += 1
            it.most_at_once = max(it.most_at_once, it.at_once)
        try:
            self._do(does, body)
        finally:
            with it.lock:
                it.at_once -= 1

    def do_PUT(self) -> None:
        self.do_POST()

    def do_GET(self) -> None:
        there = self.path.rpartition("/")[2] in self.it.keys
        self._say(Says(200 if there else 404, body=self.it.reply if there else b""))

    def _do(self, does: Does | Says | None, body: bytes) -> None:
        if isinstance(does, Says):
            return self._say(does)
        if does is Does.MEET:
            self.it.meeting.wait()
        if does is Does.HANG:
            return self._wait()
        if json.loads(body).get("id") == "bad":
            return self._say(Says(400, body=b"it is bad"))
        known = self.it.apply(self.headers["Idempotency-Key"], body)
        if does in (Does.LOSE_REPLY, Does.HANG_APPLIED):
            self.close_connection = True
            return None if does is Does.LOSE_REPLY else self._wait()
        if does in (Does.DRIP_BODY, Does.CUT_BODY, Does.DRIP_HEADERS):
            return self._unfinished(does)
        self._say(Says(200, {"Idempotent-Replayed": "true"} if known else {}, self.it.reply))
        self.close_connection = does is Does.CLOSE_AFTERWARDS
        return None

    def _say(self, says: Says) -> None:
        self.send_response(says.status)
        for name, value in says.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(says.body)))
        self.end_headers()
        self.wfile.write(says.body)
        self.wfile.flush()

    def _unfinished(self, does: Does) -> None:
        self.close_connection = True
        head = b"HTTP/1.1 200 OK\r\n" + (b"" if does is Does.DRIP_HEADERS else b"Content-Length: 10000\r\n\r\n")
        self.wfile.write(head)
        self.wfile.flush()
        more = b"X-More: 1\r\n" if does is Does.DRIP_HEADERS else b"x"
        with suppress(OSError):
            while does is not Does.CUT_BODY and not self.it.over.wait(0.02):
                self.wfile.write(more)
                self.wfile.flush()

    def _wait(self) -> None:
        self.close_connection = True
        self.it.over.wait(30)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""

"""Requests in flight: an event loop in a thread of its own, whatever the caller's thread runs.

A request is told to be sent from the moment before its first byte is written. What ends before that was surely not
applied; what ends later, without a whole reply, may have been.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import importlib
import ssl
import threading
import weakref
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

from .errors import Misconfigured, OutcomeUnknown
from .http_reply import HttpReply, wants_a_pause

CLOSE_SECONDS = 5.0
KEEPALIVE_SECONDS = 5.0
_SENDING = frozenset({"http11.send_request_headers.started", "http2.send_request_headers.started"})


class HttpRequest(NamedTuple):
    """One request as it is sent."""

    method: str
    url: str
    headers: Sequence[tuple[bytes, bytes]]
    content: bytes


class Fate(NamedTuple):
    """What became of a request: its reply, or why there is none and whether anything of it was sent."""

    reply: HttpReply | None
    sent: bool
    why: str = ""
    stops: bool = False
    """Whether the rest of its batch had better not be sent."""


class Exchange:
    """Connections to one service, kept between batches, and at most `in_flight` requests at a time."""

    def __init__(self, *, ca: str | None, in_flight: int, request_seconds: float, body_bytes: int) -> None:
        self._in_flight = in_flight
        self._request_seconds = request_seconds
        self._body_bytes = body_bytes
        self._pool = driver().AsyncConnectionPool(
            ssl_context=_trust(ca), max_connections=in_flight, keepalive_expiry=KEEPALIVE_SECONDS
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_serve, args=(self._loop,), name="oncesink-http", daemon=True)
        self._thread.start()
        # Engines do not always close what they opened. The collector may run in any thread, in that one too: so
        # nothing is waited for there.
        self._end = weakref.finalize(self, _end, self._pool, self._loop)

    def send(self, requests: Sequence[HttpRequest], seconds: float) -> list[Fate]:
        """Send them all, as far as the time goes; return the fate of each, in order."""
        if not requests:
            return []
        batch = _Batch(self._pool, requests, min(self._request_seconds, seconds), self._body_bytes)
        future = asyncio.run_coroutine_threadsafe(batch.run(self._in_flight, seconds), self._loop)
        try:
            return future.result(seconds + CLOSE_SECONDS)
        except concurrent.futures.TimeoutError as error:
            raise OutcomeUnknown("the thread that sends requests stands still: was this process forked?") from error
        finally:
            future.cancel()

    def close(self) -> None:
        """Close the connections and end the thread. Safe to repeat."""
        self._end()
        self._thread.join(CLOSE_SECONDS)

    def __reduce__(self) -> NoReturn:
        raise TypeError("live connections cannot be pickled: pickle the recipe that opens them")


class _Batch:
    """The requests of one call. No request starts that could still run when the time is up."""

    def __init__(self, pool: Any, requests: Sequence[HttpRequest], each_seconds: float, body_bytes: int) -> None:
        self._pool = pool
        self._requests = iter(enumerate(requests))
        self._each_seconds = each_seconds
        self._body_bytes = body_bytes
        self._fates: dict[int, Fate] = {}
        self._count = len(requests)
        self._stopped = ""

    async def run(self, in_flight: int, seconds: float) -> list[Fate]:
        deadline = asyncio.get_running_loop().time() + seconds
        workers = [asyncio.create_task(self._work(deadline)) for _ in range(min(in_flight, self._count))]
        try:
            await asyncio.gather(*workers)
        finally:
            for each in workers:
                each.cancel()
        unsent = Fate(None, sent=False, why=self._stopped or "the time of the call was used up before it")
        return [self._fates.get(number, unsent) for number in range(self._count)]

    async def _work(self, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        for number, request in self._startable(loop, deadline):
            fate = self._fates[number] = await self._one(request)
            if fate.stops:
                self._stopped = self._stopped or f"not sent, since another request met trouble: {fate.why}"

    def _startable(self, loop: asyncio.AbstractEventLoop, deadline: float) -> Iterator[tuple[int, HttpRequest]]:
        # A hair of tolerance: the first request of a batch may take all of its time.
        while not self._stopped and loop.time() + self._each_seconds <= deadline + 0.01:
            found = next(self._requests, None)
            if found is None:
                return
            yield found

    async def _one(self, request: HttpRequest) -> Fate:
        sent = False

        async def trace(name: str, info: object) -> None:
            nonlocal sent
            sent = sent or name in _SENDING

        try:
            reply = await asyncio.wait_for(self._reply(request, trace), self._each_seconds)
        except asyncio.TimeoutError:
            return Fate(None, sent, f"no whole reply came in time ({self._each_seconds:g} s)", stops=True)
        except Exception as error:  # noqa: BLE001 - whatever it is, it says nothing about what the service did
            # The text of an error may quote what was sent. A cut connection says nothing about the other requests;
            # one that does not come about would cost each of them time.
            return Fate(None, sent, _why(error, sent=sent), stops=not sent)
        return Fate(reply, sent=True, why=f"status {reply.status}", stops=wants_a_pause(reply))

    async def _reply(self, request: HttpRequest, trace: object) -> HttpReply:
        async with self._pool.stream(
            request.method, request.url, headers=request.headers, content=request.content, extensions={"trace": trace}
        ) as response:
            body, cut = b"", False
            async for part in response.aiter_stream():
                body += part
                if len(body) > self._body_bytes:
                    body, cut = body[: self._body_bytes], True
                    break
            headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
            return HttpReply(response.status, headers, body, cut)


def driver() -> ModuleType:
    """Import httpcore, here and not before. Raises `Misconfigured` with the command that installs it."""
    try:
        importlib.import_module("anyio")
        return importlib.import_module("httpcore")
    except ImportError as error:
        raise Misconfigured("HTTP needs its client: pip install 'oncesink[http]'") from error


def _trust(ca: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise Misconfigured(f"ca={ca!r} is no readable file of certificates: {error}") from error


def _why(error: BaseException, *, sent: bool) -> str:
    if sent:
        return f"the reply was lost ({type(error).__name__})"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "its certificate is not trusted: give ca=, or the name that stands in it"
        cause = cause.__cause__ or cause.__context__
    return f"no connection ({type(error).__name__})"


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def _end(pool: Any, loop: asyncio.AbstractEventLoop) -> None:
    """Let the thread close the connections, and come to its end."""

    async def close() -> None:
        # The other side may be going away as well.
        with contextlib.suppress(Exception):
            await asyncio.wait_for(pool.aclose(), CLOSE_SECONDS / 2)
        loop.stop()

    closing = close()
    try:
        asyncio.run_coroutine_threadsafe(closing, loop)
    except RuntimeError:
        # The loop is closed: the process is on its way out.
        closing.close()

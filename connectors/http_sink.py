"""A service over HTTP as a sink: one request a record."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import Any

from .contract import WRITTEN, Answer, LedgerSession, Outcome, Scope, SinkKind, Write
from .errors import Misconfigured, Rejected, Unavailable
from .http_exchange import Exchange, Fate, HttpRequest
from .http_headers import Headers, check_headers, revealed
from .http_masks import Masks
from .http_reply import HttpReply, OutcomeRule, judge
from .http_url import UrlTemplate
from .json_lines import json_line
from .refusals import refusal
from .wanted import check_durations

log = logging.getLogger("oncesink")

BodyOf = Callable[[Any], "bytes | str | object"]
"""Makes the body of a record: bytes or text as they are, anything else becomes JSON."""

ProbeOne = Callable[[Any, str], "Answer | bool"]
"""Tells of (record, key that was sent) whether the effect is there."""

LEAST_BODY_BYTES = 64 * 1024

_THERE = (Outcome.WRITTEN, Outcome.ALREADY)


@dataclass(frozen=True, slots=True)
class HttpSink:
    """Recipe of a sink that sends one request for each record.

    `HttpSink("https://shop.example/orders/{order_id}", method="PUT", headers={"Authorization": Secret.env("TOKEN")})`.
    Each request bears the header `key_header` with the idempotency key, 32 hexadecimal digits. The body is the record
    as JSON, or what `body` makes of it. `remembers` says that the service honours that header, and for how long: it
    then drops a second request of a key. `probe` is a URL template that is asked by GET (2xx: the effect is there; 404
    and 410: surely not; it may hold `{idempotency_key}`), or a function of (record, key). `outcome` judges a reply
    before the usual rule does. `result_bytes` keeps bodies of at most that size as results; a longer one is not kept.
    At most `in_flight` requests are under way; more than one gives up the order of a batch. `request_timeout` bounds
    one of them, from the connection to the last byte of the reply, `timeout` all of a batch. `ca` names a file of
    certificates to be trusted instead of the system's. Functions must be picklable.

    The usual rule: 2xx written (already there, if the service `remembers` and says `Idempotent-Replayed: true`); 422
    rejected as `conflict`; 401, 407, 408, 425, 429, 501, 503, 505 and 511 not applied, kept for later; 3xx, 409 and
    other 5xx unknown, since redirects are not followed, and a service may fail after it did its work; other 4xx
    rejected. A connection that does not come about applied nothing; one that is cut, or silent for too long, after the
    request began, is unknown.

    Delivery: once for as long as the service `remembers`; else once, but for records in doubt (a crash, or a lost
    reply), for which the gate's `on_replay` decides.
    Parallelism: any number of sessions; each keeps up to `in_flight` connections, used by a thread of its own.
    """

    url: str = field(repr=False)
    _: KW_ONLY
    method: str = "POST"
    headers: Headers = field(default_factory=dict, repr=False)
    body: BodyOf | None = None
    key_header: str = "Idempotency-Key"
    remembers: timedelta | None = None
    probe: str | ProbeOne | None = field(default=None, repr=False)
    outcome: OutcomeRule | None = None
    result_bytes: int = 0
    in_flight: int = 8
    timeout: timedelta = timedelta(seconds=10)
    request_timeout: timedelta = timedelta(seconds=3)
    ca: str | None = None

    atomic = False
    tells_occurrence = False

    def __post_init__(self) -> None:
        check_durations(self)
        UrlTemplate(self.url)
        if isinstance(self.probe, str):
            UrlTemplate(self.probe)
        if self.method not in ("POST", "PUT", "PATCH", "DELETE"):
            raise Misconfigured(f"method is POST, PUT, PATCH or DELETE, not {self.method!r}")
        check_headers(self.headers, self.key_header)
        if not timedelta(0) < self.request_timeout <= self.timeout:
            raise Misconfigured(
                f"request_timeout={self.request_timeout} is positive and at most timeout={self.timeout}"
            )
        if self.remembers is not None and self.remembers <= timedelta(0):
            raise Misconfigured(f"remembers={self.remembers} must be positive")
        if self.in_flight < 1 or self.result_bytes < 0:
            raise Misconfigured(f"in_flight={self.in_flight} starts at 1, result_bytes={self.result_bytes} at 0")

    @property
    def kind(self) -> SinkKind:
        return SinkKind.EXTERNAL if self.remembers is None else SinkKind.DROPS_BY_KEY

    @property
    def target(self) -> str:
        return f"{self.method} {UrlTemplate(self.url).shown}"

    @property
    def can_probe(self) -> bool:
        return self.probe is not None

    def open(self, scope: Scope, ledger: LedgerSession | None) -> HttpSession:
        """Connect nothing yet: the first request does. Raises `Misconfigured` for a secret that is not there."""
        return HttpSession(self)

    def __repr__(self) -> str:
        return f"<HttpSink {self.target} headers={sorted(self.headers)} {self.kind.value}>"


class HttpSession:
    """Open connections to a service."""

    store_id: bytes | None = None

    def __init__(self, sink: HttpSink) -> None:
        self._sink = sink
        self._url = UrlTemplate(sink.url)
        self._headers = revealed(sink.headers)
        urls = [self._url, UrlTemplate(sink.probe)] if isinstance(sink.probe, str) else [self._url]
        self._masks = Masks(self._headers, [value for url in urls for value in url.query_values])
        self._exchange = Exchange(
            ca=sink.ca,
            in_flight=sink.in_flight,
            request_seconds=sink.request_timeout.total_seconds(),
            body_bytes=max(sink.result_bytes, LEAST_BODY_BYTES),
        )

    def write(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer]:
        deadline = time.monotonic() + timeout_seconds
        prepared = [self._prepared(each) for each in writes]
        requests = [each for each in prepared if isinstance(each, HttpRequest)]
        fates = iter(self._exchange.send(requests, deadline - time.monotonic()))
        answers = [each if isinstance(each, Answer) else self._answer(next(fates)) for each in prepared]
        self._warn(answers)
        return answers

    def _warn(self, answers: Sequence[Answer]) -> None:
        """Say how many results were left out: the effects are there, and nobody looks at their answers again."""
        left_out = [each.detail for each in answers if each.outcome in _THERE and each.detail]
        if left_out:
            log.warning("%s: %d results are not kept; the first one: %s", self._sink.target, len(left_out), left_out[0])

    def probe(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer | None]:
        probe = self._sink.probe
        if probe is None:
            raise Misconfigured(f"{self._sink.target} cannot be asked: give it probe=")
        if callable(probe):
            return [_told(probe(each.record, each.idempotency_key)) for each in writes]
        template = UrlTemplate(probe)
        try:
            urls = [template.fill(each.record, each.idempotency_key) for each in writes]
        except Rejected as error:
            # A reconciler may have the key and nothing else.
            what = (
                f"{self._sink.target}: probe= needs a record with these fields ({error}), or {{idempotency_key}} only"
            )
            raise Misconfigured(what) from error
        requests = [HttpRequest("GET", url, self._headers, b"") for url in urls]
        return [self._found(fate) for fate in self._exchange.send(requests, timeout_seconds)]

    def _prepared(self, write: Write) -> HttpRequest | Answer:
        """Make the request of a record, or say at once why there can be none."""
        sink, key = self._sink, write.idempotency_key
        try:
            url = self._url.fill(write.record, key)
            content = _bytes(write.record if sink.body is None else sink.body(write.record))
        except Exception as error:  # noqa: BLE001 - nothing of this record was sent
            return refusal(error)
        headers = [*self._headers, (sink.key_header.encode(), key.encode())]
        if not any(name.lower() == b"content-type" for name, _ in headers):
            headers.append((b"Content-Type", b"application/json"))
        return HttpRequest(sink.method, url, headers, content)

    def _answer(self, fate: Fate) -> Answer:
        if fate.reply is None:
            return Answer(Outcome.UNKNOWN if fate.sent else Outcome.UNAVAILABLE, detail=self._said(fate.why))
        sink = self._sink
        answer = judge(fate.reply, sink.outcome, drops_by_key=sink.kind is SinkKind.DROPS_BY_KEY)
        if answer.outcome in _THERE:
            return self._with_result(answer._replace(detail=""), fate.reply)
        return answer._replace(detail=self._said(answer.detail))

    def _with_result(self, answer: Answer, reply: HttpReply) -> Answer:
        """Keep the body as the result, whole or not at all: a part of one would be taken for all of it."""
        limit = self._sink.result_bytes
        if answer.result is None and limit and reply.body:
            if not reply.cut and len(reply.body) <= limit:
                return answer._replace(result=reply.body)
            size = f"more than {len(reply.body)}" if reply.cut else str(len(reply.body))
            return answer._replace(detail=f"too large: a reply of {size} bytes, over result_bytes={limit}")
        return answer

    def _found(self, fate: Fate) -> Answer | None:
        reply = fate.reply
        if reply is not None and 200 <= reply.status < 300:
            return self._with_result(WRITTEN, reply)
        if reply is not None and reply.status in (404, 410):
            return None
        why = fate.why if reply is None else f"status {reply.status}"
        raise Unavailable(f"{self._sink.target}: asked for an effect, it did not tell: {why}")

    def _said(self, text: str) -> str:
        return f"{self._sink.target}: {self._masks.masked(text)}" if text else text

    def close(self) -> None:
        self._exchange.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._sink.target}>"


def _bytes(body: object) -> bytes:
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    return json_line(body).rstrip(b"\n")


def _told(answer: Answer | bool) -> Answer | None:  # noqa: FBT001 - that is what the user's function returns
    if isinstance(answer, Answer):
        return answer
    return WRITTEN if answer else None

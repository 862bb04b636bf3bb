"""What a reply over HTTP, or the lack of one, is taken for: against a real service that does as it is told."""

import asyncio
import gc
import json
import logging
import pickle
import shutil
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from oncesink.connectors.contract import ALREADY, WRITTEN, Answer, Outcome, Scope, Use, Write
from oncesink.connectors.errors import Misconfigured, Rejected, Unavailable
from oncesink.connectors.http_reply import SHOWN_BYTES, HttpReply, retry_after
from oncesink.connectors.http_sink import HttpSink
from oncesink.connectors.secret import Secret

from tests.http_service import Does, Says, Service, http_service
from tests.servers import self_signed

SCOPE = Scope(name="http", use=Use.WRITE)
SECONDS = 10.0
TOKEN = "t0k3n-of-the-shop"
WHATEVER = timedelta(milliseconds=800)


@pytest.fixture
def service() -> Iterator[Service]:
    """Run a service for one test."""
    with http_service() as running:
        yield running


def writes(*names: Any) -> list[Write]:
    """Make a write of each name; a digest depends on its name."""
    return [Write({"id": name}, str(name).encode(errors="replace").ljust(16, b".")[:16], None) for name in names]


def send(sink: HttpSink, *names: Any, seconds: float = SECONDS) -> list[Answer]:
    """Send records of these ids by one call."""
    with closing(sink.open(SCOPE, None)) as session:
        return list(session.write(writes(*names), timeout_seconds=seconds))


def outcomes(sink: HttpSink, *names: Any, seconds: float = SECONDS) -> list[Outcome]:
    """Send, and return the bare outcomes."""
    return [answer.outcome for answer in send(sink, *names, seconds=seconds)]


def in_order(service: Service, **settings: Any) -> HttpSink:
    """Return a sink that sends one request at a time, with a short time-out of each."""
    return HttpSink(f"{service.url}/orders", in_flight=1, request_timeout=WHATEVER, **settings)


def ids(service: Service) -> list[Any]:
    """Return the ids of what was applied."""
    return [each["id"] for each in service.effects]


@pytest.mark.parametrize(
    ("status", "outcome", "reason"),
    [
        (200, Outcome.WRITTEN, None),
        (201, Outcome.WRITTEN, None),
        (204, Outcome.WRITTEN, None),
        (301, Outcome.UNKNOWN, None),
        (303, Outcome.UNKNOWN, None),
        (307, Outcome.UNKNOWN, None),
        (400, Outcome.REJECTED, "refused"),
        (401, Outcome.UNAVAILABLE, None),
        (403, Outcome.REJECTED, "refused"),
        (404, Outcome.REJECTED, "refused"),
        (408, Outcome.UNAVAILABLE, None),
        (409, Outcome.UNKNOWN, None),
        (422, Outcome.REJECTED, "conflict"),
        (425, Outcome.UNAVAILABLE, None),
        (429, Outcome.UNAVAILABLE, None),
        (500, Outcome.UNKNOWN, None),
        (501, Outcome.UNAVAILABLE, None),
        (502, Outcome.UNKNOWN, None),
        (503, Outcome.UNAVAILABLE, None),
        (504, Outcome.UNKNOWN, None),
        (507, Outcome.UNKNOWN, None),
    ],
)
def test_each_status_has_its_outcome(service: Service, status: int, outcome: Outcome, reason: str | None) -> None:
    """Nothing of a reply is guessed: what is not certainly applied, or not applied, is unknown."""
    service.script.append(Says(status, {"Location": f"{service.url}/elsewhere"}, b"" if status == 204 else b"why"))
    (answer,) = send(in_order(service), "a")
    assert answer.outcome is outcome
    assert reason is None or answer.reason == reason
    assert outcome is Outcome.WRITTEN or f"status {status}" in answer.detail
    assert len(service.requests) == 1, "a redirect was followed, or a request was repeated"


def judge_by_body(reply: HttpReply) -> Answer | Outcome | None:
    """Judge 200 by what the body says, and 409 as known."""
    if reply.status == 409:
        return ALREADY
    return Outcome.REJECTED if b"no" in reply.body else None


def test_the_users_rule_comes_first(service: Service) -> None:
    """An answer, an outcome, or None for the usual rule."""
    service.script += [Says(409), Says(200, body=b"no"), Says(200, body=b"yes")]
    answers = send(in_order(service, outcome=judge_by_body), 1, 2, 3)
    assert [each.outcome for each in answers] == [Outcome.ALREADY, Outcome.REJECTED, Outcome.WRITTEN]


def test_a_rule_that_fails_on_a_reply_leaves_that_record_in_doubt(service: Service) -> None:
    """What it said of the others stands."""
    service.script += [Says(200, body=b"1"), Says(200, body=b"<html>"), Says(200, body=b"1")]
    answers = send(in_order(service, outcome=lambda reply: json.loads(reply.body) and None), 1, 2, 3)
    assert [each.outcome for each in answers] == [Outcome.WRITTEN, Outcome.UNKNOWN, Outcome.WRITTEN]
    assert "outcome= raised JSONDecodeError" in answers[1].detail


def test_a_body_that_cannot_be_made_keeps_one_record_back(service: Service) -> None:
    """A bad number is the record's fault; what may pass is tried again. Nothing of either was sent."""
    answers = send(in_order(service, body=priced), "2,50", "away", "2.50")
    assert [each.outcome for each in answers] == [Outcome.REJECTED, Outcome.UNAVAILABLE, Outcome.WRITTEN]
    assert len(service.requests) == 1


def priced(record: dict[str, str]) -> dict[str, object]:
    """Fail as functions of users do."""
    if record["id"] == "away":
        raise OSError("no route")
    return {"id": str(Decimal(record["id"]))}


@pytest.mark.parametrize("does", [Does.HANG, Does.HANG_APPLIED, Does.DRIP_BODY, Does.DRIP_HEADERS])
def test_silence_after_the_request_is_unknown_in_time(service: Service, does: Does) -> None:
    """Whether it was applied or not; a reply that trickles in does not stretch the time-out."""
    service.script.append(does)
    began = time.monotonic()
    assert outcomes(in_order(service), "a") == [Outcome.UNKNOWN]
    assert time.monotonic() - began < 5
    assert bool(service.effects) is (does is not Does.HANG)


@pytest.mark.parametrize("does", [Does.LOSE_REPLY, Does.CUT_BODY])
def test_a_reply_that_is_cut_is_unknown_and_the_others_go_on(service: Service, does: Does) -> None:
    """One lost reply is one record in doubt."""
    service.script += [None, does]
    assert outcomes(in_order(service), 1, 2, 3) == [Outcome.WRITTEN, Outcome.UNKNOWN, Outcome.WRITTEN]
    assert ids(service) == [1, 2, 3]


def test_what_is_slow_is_not_sent_more(service: Service) -> None:
    """The rest of the batch stays certain: not applied, not in doubt."""
    service.script += [None, Does.HANG]
    assert outcomes(in_order(service), 1, 2, 3, 4) == [
        Outcome.WRITTEN,
        Outcome.UNKNOWN,
        Outcome.UNAVAILABLE,
        Outcome.UNAVAILABLE,
    ]
    assert len(service.requests) == 2


def test_a_refused_connection_applied_nothing() -> None:
    """Nothing listens there."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}/"
    assert outcomes(HttpSink(url), 1, 2) == [Outcome.UNAVAILABLE, Outcome.UNAVAILABLE]


def test_a_time_out_before_the_request_applied_nothing() -> None:
    """The other side lets nobody in: its queue of connections is full."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        with socket.socket() as first, socket.socket() as second:
            for each in (first, second):
                each.setblocking(False)
                each.connect_ex(full.getsockname())
            sink = HttpSink(f"http://127.0.0.1:{full.getsockname()[1]}/", request_timeout=WHATEVER)
            (answer,) = send(sink, 1)
    assert answer.outcome is Outcome.UNAVAILABLE
    assert "no whole reply came in time" in answer.detail


def test_connections_are_kept_and_closed_ones_noticed(service: Service) -> None:
    """A batch, and the next one, use one connection; one that the service closed meanwhile costs no doubt."""
    service.script += [None, None, None, Does.CLOSE_AFTERWARDS]
    with closing(in_order(service).open(SCOPE, None)) as session:
        assert [a.outcome for a in session.write(writes(1, 2), timeout_seconds=SECONDS)] == [Outcome.WRITTEN] * 2
        assert [a.outcome for a in session.write(writes(3, 4), timeout_seconds=SECONDS)] == [Outcome.WRITTEN] * 2
        assert service.connections == 1
        wait_until(lambda: service.at_once == 0)
        assert [a.outcome for a in session.write(writes(5), timeout_seconds=SECONDS)] == [Outcome.WRITTEN]
    assert service.connections == 2
    assert ids(service) == [1, 2, 3, 4, 5]


def wait_until(true: Callable[[], bool]) -> None:
    """Poll, for at most five seconds, and a moment for the last packet to arrive."""
    deadline = time.monotonic() + 5
    while not true() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)


def test_requests_in_flight_are_bounded_and_answers_stay_in_order(service: Service) -> None:
    """Several at a time, never more, and each answer belongs to its record."""
    names = [*range(20), "bad", *range(20, 40)]
    service.script += [Does.MEET] * 4
    found = outcomes(HttpSink(service.url, in_flight=4), *names)
    assert [name for name, one in zip(names, found, strict=True) if one is not Outcome.WRITTEN] == ["bad"]
    assert sorted(ids(service)) == list(range(40))
    assert service.most_at_once == 4


def test_the_whole_batch_ends_in_time(service: Service) -> None:
    """No request begins that could run on past the end; what was not sent is said to be so."""
    service.script += [Does.HANG_APPLIED] * 4
    began = time.monotonic()
    found = outcomes(HttpSink(service.url, in_flight=4, request_timeout=timedelta(seconds=1)), *range(9), seconds=1.0)
    assert time.monotonic() - began < 5
    assert found == [Outcome.UNKNOWN] * 4 + [Outcome.UNAVAILABLE] * 5


def test_no_request_begins_that_could_end_too_late(service: Service) -> None:
    """Each of them may take as long as the whole call: then there is time for the first one only."""
    sink = HttpSink(service.url, in_flight=1, request_timeout=timedelta(seconds=5), timeout=timedelta(seconds=5))
    found = outcomes(sink, *range(100), seconds=5.0)
    assert (found[0], found[-1]) == (Outcome.WRITTEN, Outcome.UNAVAILABLE)
    assert found.count(Outcome.WRITTEN) == len(service.effects)


@pytest.mark.parametrize("status", [429, 503])
def test_a_pause_that_is_asked_for_is_kept_and_passed_on(service: Service, status: int) -> None:
    """The rest of the batch is not sent, and the answer says how long to wait."""
    service.script += [None, Says(status, {"Retry-After": "2"})]
    answers = send(in_order(service), 1, 2, 3)
    assert [each.outcome for each in answers] == [Outcome.WRITTEN, Outcome.UNAVAILABLE, Outcome.UNAVAILABLE]
    assert answers[1].retry_after_seconds == 2
    assert len(service.requests) == 2


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("1.5", 1.5), ("-3", None), ("99999999", 3600), ("1e999", None), ("soon", None), ("", None)],
)
def test_how_long_to_wait_is_bounded(text: str, seconds: float | None) -> None:
    """An absurd value does not stop a job for a day."""
    assert retry_after(HttpReply(429, {"retry-after": text}, b"")) == seconds


@pytest.mark.parametrize(("offset", "least", "most"), [(30, 20, 30), (-500, 0, 0), (10**7, 3600, 3600)])
def test_how_long_to_wait_may_be_a_date(offset: int, least: float, most: float) -> None:
    """As HTTP allows."""
    date = format_datetime(datetime.now(timezone.utc) + timedelta(seconds=offset), usegmt=True)
    found = retry_after(HttpReply(503, {"retry-after": date}, b""))
    assert found is not None
    assert least <= found <= most


def test_each_request_bears_its_key_and_the_secret(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digest's hexadecimal digits, as every sink gets them."""
    monkeypatch.setenv("SHOP_TOKEN", f"Bearer {TOKEN}")
    sink = HttpSink(
        f"{service.url}/orders/{{id}}?from={{idempotency_key}}",
        method="PUT",
        headers={"Authorization": Secret.env("SHOP_TOKEN"), "X-Source": "nightly"},
    )
    (write,) = writes("ü/?&")
    send(sink, "ü/?&")
    ((method, path, headers),) = service.requests
    assert (method, path) == ("PUT", f"/orders/%C3%BC%2F%3F%26?from={write.idempotency_key}")
    assert headers["Idempotency-Key"] == write.digest.hex()
    assert (headers["Authorization"], headers["X-Source"]) == (f"Bearer {TOKEN}", "nightly")
    assert headers["Content-Type"] == "application/json"


def test_no_credential_shows(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not where the service repeats it, not in what anybody logs, not in a pickle or a repr."""
    monkeypatch.setenv("SHOP_TOKEN", f"Bearer {TOKEN}")
    sink = HttpSink(f"{service.url}/?page=p4ge", headers={"Authorization": Secret.env("SHOP_TOKEN")}, in_flight=1)
    service.script += [Says(400, body=f"I do not know {TOKEN}".encode()), Does.LOSE_REPLY]
    with caplog.at_level(logging.DEBUG), closing(sink.open(SCOPE, None)) as session:
        answers = session.write(writes(1, 2), timeout_seconds=SECONDS)
        shown = [str(answers), repr(session), repr(sink), sink.target, caplog.text, str(pickle.dumps(sink))]
    assert not [each for each in shown if TOKEN in each]
    assert not [each for each in shown[:5] if "p4ge" in each]
    assert "I do not know ***" in answers[0].detail


@pytest.mark.parametrize("slash", ["/", "\\/"])
@pytest.mark.parametrize("ampersand", ["&", "\\u0026"])
def test_what_a_service_echoes_as_json_shows_no_credential(
    service: Service, caplog: pytest.LogCaptureFixture, slash: str, ampersand: str
) -> None:
    """Neither a token of the query, as it was sent or as it was read, nor a header whose characters were escaped."""
    token = 'ab"c/d&efghij'
    sink = HttpSink(
        f"{service.url}/?api_key=qu3ry%2Ft0ken&id={{id}}&last=0ther",
        headers={"Authorization": Secret.literal(f"Bearer {token}")},
    )
    echo = json.dumps(["?api_key=qu3ry%2Ft0ken&id=1&last=0ther", "qu3ry/t0ken", f"Bearer {token}", token])
    echo = echo.replace("/", slash).replace("&", ampersand)
    service.script.append(Says(403, body=echo.encode()))
    with caplog.at_level(logging.DEBUG):
        (answer,) = send(sink, 1)
    for part in ("qu3ry", "t0ken", "0ther", "ab", "efghij"):
        assert part not in answer.detail.rpartition("status 403")[2] + caplog.text
    assert "&id=1" in answer.detail.replace("\\u0026", "&"), "what is the record's is left"


def test_a_reply_that_is_cut_off_within_a_credential_shows_none_of_it(service: Service) -> None:
    """What a message quotes of a reply ends somewhere, be it in the middle of the token."""
    sink = in_order(service, headers={"Authorization": Secret.literal(f"Bearer {TOKEN}")})
    service.script.append(Says(400, body=b"." * (SHOWN_BYTES - 8) + TOKEN.encode()))
    (answer,) = send(sink, 1)
    assert TOKEN[:5] not in answer.detail
    assert answer.detail.endswith(".***")


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"url": f"https://user:{TOKEN}@shop/"}, "no user or password in a URL"),
        ({"url": f"ftp://shop/{TOKEN}"}, "begins with http"),
        ({"url": f"{TOKEN}"}, "begins with http"),
        ({"url": "https://{shop}/orders"}, "host"),
        ({"url": "https://shop{id}/orders"}, "may not choose the host"),
        ({"url": "https://shop/{}"}, "field's name in braces"),
        ({"url": "https://shop/{id!r}"}, "without a format"),
        ({"url": "https://shop/{id"}, "not a template"),
        ({"url": "https://shop/a#b"}, "#"),
        ({"url": "https://shop/ü"}, "percent-encode"),
        ({"url": "https://shop:x/"}, "not a URL"),
        ({"method": "GET"}, "GET"),
        ({"headers": {"Authorization": TOKEN}}, "header Authorization holds a credential"),
        ({"headers": {"X-Api-Key": TOKEN}}, "Secret"),
        ({"headers": {"X-A": f"{TOKEN}\r\nX-B: 1"}}, "cannot be sent"),
        ({"headers": {"X-A": "c "}}, "no blanks at its ends"),
        ({"headers": {"X-A": "\tc"}}, "no blanks at its ends"),
        ({"headers": {"a b": "c"}}, "no header"),
        ({"headers": {"Host": "c"}}, "no header"),
        ({"headers": {"idempotency-key": "c"}}, "set by the sink"),
        ({"request_timeout": timedelta(seconds=11)}, "request_timeout=0:00:11"),
        ({"request_timeout": timedelta(0)}, "request_timeout"),
        ({"remembers": timedelta(0)}, "remembers"),
        ({"in_flight": 0}, "in_flight=0"),
        ({"result_bytes": -1}, "result_bytes=-1"),
        ({"probe": "shop/{id}"}, "begins with http"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], match: str) -> None:
    """With what is wrong, and without what may be secret."""
    with pytest.raises(Misconfigured, match=match) as caught:
        HttpSink(**{"url": "https://shop/", **settings})
    assert TOKEN not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("end", ["\n", " ", "\t"])
def test_a_secret_that_cannot_be_sent_is_refused_at_start(end: str) -> None:
    """A line break in it would be another header, and a blank at its end puts each record in doubt."""
    sink = HttpSink("https://shop/", headers={"Authorization": Secret.literal(f"{TOKEN}{end}")})
    with pytest.raises(Misconfigured, match="cannot be sent") as caught:
        sink.open(SCOPE, None)
    assert TOKEN not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("name", "reason"),
    [(None, "no_key"), ("", "no_key"), ("..", "wrong_type"), (1.5, "wrong_type"), ("\ud800", "not_unicode")],
)
def test_a_value_that_cannot_stand_in_a_url_is_refused(service: Service, name: Any, reason: str) -> None:
    """It would lead to another place; the others are sent."""
    answers = send(HttpSink(f"{service.url}/o/{{id}}"), name, "b")
    assert [each.outcome for each in answers] == [Outcome.REJECTED, Outcome.WRITTEN]
    assert answers[0].reason == reason


def only_amount(record: Any) -> bytes:
    """Make a body."""
    if record["id"] == "none":
        raise Rejected("refused", "there is nothing to send")
    return b'{"id": "made"}'


def test_the_body_may_be_made_by_a_function(service: Service) -> None:
    """Which may refuse a record."""
    answers = send(HttpSink(service.url, body=only_amount), 1, "none")
    assert [each.outcome for each in answers] == [Outcome.WRITTEN, Outcome.REJECTED]
    assert ids(service) == ["made"]


@pytest.mark.parametrize(
    ("size", "limit", "kept"), [(10, 10, True), (11, 10, False), (10**6, 100, False), (10, 0, False)]
)
def test_a_result_is_kept_whole_or_not_at_all(
    service: Service, size: int, limit: int, kept: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A reply without end costs neither memory nor the effect; what is left out is named, with its size."""
    service.reply = b"r" * size
    (answer,) = send(HttpSink(service.url, result_bytes=limit), 1)
    assert answer.outcome is Outcome.WRITTEN
    assert answer.result == (service.reply if kept else None)
    named = f"over result_bytes={limit}" in caplog.text and "too large: a reply of" in answer.detail
    assert named is (not kept and limit > 0)


def test_a_probe_that_is_not_answered_is_no_answer(service: Service) -> None:
    """Only 404 and 410 say that there is no effect: a service in trouble does not."""
    sink = HttpSink(service.url, probe="http://127.0.0.1:1/{idempotency_key}")
    with closing(sink.open(SCOPE, None)) as session, pytest.raises(Unavailable, match="did not tell"):
        session.probe(writes(1), timeout_seconds=SECONDS)


def test_a_probe_by_the_key_alone_needs_no_record(service: Service) -> None:
    """A reconciler may have nothing else; one that needs more says what."""
    send(HttpSink(service.url), 1)
    (write,) = (each._replace(record=None) for each in writes(1))
    with closing(HttpSink(service.url, probe=f"{service.url}/{{idempotency_key}}").open(SCOPE, None)) as session:
        assert session.probe([write], timeout_seconds=SECONDS) == [WRITTEN]
    with (
        closing(HttpSink(service.url, probe=f"{service.url}/{{id}}").open(SCOPE, None)) as session,
        pytest.raises(Misconfigured, match="idempotency_key"),
    ):
        session.probe([write], timeout_seconds=SECONDS)


def is_there(record: Any, key: str) -> bool:
    """Tell of one record that it is there."""
    return bool(record["id"] == "there" and key)


def test_a_probe_may_be_a_function_of_record_and_key() -> None:
    """Of the key that was sent."""
    with closing(HttpSink("https://shop/", probe=is_there).open(SCOPE, None)) as session:
        assert session.probe(writes("there", "not"), timeout_seconds=SECONDS) == [WRITTEN, None]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_certificate_has_to_be_trusted(tmp_path: Path) -> None:
    """One that is not is said to be so, and nothing was sent; `ca` names one that is."""
    certificate = self_signed(tmp_path)
    with http_service(certificate) as service:
        (stranger,) = send(HttpSink(service.url), 1)
        assert stranger.outcome is Outcome.UNAVAILABLE
        assert "its certificate is not trusted" in stranger.detail
        assert service.requests == []
        assert outcomes(HttpSink(service.url, ca=str(certificate)), 1, 2) == [Outcome.WRITTEN] * 2
    with pytest.raises(Misconfigured, match="no readable file of certificates"):
        HttpSink("https://shop/", ca=str(tmp_path / "nowhere")).open(SCOPE, None)


def test_a_session_that_nobody_closes_ends_by_itself(service: Service) -> None:
    """Engines drop sessions when a job fails: neither thread nor connection stays behind."""
    before = set(threading.enumerate())
    session = HttpSink(service.url).open(SCOPE, None)
    session.write(writes(1), timeout_seconds=SECONDS)
    (thread,) = set(threading.enumerate()) - before - handlers()
    del session
    gc.collect()
    thread.join(5)
    assert not thread.is_alive()


def handlers() -> set[threading.Thread]:
    """Return the threads of the service itself."""
    return {each for each in threading.enumerate() if each.name != "oncesink-http"}


def test_it_works_inside_of_an_event_loop(service: Service) -> None:
    """As in a notebook: the caller's thread has a loop of its own."""

    async def call() -> list[Answer]:
        return send(HttpSink(service.url), 1)

    assert [each.outcome for each in asyncio.run(call())] == [Outcome.WRITTEN]


def test_a_record_for_which_no_body_can_be_made_is_refused_and_the_others_go_on(service: Service) -> None:
    """Its batch is not put in doubt for it: nothing was sent."""
    answers = send(in_order(service, body=one_over), 1, 0, "x", 4)
    assert [each.outcome for each in answers] == [
        Outcome.WRITTEN,
        Outcome.REJECTED,
        Outcome.REJECTED,
        Outcome.WRITTEN,
    ]
    assert {each.reason for each in answers[1:3]} == {"wrong_type"}
    assert "KeyError" in answers[1].detail
    assert len(service.requests) == 2


def one_over(record: dict[str, Any]) -> dict[str, Any]:
    """Make a body of whole numbers but 0."""
    return {"id": {1: 1, 4: 4}[record["id"] + 0]}

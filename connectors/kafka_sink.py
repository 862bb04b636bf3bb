"""A topic of Kafka as a sink: one message a record, acknowledged by all replicas."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from .contract import Answer, LedgerSession, Outcome, Scope, SinkKind, Write
from .errors import Misconfigured, Rejected, Unavailable
from .json_lines import json_line
from .kafka_producer import FIXED, Settings, driver, judge, make_producer, prove_topic
from .kafka_secrets import plain_secrets
from .refusals import refusal
from .text_template import filled, pieces
from .wanted import check_durations

HEADER = "idempotency-key"

KeyOf = Callable[[Any], "bytes | str | None"]


@dataclass(frozen=True, slots=True)
class KafkaSink:
    """Recipe of a sink that produces to a topic, which has to be there.

    `KafkaSink("broker:9092", "invoices", key="{order_id}")`. Each message bears the header `idempotency-key`, 32
    hexadecimal digits, by which its readers can drop what came twice. `key` is a template of the record's fields, or a
    function of the record; None: no key. `value` makes the value; by default the record as JSON. `settings` are those
    of librdkafka (`security.protocol`, `sasl.password`: a `Secret`, `compression.type`, ...). `cluster` names the
    cluster in the scope, for addresses that may change. `timeout` bounds a call. Functions must be picklable.

    Delivery: once, but for records in doubt. The producer is idempotent, so that its own repetitions make no doubles;
    but Kafka does not know the idempotency key, cannot be asked for it, and another producer's second message is one
    more. What was accepted and not acknowledged in time is unknown. So `on_replay` is `write`, and readers drop by the
    header, or `park`.
    Parallelism: any number of sessions; each has its own producer with its threads and its queue.
    """

    bootstrap: str
    topic: str
    _: KW_ONLY
    key: str | KeyOf | None = None
    value: Callable[[Any], bytes | str] | None = None
    settings: Settings = field(default_factory=dict, repr=False)
    cluster: str | None = None
    timeout: timedelta = timedelta(seconds=10)

    kind = SinkKind.EXTERNAL
    atomic = False
    can_probe = False
    remembers = None
    tells_occurrence = False

    def __post_init__(self) -> None:
        check_durations(self)
        if not self.bootstrap or not self.topic:
            raise Misconfigured("a KafkaSink needs the addresses of brokers and a topic")
        if isinstance(self.key, str) and not any(name for _, name in pieces(self.key)):
            raise Misconfigured(f"key={self.key!r} is the same for each record: name a field, as in {{order_id}}")
        if self.timeout < timedelta(milliseconds=100):
            raise Misconfigured(f"timeout={self.timeout} must be at least 100 ms")
        ours = sorted(FIXED & set(self.settings))
        if ours:
            raise Misconfigured(f"{', '.join(ours)} in settings=: the sink sets these itself")
        bare = plain_secrets(self.settings)
        if bare:
            raise Misconfigured(f"{', '.join(bare)} in settings=: give Secret.env(...), .file(...) or .call(...)")

    @property
    def target(self) -> str:
        return f"Kafka {self.cluster or self.bootstrap} topic {self.topic}"

    def open(self, scope: Scope, ledger: LedgerSession | None) -> KafkaSession:
        """Connect and look for the topic. Raises `Misconfigured` or `Unavailable`."""
        session = KafkaSession(self)
        try:
            session.prove(self.timeout.total_seconds())
        except BaseException:
            session.close()
            raise
        return session


class KafkaSession:
    """One producer; another one once it is broken, or was left with messages that nobody waits for."""

    store_id: bytes | None = None

    def __init__(self, sink: KafkaSink) -> None:
        self._sink = sink
        self._key = pieces(sink.key) if isinstance(sink.key, str) else sink.key
        self._producer: Any = None

    def prove(self, seconds: float) -> None:
        """Ask the brokers for the topic. Raises `Misconfigured` or `Unavailable`."""
        sink = self._sink
        if self._producer is None:
            self._producer = make_producer(sink.bootstrap, sink.settings, sink.timeout.total_seconds())
        prove_topic(self._producer, sink.topic, f"Kafka at {sink.bootstrap}", seconds)

    def write(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer]:
        deadline = time.monotonic() + timeout_seconds
        # The last part of the time is for taking back what did not get through.
        accept_until = deadline - timeout_seconds / 5
        if not writes:
            return []
        try:
            self.prove(timeout_seconds / 4)
        except Misconfigured as error:
            raise Unavailable(str(error)) from error
        answers: dict[int, Answer] = {}
        # All of them first: a function that raises must not leave a part of the batch sent, and sent again.
        made = [self._made(each) for each in writes]
        accepted = [self._accept(number, each, answers, accept_until) for number, each in enumerate(made)]
        self._wait(answers, accepted.count(True), accept_until, deadline)
        lost = Answer(Outcome.UNKNOWN, detail=f"{self._sink.target}: not acknowledged in time")
        return [answers.get(number, lost) for number in range(len(writes))]

    def _made(self, write: Write) -> Answer | _Message:
        """Return what is sent, or why there is nothing to send."""
        try:
            return _Message(self._key_of(write.record), self._value_of(write.record), write.idempotency_key.encode())
        except Exception as error:  # noqa: BLE001 - nothing of this record was sent
            return refusal(error)

    def _accept(self, number: int, made: Answer | _Message, answers: dict[int, Answer], until: float) -> bool:
        """Give one message to the producer; say at once why it does not take it, if it does not."""
        if isinstance(made, Answer):
            answers[number] = made
            return False
        offered = partial(
            self._producer.produce,
            self._sink.topic,
            made.value,
            made.key,
            on_delivery=partial(_report, answers, number),
            headers=[(HEADER, made.idempotency_key)],
        )
        while (unwanted := _offer(offered)) is _FULL and time.monotonic() < until:
            self._producer.poll(0.01)
        if unwanted is not None:
            answers[number] = unwanted
        return unwanted is None

    def _wait(self, answers: dict[int, Answer], accepted: int, until: float, deadline: float) -> None:
        """Wait for the reports; then take back what is left, so that as little as possible arrives later."""
        if not accepted:
            return
        producer = self._producer
        left = producer.flush(max(0.0, until - time.monotonic()))
        if left:
            producer.purge(in_queue=True, in_flight=True, blocking=False)
            producer.flush(max(0.0, deadline - time.monotonic()))
        if left or any(each.outcome is Outcome.UNKNOWN for each in answers.values()):
            # An idempotent producer that lost messages has a gap in its numbers, and may be beyond repair.
            self.close()

    def _key_of(self, record: Any) -> bytes | None:
        if self._key is None:
            return None
        return _encoded("key", filled(self._key, record) if isinstance(self._key, list) else self._key(record))

    def _value_of(self, record: Any) -> bytes | None:
        return _encoded(
            "value", json_line(record).rstrip(b"\n") if self._sink.value is None else self._sink.value(record)
        )

    def probe(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer | None]:
        raise Misconfigured(f"{self._sink.target} cannot be asked for a message")

    def close(self) -> None:
        """Drop the producer, and what it still holds. Safe to repeat."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.flush(0.1)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._sink.target}>"


class _Message(NamedTuple):
    """A message as it is sent."""

    key: bytes | None
    value: bytes | None
    idempotency_key: bytes


def _encoded(what: str, made: object) -> bytes | None:
    if made is None or isinstance(made, bytes):
        return made
    if isinstance(made, str):
        return made.encode()
    raise Rejected("wrong_type", f"{what}= returned a {type(made).__name__}: a message holds bytes or text")


_FULL = Answer(Outcome.UNAVAILABLE, detail="the queue of the Kafka client is full")


def _offer(produce: Callable[[], None]) -> Answer | None:
    """Give a message to the producer; return why it does not take it."""
    try:
        produce()
    except BufferError:
        return _FULL
    except driver().KafkaException as error:
        answer = judge(error.args[0])
        # It was not accepted, so it was not sent, whatever the error is.
        return answer if answer.outcome is Outcome.REJECTED else answer._replace(outcome=Outcome.UNAVAILABLE)
    return None


def _report(answers: dict[int, Answer], number: int, error: Any, message: Any) -> None:
    answers[number] = judge(error)

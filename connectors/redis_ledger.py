"""Redis as the only ledger: the claim is a SETNX whose value says whose it is, and the server's clock judges the lease.

A row's key is `<prefix>:r:` + digest (16 bytes); its value stands in `redis_scripts`. With `lists_open` the digests of
open rows stand, by the end of their lease, in a sorted set for each scope and generation: `redis_open_rows`.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from functools import partial

from .audit_folder import AuditFolder
from .breaker import Breaker
from .clock import Clock, SystemClock
from .contract import Scope
from .errors import OutcomeUnknown, Unavailable
from .findings import refuse_errors
from .outage import OutageSession
from .redis_check import check_ledger, warn_once
from .redis_client import RedisClient, RedisEndpoint
from .redis_ledger_session import RedisLedgerSession
from .redis_scopes import RedisScopes
from .redis_settings import Outage, check_outage, check_pauses, check_prefix, milliseconds
from .scopes import register
from .secret import Secret
from .wanted import check_durations


@dataclass(frozen=True, slots=True)
class RedisLedger:
    """Recipe of a ledger in one Redis 7 or later.

    Open rows live as long as finished ones; `retention` counts from the last change. `lists_open` keeps a list of the
    open ones, which `oncesink reconcile` needs; all jobs of a scope set it alike, since it knows what they claim only.

    `outage="at_least_once"` lets records be written while Redis is away, each with a line in the folder `audit` (on
    a local disk that outlives the worker) before the sink is called; Redis is told before it guards again. A Redis that
    stays away costs one time-out a pause, the first one doubled up to the longest.

    Delivery: as safe as the Redis: a row that it loses (no append-only file, a fail-over to a replica that lagged, a
    flush) is a record that was never seen. `open` refuses a replica, a cluster's node and a policy that may evict rows,
    and logs a warning for each other thing that may lose one.
    Parallelism: any number of sessions, also of several machines; each has one connection. A script of 1000 rows keeps
    the server busy for some milliseconds.
    """

    url: str
    _: KW_ONLY
    retention: timedelta
    password: Secret | None = None
    prefix: str = "oncesink"
    lists_open: bool = False
    connect_timeout: timedelta = timedelta(seconds=2)
    call_timeout: timedelta = timedelta(seconds=5)
    outage: Outage = "fail"
    audit: str | None = None
    first_pause: timedelta = timedelta(seconds=1)
    longest_pause: timedelta = timedelta(seconds=30)
    clock: Clock = field(default_factory=SystemClock, repr=False, compare=False)
    """For the pauses, and for leases while Redis is away; else Redis itself counts."""

    def __post_init__(self) -> None:
        check_durations(self)
        check_outage(self.outage, self.audit)
        check_pauses(self.first_pause, self.longest_pause)
        milliseconds("retention", self.retention)
        milliseconds("connect_timeout", self.connect_timeout)
        milliseconds("call_timeout", self.call_timeout)
        check_prefix(self.prefix)
        endpoint = self.endpoint
        object.__setattr__(self, "url", endpoint.url)
        object.__setattr__(self, "password", endpoint.password)

    @property
    def shared(self) -> bool:
        """Return True: any machine that reaches the server may open it."""
        return True

    @property
    def endpoint(self) -> RedisEndpoint:
        """Return where the Redis is."""
        return RedisEndpoint(
            url=self.url,
            password=self.password,
            connect_seconds=self.connect_timeout.total_seconds(),
            call_seconds=self.call_timeout.total_seconds(),
        )

    def open(self, scope: Scope) -> RedisLedgerSession | OutageSession:
        """Connect, check the server's settings, register the scope. Raises `Misconfigured` or `Unavailable`."""
        if self.audit is not None:
            return self._open_audited(scope, self.audit)
        client = RedisClient(self.endpoint)
        try:
            return RedisLedgerSession(self, client, self._registered(client, scope), scope)
        except BaseException:
            client.close()
            raise

    def _registered(self, client: RedisClient, scope: Scope) -> bytes:
        """Return the ledger's id."""
        findings = check_ledger(client)
        refuse_errors(findings)
        for finding in findings:
            warn_once(self.endpoint.place, finding)
        return register(RedisScopes(client, self.prefix), scope, retention=self.retention)

    def _open_audited(self, scope: Scope, audit: str) -> OutageSession:
        """Open as ever; or, where the scope was opened here before, without Redis."""
        folder = AuditFolder(audit, scope)
        folder.prove()
        client = RedisClient(self.endpoint)
        blind: Exception | None = None
        try:
            try:
                ledger_id = self._registered(client, scope)
                folder.remember(ledger_id)
            except (Unavailable, OutcomeUnknown) as error:
                known = folder.recall()
                if known is None:
                    raise
                ledger_id, blind = known, error
            return OutageSession(
                RedisLedgerSession(self, client, ledger_id, scope),
                scope,
                folder,
                breaker=Breaker(
                    "the ledger in Redis",
                    first_seconds=self.first_pause.total_seconds(),
                    longest_seconds=self.longest_pause.total_seconds(),
                    clock=self.clock,
                ),
                clock=self.clock,
                quick_seconds=min(self.connect_timeout, self.call_timeout).total_seconds() / 2,
                blind=blind,
                prove=None if blind is None else partial(self._registered, client, scope),
            )
        except BaseException:
            client.close()
            raise

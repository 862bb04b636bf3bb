"""Commands for records in doubt, and for keys that have to pass again: as typer sees them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from oncesink.connectors.errors import Misconfigured
from oncesink.connectors.rows import decode_json
from oncesink.pipelines.adopt_commands import GateAt, SinkAt
from oncesink.pipelines.jobs import load_job
from oncesink.pipelines.reconcile import dry_run as dry_run_of
from oncesink.pipelines.reconcile import opened
from oncesink.pipelines.reconcile import reconcile as reconcile_job
from oncesink.pipelines.stores import duration
from oncesink.transforms import PrometheusMetrics
from oncesink.transforms.forget import digests_of, parse_digest
from oncesink.transforms.forget import forget as forget_keys


def reconcile(
    *,
    gate: GateAt,
    sink: SinkAt = None,
    once: Annotated[bool, typer.Option("--once", help="Make one pass and end: the default.")] = False,
    every: Annotated[str | None, typer.Option("--every", help="Go on, with a pass each 30s, 2m, 1h.")] = None,
    metrics_port: Annotated[int | None, typer.Option(help="Where Prometheus may ask, with --every.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what a pass would do; settle nothing.")] = False,
) -> None:
    """Settle open rows that nobody brings again: ask the sink, finish, or write the stored record.

    Gate and sink are the ones of the job, where they stand in its code, say --gate shop.jobs:gate --sink
    shop.jobs:mails; or --gate names a pair (gate, sink), or a function that returns one. Rows whose lease ended longer
    ago than the gate's grace are taken over and go by its on_replay. Writing one again needs redrive= in the gate;
    without it a probe is given no record, only the key. Any number may run, beside the job, and be killed at any time.

    The last line is JSON. Exit status 1: something is left that needs a person.
    """
    if (once or dry_run) and every is not None:
        raise Misconfigured("--every goes on and on: leave --once and --dry-run away")
    if metrics_port is not None and every is None:
        raise Misconfigured("--metrics-port is for --every: a single pass is over before anybody asks")
    job = load_job(gate, sink)
    if dry_run:
        raise typer.Exit(dry_run_of(job))
    pause = None if every is None else duration(every)
    start = opened
    if metrics_port is not None:
        metrics = PrometheusMetrics(job.gate.scope)
        metrics.serve(metrics_port)
        start = partial(opened, metrics=metrics)
    raise typer.Exit(reconcile_job(job, every=pause, start=start))


def forget(
    *,
    gate: GateAt,
    record: Annotated[
        list[str] | None, typer.Option("--record", help="A record as JSON, its key fields at least. Repeatable.")
    ] = None,
    records: Annotated[
        str | None, typer.Option("--records", help="A file of such records, one a line; - is stdin.")
    ] = None,
    digest: Annotated[
        list[str] | None, typer.Option("--digest", help="A key's digest, 32 hexadecimal digits. Repeatable.")
    ] = None,
) -> None:
    """Let keys of a DropDuplicates pass once more: delete their rows in the ledger, then their entries in the cache.

    For records that passed and were then dropped for good behind it. The gate is the one of the running job; it says
    scope, generation, how a key is made of a record, and where ledger and cache are. Once such a record has passed
    again, a repetition lets it pass a third time.
    """
    job = load_job(gate)
    if job.sink is not None:
        raise Misconfigured("forget is for DropDuplicates: a writer that forgets a key writes it a second time")
    digests = digests_of(job.gate, [*map(decode_json, record or ()), *_lines(records)])
    digests = list(dict.fromkeys([*digests, *map(parse_digest, digest or ())]))
    if not digests:
        raise Misconfigured("name a key: by --record, --records or --digest")
    done = forget_keys(job.gate, digests)
    for each in digests:
        typer.echo(f"{each.hex()}: {'forgotten' if each in done.rows else 'was not known'}")
    until = None
    if done.caches_last is not None:
        until = (datetime.now(timezone.utc) + done.caches_last).isoformat(timespec="seconds")
        typer.echo(f"caches in the memory of other processes have forgotten them by {until}; filters need not")
    typer.echo(
        json.dumps(
            {"keys": len(digests), "rows": len(done.rows), "entries": len(done.entries), "caches_forget_by": until}
        )
    )


def _lines(place: str | None) -> Iterator[Any]:
    if place is None:
        return
    try:
        text = sys.stdin.read() if place == "-" else Path(place).read_text(encoding="utf-8")
    except OSError as error:
        raise Misconfigured(f"cannot read {place}: {error.strerror}") from error
    yield from (decode_json(line) for line in text.splitlines() if line.strip())


COMMANDS = (reconcile, forget)

"""Commands for putting a gate in front of what is live: as typer sees them."""

from __future__ import annotations

import json
import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from oncesink.connectors.contract import Ledger
from oncesink.connectors.errors import Misconfigured
from oncesink.pipelines.backfill import Backfilled
from oncesink.pipelines.backfill import backfill as fill_ledger
from oncesink.pipelines.jobs import Job, load_job
from oncesink.pipelines.plan import plan as plan_for
from oncesink.pipelines.plan_filters import Ask
from oncesink.pipelines.plan_view import show as show_plan
from oncesink.pipelines.rebuild import Rebuilt, Refilled, refill
from oncesink.pipelines.rebuild import rebuild as rebuild_filters
from oncesink.pipelines.stores import ANY_RETENTION, duration, ledger_at, secret_of
from oncesink.pipelines.table_records import Source, source_of
from oncesink.pipelines.table_walk import PAGE_ROWS
from rich.console import Console

GateAt = Annotated[
    str, typer.Option("--gate", help="The gate, or (gate, sink): package.module:name, or a function that returns it.")
]
SinkAt = Annotated[str | None, typer.Option("--sink", help="The sink, where --gate holds a gate only.")]
Columns = Annotated[
    list[str] | None,
    typer.Option("--column", help="A column, the field of a record of that name; or field=SQL expression. Repeatable."),
]
IdColumn = Annotated[str, typer.Option("--id", help="Its numeric id, with an index.")]
Where = Annotated[str | None, typer.Option("--where", help="SQL condition: which of its rows.")]
Database = Annotated[
    str | None, typer.Option("--database", help="Where the table is, if not beside the ledger: mysql://, sqlite:///.")
]
DatabasePasswordEnv = Annotated[
    str | None, typer.Option("--password-env", help="Environment variable with the password of --database.")
]
PageRows = Annotated[int, typer.Option("--page-rows", min=1, help="Rows read at once.")]


def plan(
    *,
    keys: Annotated[int, typer.Option(help="Keys that are to be known: those within the retention.")],
    error_rate: Annotated[float, typer.Option(help="Share of new keys that a filter may take for known.")] = 0.001,
    shards: Annotated[int, typer.Option(help="Filters that the keys are spread over.")] = 16,
    retention: Annotated[str, typer.Option(help="How long the ledger keeps rows: 7d.")] = "7d",
    retry_interval: Annotated[str, typer.Option(help="How far second sends lie apart: 10m.")] = "10m",
    as_json: Annotated[bool, typer.Option("--json", help="JSON in place of tables.")] = False,
) -> None:
    """Tell what filters of so many keys take, and what each choice of tiers costs."""
    found = plan_for(
        Ask(
            keys=keys,
            error_rate=error_rate,
            shards=shards,
            retention=duration(retention),
            retry_interval=duration(retry_interval),
        )
    )
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=1))
    else:
        show_plan(found, Console(width=None if sys.stdout.isatty() else 140))


def rebuild(  # noqa: PLR0913 - the options of a command
    *,
    gate: GateAt,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", help="Where the filters go: a folder, s3://..., any URL of fsspec. RedisBloom needs none."
        ),
    ] = None,
    sink: SinkAt = None,
    table: Annotated[
        str | None, typer.Option("--from-table", help="Build from this table of the ledger's database instead.")
    ] = None,
    column: Columns = None,
    id_column: IdColumn = "id",
    where: Where = None,
    database: Database = None,
    password_env: DatabasePasswordEnv = None,
    since: Annotated[str | None, typer.Option(help="Only ledger rows inserted within: 12h, 7d.")] = None,
    shards: Annotated[int | None, typer.Option(min=1, help="Else the gate's; 1 for OnceWriter.")] = None,
    page_rows: PageRows = PAGE_ROWS,
    checkpoint: Annotated[str, typer.Option(help="How much work a kill may cost.")] = "30s",
) -> None:
    """Build the filters of a gate from its ledger, or from any table; run it again after a kill, and it goes on."""
    job = load_job(gate, sink)
    source = _source(job, table, column, id_column, where, _database(database, password_env))
    age = None if since is None else duration(since)
    if to is None:
        return _refill(job, source, age, page_rows)
    done = rebuild_filters(
        job, to, source=source, since=age, shards=shards, page_rows=page_rows, checkpoint=duration(checkpoint)
    )
    manifest = done.manifest
    _say_where(done)
    size = sum(each.bytes for each in manifest.files) / (1 << 10)
    typer.echo(
        f"{manifest.keys} keys in {manifest.meaning.shards} filters, {size:,.0f} KiB, up to id {manifest.last_id}"
    )
    _end(done, manifest.keys)


def _refill(job: Job, source: Source | None, since: timedelta | None, page_rows: int) -> None:
    done = refill(job, progress=_progress("rebuild", job), source=source, since=since, page_rows=page_rows)
    _say_where(done)
    typer.echo(f"{done.keys} keys are in {job.gate.membership}{', which was lost' if done.made else ''}")
    _end(done, done.keys)


def backfill(  # noqa: PLR0913 - the options of a command
    *,
    gate: GateAt,
    table: Annotated[str, typer.Option("--table", help="The table whose rows are written already.")],
    column: Columns = None,
    sink: SinkAt = None,
    id_column: IdColumn = "id",
    where: Where = None,
    occurrence: Annotated[
        bool, typer.Option("--occurrence", help="The columns hold where each record was read, too.")
    ] = False,
    database: Database = None,
    password_env: DatabasePasswordEnv = None,
    page_rows: PageRows = PAGE_ROWS,
    progress: Annotated[
        Path | None, typer.Option(help="File that tells how far it has come; else oncesink-backfill-SCOPE.json.")
    ] = None,
) -> None:
    """Put the keys of an existing table into the ledger, as finished; run it again after a kill, and it goes on."""
    job = load_job(gate, sink)
    source = source_of(
        table, column or [], id_column=id_column, where=where, at=_database(database, password_env) or job.gate.ledger
    )
    file = progress or _progress("backfill", job)
    done = fill_ledger(job, source, progress=file, occurrence=occurrence, page_rows=page_rows)
    _say_where(done)
    typer.echo(f"{done.inserted} keys are finished now, {done.already} had a row already")
    _end(done, done.inserted + done.already)


def _source(
    job: Job, table: str | None, columns: list[str] | None, id_column: str, where: str | None, at: Ledger | None
) -> Source | None:
    """Return the table that the options name. Raises `Misconfigured` where they do nothing without one."""
    if table is not None:
        return source_of(table, columns or [], id_column=id_column, where=where, at=at or job.gate.ledger)
    if columns or where is not None or at is not None:
        raise Misconfigured("--column, --where and --database choose from a table: name it, --from-table")
    return None


def _database(url: str | None, password_env: str | None) -> Ledger | None:
    return None if url is None else ledger_at(url, password=secret_of(password_env), retention=ANY_RETENTION)


def _progress(command: str, job: Job) -> Path:
    name = re.sub("[^A-Za-z0-9_-]", "_", job.gate.scope)
    return Path(f"oncesink-{command}-{name}.json")


def _say_where(done: Backfilled | Rebuilt | Refilled) -> None:
    if done.resumed_after is not None:
        typer.echo(f"went on after id {done.resumed_after}, where an earlier attempt had stopped")
    if done.refused:
        typer.echo(f"{done.refused} rows have no key and are left out, the first for {done.why}")


def _end(done: Backfilled | Rebuilt | Refilled, keys: int) -> None:
    """Exit status 1: rows were there, and not one had a key. Most likely a column has another name in records."""
    if done.refused and not keys and done.resumed_after is None:
        raise typer.Exit(1)


COMMANDS = (plan, backfill, rebuild)

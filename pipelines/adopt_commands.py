"""Commands for putting a gate in front of what is live: as typer sees them."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from oncesink.connectors.errors import Misconfigured
from oncesink.connectors.mysql_literals import quoted
from oncesink.connectors.table_pages import PagedTable
from oncesink.pipelines.jobs import load_job
from oncesink.pipelines.plan import Ask
from oncesink.pipelines.plan import plan as plan_for
from oncesink.pipelines.plan_view import show as show_plan
from oncesink.pipelines.rebuild import rebuild as rebuild_filters
from oncesink.pipelines.stores import duration
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
    to: Annotated[str, typer.Option("--to", help="Where the filters go: a folder, s3://..., any URL of fsspec.")],
    sink: SinkAt = None,
    table: Annotated[
        str | None, typer.Option("--from-table", help="Build from this table of the ledger's database instead.")
    ] = None,
    column: Columns = None,
    id_column: IdColumn = "id",
    where: Where = None,
    since: Annotated[str | None, typer.Option(help="Only ledger rows inserted within: 12h, 7d.")] = None,
    shards: Annotated[int | None, typer.Option(min=1, help="Else the gate's; 1 for OnceWriter.")] = None,
    page_rows: PageRows = PAGE_ROWS,
    checkpoint: Annotated[str, typer.Option(help="How much work a kill may cost.")] = "30s",
) -> None:
    """Build the filters of a gate from its ledger, or from any table; run it again after a kill, and it goes on."""
    done = rebuild_filters(
        load_job(gate, sink),
        to,
        source=paged(table, column, id_column, where),
        since=None if since is None else duration(since),
        shards=shards,
        page_rows=page_rows,
        checkpoint=duration(checkpoint),
    )
    manifest = done.manifest
    if done.resumed_after is not None:
        typer.echo(f"went on after id {done.resumed_after}, where an earlier attempt had stopped")
    if done.refused:
        typer.echo(f"{done.refused} rows have no key and are left out")
    size = sum(each.bytes for each in manifest.files) / (1 << 20)
    typer.echo(
        f"{manifest.keys} keys in {manifest.meaning.shards} filters, {size:.1f} MiB, up to id {manifest.last_id}"
    )


def paged(table: str | None, columns: list[str] | None, id_column: str, where: str | None) -> PagedTable | None:
    """Return the table that the options name. Raises `Misconfigured` where they do nothing without one."""
    if table is None:
        if columns or where is not None:
            raise Misconfigured("--column and --where choose from a table: name it")
        return None
    if not columns:
        raise Misconfigured("name the columns that hold the key: --column order_id, or --column 'order_id=SQL'")
    return PagedTable(table=table, id_column=id_column, where=where, columns=dict(column_of(each) for each in columns))


def column_of(option: str) -> tuple[str, str]:
    """Read `name`, or `name=SQL expression`."""
    name, equals, expression = option.partition("=")
    if not name or (equals and not expression):
        raise Misconfigured(f"a column is a name, or name=SQL expression, not {option!r}")
    return name, expression or quoted(name)


COMMANDS = (plan, rebuild)

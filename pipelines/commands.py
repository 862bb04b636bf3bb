"""What the `oncesink` command can do, as typer sees it."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import typer
from oncesink import __version__
from oncesink.connectors.errors import Misconfigured
from oncesink.connectors.findings import Finding
from oncesink.connectors.mysql_ledger import MySQLLedger
from oncesink.connectors.mysql_purge import purge as purge_mysql
from oncesink.connectors.redis_ledger import RedisLedger
from oncesink.connectors.schema import LEDGER_TABLE
from oncesink.connectors.sqlite_purge import purge as purge_sqlite
from oncesink.pipelines import doubt_commands
from oncesink.pipelines.adopt_commands import COMMANDS, SinkAt
from oncesink.pipelines.demo_settings import Engine, Settings
from oncesink.pipelines.filter_commands import filters
from oncesink.pipelines.findings import of_cache, of_job, of_ledger
from oncesink.pipelines.jobs import load_job
from oncesink.pipelines.stores import ANY_RETENTION, FORMS, AnyLedger, duration, ledger_at, secret_of, tables_of
from oncesink.pipelines.timing import Times
from rich.console import Console
from rich.markup import escape
from rich.table import Table

app = typer.Typer(
    help="Writes that happen once. `oncesink demo` shows it; `oncesink init` and `check` come before the first job.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

LedgerURL = Annotated[str, typer.Option("--ledger", help=f"Where the ledger is: {FORMS}.")]
RedisURL = Annotated[str | None, typer.Option("--redis", help="Where the cache is: redis://host:6379/0.")]
PasswordEnv = Annotated[str | None, typer.Option("--password-env", help="Environment variable with its password.")]
RedisPasswordEnv = Annotated[
    str | None, typer.Option("--redis-password-env", help="Environment variable with the password of --redis.")
]
LedgerTable = Annotated[str, typer.Option("--table", help="Name of the ledger's table.")]


def _time(meaning: str) -> Any:
    return typer.Option(help=f"{meaning}: 90s, 30m, 12h, 7d. With --gate.")


def _say_version(wanted: bool) -> None:  # noqa: FBT001 - as typer calls it
    if wanted:
        typer.echo(f"oncesink {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def init(
    *,
    ledger: LedgerURL,
    password_env: PasswordEnv = None,
    table: LedgerTable = LEDGER_TABLE,
    apply: Annotated[bool, typer.Option("--apply", help="Run the statements instead of printing them.")] = False,
) -> None:
    """Print the tables that a ledger needs, or make those that are missing."""
    recipe = _ledger(ledger, password_env, table)
    statements = tables_of(recipe, apply=apply)
    typer.echo("".join(f"{statement};\n\n" for statement in statements), nl=False)
    if apply:
        typer.echo(
            f"-- applied where they were missing, at {recipe.url if isinstance(recipe, MySQLLedger) else ledger}"
        )


@app.command()
def check(  # noqa: PLR0913 - the options of a command
    *,
    ledger: Annotated[str | None, typer.Option("--ledger", help=f"Where the ledger is: {FORMS}.")] = None,
    password_env: PasswordEnv = None,
    table: LedgerTable = LEDGER_TABLE,
    redis: RedisURL = None,
    redis_password_env: RedisPasswordEnv = None,
    gate: Annotated[
        str | None, typer.Option("--gate", help="A gate, or (gate, sink): its ledger, its cache and its times.")
    ] = None,
    sink: SinkAt = None,
    checkpoint_interval: Annotated[str | None, _time("Between two checkpoints of the engine")] = None,
    checkpoint_timeout: Annotated[str | None, _time("When the engine gives a checkpoint up")] = None,
    max_poll_interval: Annotated[str | None, _time("max.poll.interval.ms of the consumer")] = None,
    longest_replay: Annotated[str | None, _time("How far back savepoint or offsets may be set")] = None,
    retry_interval: Annotated[str | None, _time("How long a producer goes on sending again")] = None,
) -> None:
    """Look at servers, tables and settings; tell what breaks or narrows the guarantee."""
    times = Times(
        checkpoint_interval=_duration(checkpoint_interval),
        checkpoint_timeout=_duration(checkpoint_timeout),
        max_poll_interval=_duration(max_poll_interval),
        longest_replay=_duration(longest_replay),
        retry_interval=_duration(retry_interval),
    )
    found: list[tuple[str, Finding]] = []
    if gate is not None:
        job = load_job(gate, sink)
        if job.sink is None:
            typer.echo(f"{gate} is looked at as a gate of DropDuplicates; if it writes, name its --sink", err=True)
        found += of_job(job, times)
    elif times != Times() or sink is not None:
        raise Misconfigured("times, and --sink, are those of a gate: name it, --gate package.module:name")
    elif ledger is None and redis is None:
        raise Misconfigured("nothing to look at: --gate package.module:name, --ledger, or --redis")
    if ledger is not None:
        found += [("ledger", each) for each in of_ledger(_ledger(ledger, password_env, table))]
    if redis is not None:
        found += [("cache", each) for each in of_cache(redis, secret_of(redis_password_env))]
    _print_findings(found)
    if any(each.severity == "error" for _, each in found):
        raise typer.Exit(1)


@app.command()
def purge(
    *,
    ledger: LedgerURL,
    older_than: Annotated[str, typer.Option(help="Keep what was finished within: 90s, 30m, 12h, 7d.")],
    password_env: PasswordEnv = None,
    table: LedgerTable = LEDGER_TABLE,
) -> None:
    """Delete finished rows whose retention is over, in small transactions; tell of old open ones."""
    recipe = _ledger(ledger, password_env, table)
    if isinstance(recipe, RedisLedger):
        raise Misconfigured("purge is for MySQL and SQLite ledgers: rows in Redis go by themselves")
    age = duration(older_than)
    done = (
        purge_mysql(recipe, older_than=age) if isinstance(recipe, MySQLLedger) else purge_sqlite(recipe, older_than=age)
    )
    typer.echo(f"{done.deleted} finished rows deleted")
    if done.old_open_rows:
        typer.echo(
            f"{done.old_open_rows} open rows whose lease is long over, the oldest {done.oldest_open_seconds:.0f} s old:"
            " their records are in doubt, see `oncesink reconcile`"
        )


@app.command()
def demo(
    *,
    engine: Annotated[Engine, typer.Option(help="What runs the pipeline.")] = Engine.BEAM,
    ledger: Annotated[
        str | None, typer.Option(help="sqlite:///path or mysql://user@host:3306/database; else a file that goes again.")
    ] = None,
    password_env: PasswordEnv = None,
    redis: RedisURL = None,
    redis_password_env: RedisPasswordEnv = None,
    limit: Annotated[int | None, typer.Option(min=100, help="Take so many flights instead of all 336,776.")] = None,
) -> None:
    """Deliver a year of flights, a third of them again, kill the process, and count the rows.

    The tables plain_flights, once_flights and oncesink_demo_ledger are made anew where --ledger points.
    """
    from oncesink.pipelines.demo import show  # noqa: PLC0415 - the other commands do without

    settings = Settings(
        engine=engine,
        ledger=ledger,
        password_env=password_env,
        redis=redis,
        redis_password_env=redis_password_env,
        limit=limit,
    )
    raise typer.Exit(show(settings))


def _ledger(url: str, password_env: str | None, table: str) -> AnyLedger:
    return ledger_at(url, password=secret_of(password_env), retention=ANY_RETENTION, table=table)


def _duration(text: str | None) -> timedelta | None:
    return None if text is None else duration(text)


def _print_findings(found: list[tuple[str, Finding]]) -> None:
    console = Console()
    if not found:
        console.print("Nothing found that breaks or narrows the guarantee.")
        return
    table = Table("Where", "Severity", "What", "To do", show_lines=True)
    for where, each in found:
        style = "bold red" if each.severity == "error" else "yellow"
        table.add_row(where, f"[{style}]{each.severity}[/]", escape(each.what), escape(each.todo))
    console.print(table)


def _unwrapped(text: str | None) -> str:
    """Return a docstring with a line for each paragraph: the terminal breaks them."""
    return "\n\n".join(" ".join(each.split()) for each in (text or "").split("\n\n"))


for command in (*COMMANDS, *doubt_commands.COMMANDS):
    app.command(help=_unwrapped(command.__doc__))(command)
app.add_typer(filters, name="filter")

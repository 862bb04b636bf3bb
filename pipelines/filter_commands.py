"""`oncesink filter`: make, look at and rotate the filter that jobs share in Redis, as typer sees it."""

from __future__ import annotations

import typer
from oncesink.connectors.errors import Misconfigured
from oncesink.pipelines.adopt_commands import GateAt, SinkAt
from oncesink.pipelines.jobs import load_job
from oncesink.transforms.membership import Occupancy, RedisBloom

filters = typer.Typer(help="The filter that jobs share in Redis.", no_args_is_help=True)


@filters.command()
def create(*, gate: GateAt, sink: SinkAt = None) -> None:
    """Make it, empty, if it is not there: once, and again after Redis lost it."""
    recipe = shared_of(gate, sink)
    made = "made" if recipe.create_filter() else "is there"
    typer.echo(f"{recipe} {made}")


@filters.command()
def show(*, gate: GateAt, sink: SinkAt = None) -> None:
    """Tell how full it is. Exit status 1: it is not there."""
    recipe = shared_of(gate, sink)
    found = recipe.occupancy()
    if found is None:
        typer.echo(f"{recipe} is not in Redis: every key is perhaps known until `oncesink filter create` makes it")
        raise typer.Exit(1)
    typer.echo(shown(recipe, found))


@filters.command()
def rotate(*, gate: GateAt, sink: SinkAt = None) -> None:
    """Begin the next generation now; jobs that run switch with their next batch."""
    recipe = shared_of(gate, sink)
    recipe.rotate()
    found = recipe.occupancy()
    if found is not None:
        typer.echo(shown(recipe, found))


def shared_of(gate: str, sink: str | None) -> RedisBloom:
    """Return the shared filter of the gate at a place. Raises `Misconfigured` where it has none."""
    recipe = load_job(gate, sink).gate.membership
    if not isinstance(recipe, RedisBloom):
        kind = "no membership=" if recipe is None else recipe.description
        raise Misconfigured(f"{gate} has {kind}: a RedisBloom is what jobs share, others are in a job's own state")
    return recipe


def shown(recipe: RedisBloom, found: Occupancy) -> str:
    """Say in one line how full a filter is."""
    age = "" if found.window_seconds is None else f", the oldest {found.window_seconds / 3600:.1f} h old"
    return (
        f"{recipe.name}: about {found.estimated_keys:,.0f} keys in {found.generations} generations{age};"
        f" {found.estimated_error_rate:.3%} of the absent ones are taken for known, {found.bits >> 23:,} MiB"
    )

"""`docs/measured.md`: all results that are kept, as tables. Nobody writes a number there by hand."""

import json
from pathlib import Path
from typing import Any

from benchmarks.rows import figure, missed

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PAGE = HERE.parent / "docs" / "measured.md"

HEAD = """\
# Measured

By `make bench`: both sides in one run, alternating, the median of
their rounds, on servers with their defaults. How often ours is better stands under *ratio*; where there is a bar and it
is not reached, the ratio is **bold** and the run fails. `make bench ONLY=filter` runs one group.

Absolute rates are those of one small machine, whose speed swings; the ratio to what ran beside them is what counts.
"""


def page(results: list[dict[str, Any]]) -> str:
    """Return the page as Markdown."""
    return "\n".join([HEAD, *[section(each) for each in results]])


def section(result: dict[str, Any]) -> str:
    """Return a group's table."""
    group, machine = result["group"], result["machine"]
    versions = ", ".join(f"{name} {found}" for name, found in machine["versions"].items())
    lines = [
        f"## {group}",
        "",
        f"{machine['cores']} cores, Python {machine['python']}; {versions}. Took {result['seconds']:.0f} seconds.",
        f"[Chart](pictures/bench-{group}.svg), [every single measurement](../benchmarks/results/{group}.json).",
        "",
        "| what | unit | ours | theirs | ratio | bar |",
        "|---|---|--:|--:|--:|--:|",
        *[line(row) for row in result["rows"]],
        "",
    ]
    return "\n".join(lines)


def line(row: Any) -> str:
    """Return a row of the table."""
    ratio = f"**{row['ratio']:.3g}**" if missed(row) else f"{row['ratio']:.3g}"
    bar = "" if row["at_least"] is None else f"{row['at_least']:.3g}"
    cells = (row["name"], row.get("unit", ""), figure(row["ours"]), figure(row["theirs"]), ratio, bar)
    return f"| {' | '.join(cells)} |"


def kept(folder: Path = RESULTS) -> list[dict[str, Any]]:
    """Return the kept results, by the names of their groups."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def write() -> None:
    """Make the page anew."""
    PAGE.write_text(page(kept()), encoding="utf-8")

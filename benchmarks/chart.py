"""Draw ratios as an SVG bar chart, written by hand: a plotting library would be the largest thing the project needs."""

from collections.abc import Iterator, Sequence
from html import escape
from math import ceil, floor, log10

from benchmarks.rows import MeasuredRow, figure, missed

WIDTH, LEFT, RIGHT, TOP, STEP, BAR = 900, 330, 90, 64, 40, 16
GOOD, BAD, GRID, INK, MUTED = "#2a7f62", "#c0392b", "#dddddd", "#222222", "#777777"
NICE = (1, 2, 5)


def chart(title: str, rows: Sequence[MeasuredRow]) -> str:
    """Return an SVG in which each row is a bar from 1, where both are equal, to its ratio, on a logarithmic scale."""
    height = TOP + STEP * len(rows) + 24
    scale = Scale([value for row in rows for value in (row["ratio"], row["at_least"] or 1.0)])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        text(16, 26, title, size=17),
        text(16, 46, "times better than the other side; the black mark is the bar to reach", size=12, fill=MUTED),
        *grid(scale, height),
        *(part for number, row in enumerate(rows) for part in bar(row, scale, TOP + 14 + STEP * number)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


class Scale:
    """A logarithmic axis that holds some values and 1."""

    def __init__(self, values: Sequence[float]) -> None:
        held = [1.0, *(value for value in values if value > 0)]
        self._low = min(-1, floor(log10(min(held))))
        self._high = max(1, ceil(log10(max(held))))

    def x(self, value: float) -> float:
        """Return where a value stands, in pixels; what is not positive stands at the left end."""
        place = log10(value) if value > 0 else self._low
        share = (min(max(place, self._low), self._high) - self._low) / (self._high - self._low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def marks(self) -> list[float]:
        """Return the values that get a line of their own."""
        found = [step * 10.0**power for power in range(self._low, self._high) for step in NICE]
        return [*found, 10.0**self._high]


def grid(scale: Scale, height: int) -> Iterator[str]:
    """Yield the lines of the axis with their labels; the one at 1 is drawn darker."""
    for value in scale.marks():
        x, stroke = scale.x(value), MUTED if value == 1 else GRID
        yield f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{height - 22}" stroke="{stroke}"/>'
        yield text(x, height - 6, f"{value:g}", size=11, fill=MUTED, anchor="middle")


def bar(row: MeasuredRow, scale: Scale, y: float) -> Iterator[str]:
    """Yield one row: its name, both sides' figures, the bar, the ratio and the mark to reach."""
    one, end = scale.x(1.0), scale.x(row["ratio"])
    yield text(LEFT - 12, y + 6, row["name"], anchor="end")
    sides = f"{figure(row['ours'])} / {figure(row['theirs'])} {row.get('unit', '')}".strip()
    yield text(LEFT - 12, y + 20, sides, size=10, fill=MUTED, anchor="end")
    colour = BAD if missed(row) else GOOD
    yield f'<rect x="{min(one, end):.1f}" y="{y}" width="{abs(end - one):.1f}" height="{BAR}" fill="{colour}"/>'
    yield text(max(one, end) + 6, y + 13, f"{row['ratio']:.3g}x", fill=INK)
    if row["at_least"] is not None:
        x = scale.x(row["at_least"])
        yield f'<line x1="{x:.1f}" y1="{y - 3}" x2="{x:.1f}" y2="{y + BAR + 3}" stroke="black" stroke-width="2"/>'


def text(x: float, y: float, content: str, *, size: int = 13, fill: str = INK, anchor: str = "start") -> str:
    """Return one SVG text element with its content escaped."""
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}"'
    return f"<text {place}>{escape(content)}</text>"

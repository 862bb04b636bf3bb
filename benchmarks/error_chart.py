"""Draw measured error rates of filters with what theory says, as an SVG."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from benchmarks.chart import BAR, GOOD, INK, LEFT, MUTED, STEP, TOP, WIDTH, Scale, grid, text


class ErrorRate(NamedTuple):
    """What was measured of one kind of filter at some times its capacity."""

    kind: str
    times: float
    measured: float
    theory: float


def error_chart(title: str, found: Sequence[ErrorRate]) -> str:
    """Return an SVG: a bar for each rate, in millionths, on a logarithmic scale, and a mark where theory has it."""
    height = TOP + STEP * len(found) + 24
    scale = Scale([1e6 * value for each in found for value in (each.measured, each.theory)])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        text(16, 26, title, size=17),
        text(16, 46, "of a million, measured; the black mark is what theory says", size=12, fill=MUTED),
        *grid(scale, height),
        *(part for number, each in enumerate(found) for part in rate(each, scale, TOP + 14 + STEP * number)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def rate(each: ErrorRate, scale: Scale, y: float) -> Iterator[str]:
    """Yield one row: its name, the bar of what was measured, and the mark of theory."""
    begin, end, mark = scale.x(0), scale.x(1e6 * each.measured), scale.x(1e6 * each.theory)
    yield text(LEFT - 12, y + 12, f"{each.kind}, {each.times:g}x its capacity", anchor="end")
    yield f'<rect x="{begin:.1f}" y="{y}" width="{max(end - begin, 0):.1f}" height="{BAR}" fill="{GOOD}"/>'
    yield f'<line x1="{mark:.1f}" y1="{y - 3}" x2="{mark:.1f}" y2="{y + BAR + 3}" stroke="black" stroke-width="2"/>'
    yield text(max(end, mark) + 6, y + 13, f"{1e6 * each.measured:.3g}", fill=INK)

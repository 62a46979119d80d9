"""The plot of a study.

usage: python -m bench.simulation.plot STUDY.json > cores.svg

The same study gives the same bytes.
"""

import dataclasses
import math
import pathlib
import sys
from collections.abc import Iterator, Sequence

from bench.drawing import STYLE, text
from bench.simulation.curves import SHARDS, WRITERS, Outcome
from bench.simulation.study import Study

WIDTH, HEIGHT, MARGIN = 860, 392, 28
PANEL_WIDTH, PANEL_HEIGHT = 360, 210
TOP = 104
COLOURS = dict(zip(SHARDS, ("one", "four", "sixteen"), strict=True))
PANELS = ((0, "Writers alone"), (1, "Beside one learner that samples and updates"))


@dataclasses.dataclass(frozen=True)
class Axes:
    """Where a panel is, and what its height stands for."""

    left: float
    most: float  # inserts a second

    def x(self, writers: int) -> float:
        return self.left + PANEL_WIDTH * math.log2(writers) / math.log2(WRITERS[-1])

    def y(self, inserts_per_s: float) -> float:
        return TOP + PANEL_HEIGHT * (1 - inserts_per_s / self.most)


def plot(found: Study) -> str:
    """Returns the SVG."""
    everything = [*found.one_socket, *found.two_sockets]
    most = 2e6 * math.ceil(max(outcome.inserts_per_s for outcome in everything) / 2e6)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="title">',
        '<title id="title">Simulated inserts a second of 1 to 256 writers, with 1, 4 and 16 shards</title>',
        f"<style>{STYLE}</style>",
        f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8"/>',
        text(MARGIN, 36, "Simulated: inserts a second by number of writers, a core for each process", "head"),
        text(MARGIN, 58, "Lines: one socket. Dashes: two sockets, where a cache line takes twice as long.", "note"),
    ]
    for i, (learners, title) in enumerate(PANELS):
        parts += _panel(found, learners, title, Axes(MARGIN + 42 + i * (PANEL_WIDTH + 62), most))
    costs = f"Costs of {found.machine['processor']}, {found.machine['cores']} cores"
    return "\n".join([*parts, text(MARGIN, HEIGHT - 16, costs, "note"), "</svg>"]) + "\n"


def _panel(found: Study, learners: int, title: str, axes: Axes) -> Iterator[str]:
    yield text(axes.left, TOP - 14, title, "name")
    for millions in range(0, round(axes.most / 1e6) + 1, max(2, 2 * round(axes.most / 1e7))):
        y = axes.y(1e6 * millions)
        yield f'<line class="axis" x1="{axes.left}" y1="{y:.1f}" x2="{axes.left + PANEL_WIDTH}" y2="{y:.1f}"/>'
        yield text(axes.left - 6, round(y + 4, 1), f"{millions} M", "note", 'text-anchor="end"')
    for writers in WRITERS:
        yield text(axes.x(writers), TOP + PANEL_HEIGHT + 18, str(writers), "note", 'text-anchor="middle"')
    for shards, colour in COLOURS.items():
        yield _line(_curve(found.two_sockets, learners, shards), axes, f"line apart {colour}")
        curve = _curve(found.one_socket, learners, shards)
        yield _line(curve, axes, f"line {colour}")
        where = max(curve, key=lambda outcome: outcome.crowd.writers)
        label = f"{shards} shard{'s' if shards > 1 else ''}"
        x, y = axes.x(where.crowd.writers), axes.y(where.inserts_per_s)
        yield text(round(x, 1), round(y - 6, 1), label, "note", 'text-anchor="end"')


def _curve(outcomes: Sequence[Outcome], learners: int, shards: int) -> list[Outcome]:
    return [o for o in outcomes if o.crowd.learners == learners and o.crowd.shards == shards]


def _line(curve: Sequence[Outcome], axes: Axes, kind: str) -> str:
    points = " ".join(f"{axes.x(o.crowd.writers):.1f},{axes.y(o.inserts_per_s):.1f}" for o in curve)
    return f'<polyline class="{kind}" points="{points}"/>'


if __name__ == "__main__":
    print(plot(Study.from_json(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))), end="")

"""The chart in README.md, drawn from a report.

usage: python -m bench.chart bench/RESULTS.json > docs/images/results.svg

The same report gives the same bytes. The chart has a background of its own, so it is readable on a light page and on a
dark one; it follows the colours that the reader's browser prefers.
"""

import dataclasses
import pathlib
import sys
from collections.abc import Iterator

from bench.answer import Answer, Row
from bench.drawing import STYLE, text
from bench.metric import Metric
from bench.report import Report, quantity

PEERS = {"cpprb": "cpprb", "reverb": "Reverb", "torchrl": "TorchRL"}

WIDTH, MARGIN, GAP = 860, 28, 40
PANEL_WIDTH = (WIDTH - 2 * MARGIN - GAP) // 2
NAME_WIDTH, VALUE_WIDTH = 86, 74
BAR, PITCH = 16, 25  # height of a bar, and from one bar to the next
TOP, PANEL_TOP = 76, 52  # above the first panel, and from a panel's top to its first bar


@dataclasses.dataclass(frozen=True)
class Panel:
    """Bars of one metric.

    Attributes:
        title: what is compared.
        answer: name of the workload in the report.
        metric: which of its metrics.
    """

    title: str
    answer: str
    metric: str


PANELS = (
    Panel("Insert one step of 400 B", "insert_step_uniform_400B", "a call"),
    Panel("Sample 256 of 100,000 items by priority", "sample_prioritised_100k_400B", "a call"),
    Panel("Update 256 priorities of 100,000", "update_priorities_100k", "a call"),
    Panel("4 actors insert while a learner samples", "mixed", "inserts a second"),
)


def chart(report: Report) -> str:
    """Returns the SVG. Raises ValueError if the report lacks the workload of a panel."""
    rows = [PANELS[i : i + 2] for i in range(0, len(PANELS), 2)]
    heights = [max(_height(len(_bars(report, panel))) for panel in row) for row in rows]
    height = TOP + sum(heights) + 36
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="title">',
        '<title id="title">shmreplay beside cpprb, Reverb and TorchRL: time of calls, and inserts a second</title>',
        f"<style>{STYLE}</style>",
        f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
        text(MARGIN, 36, "shmreplay beside cpprb, Reverb and TorchRL", "head"),
        text(MARGIN, 56, _machine(report), "note"),
    ]
    top = TOP
    for row, row_height in zip(rows, heights, strict=True):
        for column, panel in enumerate(row):
            parts += _panel(report, panel, MARGIN + column * (PANEL_WIDTH + GAP), top)
        top += row_height
    note = "Medians of one run. Every number, the limits of the machine and where others win: bench/RESULTS.md"
    parts += [text(MARGIN, height - 18, note, "note"), "</svg>"]
    return "\n".join(parts) + "\n"


def _machine(report: Report) -> str:
    facts = report.machine
    versions = ", ".join(f"{shown} {report.peers[peer]}" for peer, shown in PEERS.items() if peer in report.peers)
    return f"{facts['processor']}, {facts['cores']} cores, shmreplay at commit {facts['commit'][:7]}; {versions}"


def _height(num_bars: int) -> int:
    return PANEL_TOP + num_bars * PITCH + 18


def _bars(report: Report, panel: Panel) -> list[tuple[str, Row]]:
    """Our row, then the best row of each peer that was measured."""
    answer = _answer(report, panel)
    found = [("shmreplay", answer.ours)]
    for peer, shown in PEERS.items():
        rows = [row for row in answer.rows if row.kind == "peer" and row.name.startswith(f"{peer} ")]
        if rows:
            found.append((shown, _best(rows, _metric(answer, panel))))
    return found


def _answer(report: Report, panel: Panel) -> Answer:
    if (answer := report.answer(panel.answer)) is None:
        raise ValueError(f"the report has no answer {panel.answer}, of which the chart has a panel; run it with --add")
    return answer


def _metric(answer: Answer, panel: Panel) -> Metric:
    return next(metric for metric in answer.metrics if metric.name == panel.metric)


def _best(rows: list[Row], metric: Metric) -> Row:
    pick = min if metric.better == "less" else max
    return pick(rows, key=lambda row: row.values[metric.name].median)


def _panel(report: Report, panel: Panel, left: int, top: int) -> Iterator[str]:
    metric = _metric(_answer(report, panel), panel)
    what = "time of a call: shorter is better" if metric.better == "less" else f"{metric.name}: longer is better"
    yield text(left, top + 20, panel.title, "name")
    yield text(left, top + 38, what, "note")
    bars = _bars(report, panel)
    first, foot = top + PANEL_TOP, top + PANEL_TOP + len(bars) * PITCH - (PITCH - BAR)
    axis = left + NAME_WIDTH
    yield f'<line class="axis" x1="{axis}" y1="{first - 4}" x2="{axis}" y2="{foot + 4}"/>'
    longest = max(row.values[metric.name].median for _, row in bars)
    for i, (name, row) in enumerate(bars):
        value = row.values[metric.name].median
        width = max((PANEL_WIDTH - NAME_WIDTH - VALUE_WIDTH) * value / longest, 2)
        y = first + i * PITCH
        kind, own = ("ours", "own") if row.kind == "ours" else ("other", "")
        yield f'<rect class="{kind}" x="{axis}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2"/>'
        yield text(axis - 8, y + 13, name, own, 'text-anchor="end"')
        yield text(axis + width + 7, y + 13, quantity(value, metric), own)


if __name__ == "__main__":
    try:
        drawn = chart(Report.from_json(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")))
    except ValueError as error:
        sys.exit(f"bench.chart: {error}")
    print(drawn, end="")

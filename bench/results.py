"""RESULTS.md: a run as a page for the repository.

usage: python -m bench.results REPORT.json > bench/RESULTS.md
"""

import pathlib
import sys
from collections.abc import Iterator

from bench.answer import Answer, Row, label
from bench.gpu.finding import Run
from bench.report import Report, an_item, quantity, ratio
from bench.targets import TARGETS

GPU = pathlib.Path(__file__).with_name("GPU.json")
RIVALS = ("np.take",)  # limits that a learner could use instead of shmreplay, with its own arrays


def page(report: Report) -> str:
    return "\n".join([*head(report), *losses(report), *targets(report), *tables(report), *on_gpu()])


def head(report: Report) -> Iterator[str]:
    size = report.size
    yield "# Results"
    yield ""
    yield "Written by `python -m bench.results` from `RESULTS.json`, which has every number of the run. The run:"
    yield f"`{report.command}`."
    yield ""
    yield from [report.note, ""] if report.note else []
    timed = size.slices - size.slices // 2
    slices = f"{timed} slices of {size.slice_s * 1e3:g} ms"
    yield f"For calls, each limit and peer was measured {size.repeats} times, each time beside a repeat of ours. A"
    yield f"repeat is {slices}, after as many for warming up. Slices during which the kernel gave the core"
    yield f"to another task are left out. Processes were watched {size.rounds} times, all in turn. *ours / this* is the"
    yield "ratio within the pairs. Numbers are medians, with the least and the most in brackets. A limit does a part of"
    yield "the work. Peers keep their memory (`MALLOC_TOP_PAD_`, `MALLOC_MMAP_THRESHOLD_`), except where a row says"
    yield "malloc's defaults."
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield from (f"| {name} | {value} |" for name, value in report.machine.items())
    yield from (f"| peer: {name} | {value} |" for name, value in report.peers.items())
    yield ""
    yield from (f"Left out: {text}." for text in report.left_out)
    yield from [""] if report.left_out else []


def losses(report: Report) -> Iterator[str]:
    """Lines about where another way is faster than ours."""
    yield "## Where we lose"
    yield ""
    lost = [text for answer in report.answers for text in lost_by(answer)]
    yield from lost or ["Nowhere, in this run."]
    yield ""


def lost_by(answer: Answer) -> Iterator[str]:
    for row in answer.rows[1:]:
        for metric in answer.metrics:
            if is_rival(row) and row.ours_over_this:
                s = row.ours_over_this[metric.name]
                if s.median > 1 if metric.better == "less" else s.median < 1:
                    yield f"- **{answer.name}**, {metric.name}: {row.name}; ours / this {ratio(s)}."


def is_rival(row: Row) -> bool:
    return row.kind == "peer" or row.name.startswith(RIVALS)


def targets(report: Report) -> Iterator[str]:
    """Lines about the targets; missed targets come first."""
    yield "## Targets"
    yield ""
    yield "| | target | reached | |"
    yield "|---|---|---|---|"
    found = [(target, target.reached(report)) for target in TARGETS]
    for verdict in ("missed", "met", "not measured"):
        for target, reached in found:
            if target.verdict(reached) == verdict:
                yield f"| {target.what} | {target.wanted} | {reached.text if reached else ''} | {verdict} |"
    yield ""


def tables(report: Report) -> Iterator[str]:
    for answer in report.answers:
        yield f"## {answer.name}"
        yield ""
        yield f"{answer.number}. {answer.question}" if answer.number else answer.question
        yield ""
        yield "| |" + "".join(f" {metric.name} | ours / this |" for metric in answer.metrics)
        yield "|---|" + "---|---|" * len(answer.metrics)
        for row in answer.rows:
            yield f"| {label(row)} |" + "".join(cells(answer, row))
        yield ""
        if answer.items_per_call > 1:
            yield from (f"Ours: {an_item(answer)}.", "")
        yield from (f"Left out: {text}." for text in answer.left_out)
        yield from [""] if answer.left_out else []


def on_gpu() -> Iterator[str]:
    """Lines about the run of `python -m bench.gpu` in the repository, which is not part of the report's run."""
    yield "## On a GPU"
    yield ""
    if GPU.exists():
        yield from Run.from_json(GPU.read_text(encoding="utf-8")).lines()
    else:
        yield "Not measured: `python -m bench.gpu --json bench/GPU.json` has not been run on a machine with a GPU yet."
    yield ""


def cells(answer: Answer, row: Row) -> Iterator[str]:
    for metric in answer.metrics:
        s = row.values[metric.name]
        texts = [quantity(value, metric) for value in (s.median, s.min, s.max)]
        yield f" {texts[0]} ({texts[1]} to {texts[2]}) | {ratio(row.ours_over_this.get(metric.name))} |"


if __name__ == "__main__":
    print(page(Report.from_json(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))), end="")

"""RESULTS.md: a run as a page for the repository.

usage: python -m bench.results REPORT.json > bench/RESULTS.md
"""

import pathlib
import sys
from collections.abc import Iterator

from bench.measure import Answer
from bench.report import Report, duration, label, ratio, verdict

RIVALS = ("np.take",)  # limits that a learner could call instead of us, with arrays of its own


def page(report: Report) -> str:
    return "\n".join([*head(report), *misses(report), *tables(report)])


def head(report: Report) -> Iterator[str]:
    size = report.size
    yield "# Results"
    yield ""
    yield "Written by `python -m bench.results` from a run's JSON, all of whose numbers are in `RESULTS.json`. The run:"
    yield f"`{report.command}`."
    yield ""
    yield from [report.note, ""] if report.note else []
    timed = size.slices - size.slices // 2
    slices = f"{timed} slices of {size.slice_s * 1e3:g} ms"
    yield f"Each limit was measured {size.repeats} times, each time beside a repeat of ours. A repeat is {slices}"
    yield "behind as many for warming up; slices during which the kernel gave the core to another task are left out."
    yield "*ours / this* is the ratio within the pairs. Medians, with the least and the most in brackets. A limit does"
    yield "a part of the work; a ratio above 1 is what the rest costs."
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield from (f"| {name} | {value} |" for name, value in report.machine.items())
    yield ""


def misses(report: Report) -> Iterator[str]:
    """What is not as fast as it was meant to be, and the limits that do the same copying in less time."""
    yield "## Where we miss what was meant, or lose"
    yield ""
    yield from (f"- **{a.name}**: {verdict(a)}." for a in report.answers if is_missed(a))
    for answer in report.answers:
        for row in answer.rows[1:]:
            assert row.ours_over_this is not None
            if row.ours_over_this.median > 1 and (row.kind == "peer" or row.name.startswith(RIVALS)):
                yield f"- **{answer.name}**: {row.name} takes less time; ours / this {ratio(row.ours_over_this)}."
    yield ""
    if met := [a.name for a in report.answers if a.orientation_ns is not None and not is_missed(a)]:
        yield f"Met: {', '.join(met)}."
        yield ""


def is_missed(answer: Answer) -> bool:
    return answer.orientation_ns is not None and answer.rows[0].ns_per_call.median >= answer.orientation_ns


def tables(report: Report) -> Iterator[str]:
    for answer in report.answers:
        yield f"## {answer.name}"
        yield ""
        yield answer.question
        yield ""
        yield "| | a call | ours / this |"
        yield "|---|---|---|"
        for row in answer.rows:
            s = row.ns_per_call
            took = f"{duration(s.median)} ({duration(s.min)} to {duration(s.max)})"
            yield f"| {label(row)} | {took} | {ratio(row.ours_over_this)} |"
        yield ""
        yield f"{verdict(answer)[0].upper()}{verdict(answer)[1:]}."
        yield ""


if __name__ == "__main__":
    print(page(Report.from_json(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))), end="")

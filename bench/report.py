"""Report: all answers of a run and the facts about its machine, as JSON and as text for a terminal."""

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any

from bench.answer import Answer, Row, Summary, label
from bench.metric import Metric
from bench.size import Size

FORMAT = 2


@dataclasses.dataclass(frozen=True)
class Report:
    """A run.

    Attributes:
        command: the command that repeats it.
        note: a remark of the person who ran it.
        size: the size of the run.
        machine: facts about the machine, by name.
        peers: versions of the peers, by name.
        left_out: workloads that were not measured, and why.
    """

    command: str
    note: str
    size: Size
    machine: dict[str, str]
    peers: dict[str, str]
    left_out: tuple[str, ...]
    answers: tuple[Answer, ...]

    def to_json(self) -> str:
        """JSON of every number of the run, also of each repeat; times in nanoseconds."""
        text = json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=1)
        return re.sub(r"\[[-+.e\d\s,]*\]", lambda numbers: " ".join(numbers[0].split()), text) + "\n"  # a list a line

    @classmethod
    def from_json(cls, text: str) -> "Report":
        """Reads a report. Raises ValueError if it has another format."""
        fields = json.loads(text)
        if (found := fields.pop("format")) != FORMAT:
            raise ValueError(f"the report is of format {found}; expected {FORMAT}")
        answers = tuple(_answer(answer) for answer in fields.pop("answers"))
        return cls(**{**fields, "size": Size(**fields["size"]), "left_out": tuple(fields["left_out"])}, answers=answers)

    def again(self, run: "Report") -> "Report":
        """Returns another run's report that begins with this one's answers.

        Raises:
            ValueError: the two runs are of different commits or sizes.
        """
        for what, mine, its in (
            ("commit", self.machine["commit"], run.machine["commit"]),
            ("size", self.size.name, run.size.name),
        ):
            if mine != its:
                raise ValueError(f"the report is of {what} {mine}, this run of {its}; expected one {what}: begin anew")
        commands = self.command if run.command in self.command.split("; ") else f"{self.command}; {run.command}"
        peers, note = self.peers | run.peers, run.note or self.note
        return dataclasses.replace(run, command=commands, note=note, peers=peers, answers=self.answers)

    def with_answer(self, answer: Answer, facts: dict[str, str]) -> "Report":
        """Returns the report with one more answer, which replaces one of the same name, and with these facts."""
        others = tuple(other for other in self.answers if other.name != answer.name)
        return dataclasses.replace(self, machine=self.machine | facts, answers=(*others, answer))

    def without(self, why: str) -> "Report":
        """Returns the report with the reason why one more workload was left out."""
        return dataclasses.replace(self, left_out=(*self.left_out, why))

    def answer(self, name: str) -> Answer | None:
        return next((answer for answer in self.answers if answer.name == name), None)


def _answer(fields: dict[str, Any]) -> Answer:
    rows = tuple(
        Row(**{**row, "values": _summaries(row["values"]), "ours_over_this": _summaries(row["ours_over_this"])})
        for row in fields["rows"]
    )
    metrics = tuple(Metric(**metric) for metric in fields["metrics"])
    return Answer(**{**fields, "rows": rows, "metrics": metrics, "left_out": tuple(fields["left_out"])})


def _summaries(fields: dict[str, Any]) -> dict[str, Summary]:
    return {name: Summary(**{**summary, "all": tuple(summary["all"])}) for name, summary in fields.items()}


# --- for readers -----------------------------------------------------------------------------------------------------


def lines(answer: Answer) -> Iterator[str]:
    """The lines of an answer for a terminal."""
    yield f"{answer.number} {answer.name}: {answer.question}".lstrip()
    width = max(len(label(row)) for row in answer.rows)
    for metric in answer.metrics:
        yield f"  {'':{width}} {metric.name:>9} {'min':>9} {'max':>9}   ours / this, pair by pair"
        for row in answer.rows:
            s = row.values[metric.name]
            values = " ".join(f"{quantity(value, metric):>9}" for value in (s.median, s.min, s.max))
            yield f"  {label(row):{width}} {values}   {ratio(row.ours_over_this.get(metric.name))}".rstrip()
    if answer.items_per_call > 1:
        yield f"  ours: {an_item(answer)}"
    yield from (f"  left out: {text}" for text in answer.left_out)


def an_item(answer: Answer) -> str:
    metric = answer.metrics[0]
    return f"{quantity(answer.ours.values[metric.name].median / answer.items_per_call, metric)} an item"


def quantity(value: float, metric: Metric) -> str:
    """A value with three digits and its unit."""
    if metric.unit == "ns":
        return duration(value)
    if metric.unit == "s":
        return duration(value * 1e9)
    return scaled(value, {"/s": ("/s", "k/s", "M/s", "G/s"), "bytes": ("B", "kB", "MB", "GB")}.get(metric.unit))


def scaled(value: float, units: tuple[str, ...] | None) -> str:
    if units is None:
        return number(value)
    for unit in units[:-1]:
        if value < 999.5:
            return f"{number(value)} {unit}"
        value /= 1e3
    return f"{number(value)} {units[-1]}"


def ratio(summary: Summary | None) -> str:
    """Median and range of a ratio, as text."""
    if summary is None:
        return ""
    return f"{number(summary.median)} ({number(summary.min)} to {number(summary.max)})"


def duration(ns: float) -> str:
    """Nanoseconds with a unit, three digits."""
    for unit, size in (("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)):
        if ns < 999.5 * size or unit == "s":
            return f"{number(ns / size)} {unit}"
    raise AssertionError


def number(value: float) -> str:
    """A number with three digits."""
    if value and abs(value) < 0.0995:
        return f"{value:.2g}"
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"

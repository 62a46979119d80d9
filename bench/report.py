"""Report: all answers of a run with what they were measured on, as JSON and for a terminal."""

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any

from bench.measure import Answer, Row, Summary
from bench.size import Size

FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Report:
    """A run.

    Attributes:
        command: that does it again.
        note: what whoever ran it has to say of it.
        size: of the run.
        machine: facts by name.
    """

    command: str
    note: str
    size: Size
    machine: dict[str, str]
    answers: tuple[Answer, ...]

    def to_json(self) -> str:
        """Every number of the run, each repeat's too; times in nanoseconds a call."""
        text = json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=1)
        return re.sub(r"\[[-+.e\d\s,]*\]", lambda numbers: " ".join(numbers[0].split()), text) + "\n"  # a list a line

    @classmethod
    def from_json(cls, text: str) -> "Report":
        """Raises ValueError for another format."""
        fields = json.loads(text)
        if (found := fields.pop("format")) != FORMAT:
            raise ValueError(f"the report is of format {found}; expected {FORMAT}")
        answers = tuple(_answer(answer) for answer in fields.pop("answers"))
        return cls(**{**fields, "size": Size(**fields["size"])}, answers=answers)


def _answer(fields: dict[str, Any]) -> Answer:
    rows = tuple(
        Row(**{**row, "ns_per_call": _summary(row["ns_per_call"]), "ours_over_this": _summary(row["ours_over_this"])})
        for row in fields["rows"]
    )
    return Answer(**{**fields, "rows": rows})


def _summary(fields: dict[str, Any] | None) -> Any:
    return None if fields is None else Summary(**{**fields, "all": tuple(fields["all"])})


# --- for readers -----------------------------------------------------------------------------------------------------


def lines(answer: Answer) -> Iterator[str]:
    """An answer for a terminal."""
    yield answer.question
    width = max(len(label(row)) for row in answer.rows)
    yield f"  {'':{width}} {'a call':>9} {'min':>9} {'max':>9}   ours / this, pair by pair"
    for row in answer.rows:
        s = row.ns_per_call
        times = " ".join(f"{duration(ns):>9}" for ns in (s.median, s.min, s.max))
        yield f"  {label(row):{width}} {times}   {ratio(row.ours_over_this)}".rstrip()
    yield f"  {verdict(answer)}"


def label(row: Row) -> str:
    return f"shmreplay {row.name}" if row.kind == "ours" else f"{row.kind}: {row.name}"


def verdict(answer: Answer) -> str:
    """Our time an item, and whether a call stays below what it was meant to."""
    ours = answer.rows[0].ns_per_call.median
    text = f"ours: {duration(ours)} a call"
    if answer.items_per_call > 1:
        text += f", {duration(ours / answer.items_per_call)} an item"
    if answer.orientation_ns is None:
        return text
    met = "met" if ours < answer.orientation_ns else f"missed by a factor of {ours / answer.orientation_ns:.2f}"
    return f"{text}; meant to be below {wanted(answer)}: {met}"


def wanted(answer: Answer) -> str:
    """The orientation number, as it was given: of a batch that goes in, an item."""
    assert answer.orientation_ns is not None
    if answer.name.startswith("insert_batch"):
        return f"{duration(answer.orientation_ns / answer.items_per_call)} an item"
    return f"{duration(answer.orientation_ns)} a call"


def ratio(summary: Summary | None) -> str:
    """Median and range of a ratio."""
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
    """Three digits."""
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"

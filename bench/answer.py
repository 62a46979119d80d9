"""Answer: what was measured for one workload."""

import dataclasses
import statistics
from collections.abc import Sequence

from bench.contender import Kind
from bench.metric import Metric


@dataclasses.dataclass(frozen=True)
class Summary:
    """Repeats of one number."""

    median: float
    min: float
    max: float
    all: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> "Summary":
        values = [float(f"{value:.5g}") for value in values]  # more digits are noise
        return cls(statistics.median(values), min(values), max(values), tuple(values))


@dataclasses.dataclass(frozen=True)
class Row:
    """The measurements of one contender or trial.

    Attributes:
        calls: number of calls in one slice; 0 for a trial.
        values: by metric, one value for each repeat, in order.
        ours_over_this: by metric, our value divided by this one's, one ratio for each pair; empty for ours.
    """

    name: str
    kind: Kind
    calls: int
    values: dict[str, Summary]
    ours_over_this: dict[str, Summary]


@dataclasses.dataclass(frozen=True)
class Answer:
    """A workload and its rows, ours first.

    Attributes:
        disturbed: number of slices left out, because the kernel gave the core to another task meanwhile.
        left_out: contenders that were not measured, and why.
    """

    name: str
    number: str
    question: str
    metrics: tuple[Metric, ...]
    items_per_call: int
    disturbed: int
    left_out: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def ours(self) -> Row:
        return self.rows[0]

    def row(self, part: str) -> Row | None:
        """The first row whose label contains `part`; None if there is none."""
        return next((row for row in self.rows if part in label(row)), None)


def label(row: Row) -> str:
    return f"shmreplay {row.name}" if row.kind == "ours" else f"{row.kind}: {row.name}"

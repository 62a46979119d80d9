"""Workload: a question, and the contenders or trials that answer it."""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence

from bench.contender import Absent, Contender, Trial
from bench.metric import A_CALL, Metric
from bench.size import Size

Opened = contextlib.AbstractContextManager[Sequence[Contender | Trial | Absent]]


@dataclasses.dataclass(frozen=True)
class Workload:
    """One benchmark.

    Attributes:
        name: in the JSON and for `--only`.
        question: for a reader.
        open: sets up and yields contenders or trials, ours first; tears down behind the measurement.
        number: of the list of workloads in README.md, such as "W1"; for `--only` as well.
        metrics: what it is measured by, the one that counts most first.
        items_per_call: items that one call of any contender stands for.
        least_items: of a size that this is asked at; a smaller run does without, unless it is small in everything.
        processes: that writers or clients are; a size that allows fewer does without.
        window_s: how long a trial of a full run is watched; None: as the size has it.
    """

    name: str
    question: str
    open: Callable[[Size], Opened]
    number: str = ""
    metrics: tuple[Metric, ...] = (A_CALL,)
    items_per_call: int = 1
    least_items: int = 0
    processes: int = 0
    window_s: float | None = None

    def is_asked_for(self, only: Sequence[str]) -> bool:
        """Whether `only` has its number or a part of its name; an empty one has all."""
        return not only or any(part in self.name or part == self.number for part in only)

    def fits(self, size: Size) -> bool:
        return size.name == "smoke" or (size.items >= self.least_items and size.processes >= self.processes)

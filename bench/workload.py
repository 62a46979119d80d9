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
        name: its name in the JSON and for `--only`.
        question: the question, in words.
        open: sets up and yields contenders or trials, ours first; tears down after the measurement.
        number: its number in the list of workloads in README.md, such as "W1"; `--only` takes it, too.
        metrics: what is measured, the most important metric first.
        items_per_call: number of items that one call of any contender handles.
        least_items: number of items that it is about; a smaller size leaves it out.
        processes: number of writers or clients; a size that allows fewer processes leaves it out.
        in_quick: whether a quick run has it; False if another workload shows almost the same.
        memory: approximate bytes that it takes, if these are many; a machine with less available leaves it out.
        window_s: how long a trial of a full run is watched; None: as long as the size says.
    """

    name: str
    question: str
    open: Callable[[Size], Opened]
    number: str = ""
    metrics: tuple[Metric, ...] = (A_CALL,)
    items_per_call: int = 1
    least_items: int = 0
    processes: int = 0
    in_quick: bool = True
    memory: int = 0
    window_s: float | None = None

    def is_asked_for(self, only: Sequence[str]) -> bool:
        """Whether `only` has its number or a part of its name. An empty `only` selects all."""
        return not only or any(part in self.name or part == self.number for part in only)

    def why_not(self, available: int) -> str | None:
        """Why it cannot be measured with this many bytes of memory; None if it can."""
        if available >= self.memory:
            return None
        return f"{self.name} needs about {self.memory / 1e9:.0f} GB of memory; {available / 1e9:.1f} GB are available"

    def fits(self, size: Size) -> bool:
        if size.is_quick and not self.in_quick:
            return False
        return size.asks >= self.least_items and size.processes >= self.processes

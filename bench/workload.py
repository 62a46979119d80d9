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
        least_items: that it is about; a size that asks about fewer does without.
        processes: that writers or clients are; a size that allows fewer does without.
        in_quick: whether a quick run asks it: not if another one says almost the same.
        memory: about how many bytes it takes, where that is much; a machine that has less available does without.
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
    in_quick: bool = True
    memory: int = 0
    window_s: float | None = None

    def is_asked_for(self, only: Sequence[str]) -> bool:
        """Whether `only` has its number or a part of its name; an empty one has all."""
        return not only or any(part in self.name or part == self.number for part in only)

    def why_not(self, available: int) -> str | None:
        """Why it cannot be measured with so many bytes of memory; None: it can."""
        if available >= self.memory:
            return None
        return f"{self.name} needs about {self.memory / 1e9:.0f} GB of memory; {available / 1e9:.1f} GB are available"

    def fits(self, size: Size) -> bool:
        if size.is_quick and not self.in_quick:
            return False
        return size.asks >= self.least_items and size.processes >= self.processes

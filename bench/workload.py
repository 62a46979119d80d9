"""Workload: a question, and the contenders that answer it."""

import contextlib
import dataclasses
from collections.abc import Callable

from bench.contender import Contender
from bench.size import Size

Opened = contextlib.AbstractContextManager[list[Contender]]


@dataclasses.dataclass(frozen=True)
class Workload:
    """One benchmark.

    Attributes:
        name: in the JSON and for `--only`.
        question: for a reader; `{items}` stands for the size of the table.
        open: sets up and yields the contenders, ours first; tears down behind the measurement.
        items_per_call: items that one call of any contender stands for.
        orientation_ns: what a call of ours is meant to stay below, in nanoseconds; None: nothing was said.
    """

    name: str
    question: str
    open: Callable[[Size], Opened]
    items_per_call: int = 1
    orientation_ns: float | None = None

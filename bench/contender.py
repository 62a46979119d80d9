"""Contender and Trial: one way to do a piece of work, measured beside others, by calls or over a time."""

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any, Literal

from bench.cores import times_interrupted

Kind = Literal["ours", "limit", "peer"]


@dataclasses.dataclass(frozen=True)
class Contender:
    """One row of a benchmark of calls.

    Attributes:
        name: what it does, in words.
        kind: "ours"; "limit", a part of the work that nobody can leave out; or "peer", another library's way.
        run: run(n) does the work n times and returns the nanoseconds that it took, by a monotonic clock, without the
            preparation. The loop is inside, so that no call of a closure is measured with the work. If the work happens
            in another process or environment, run asks that.
        slice_s: least length of a slice, for a contender that works in background threads. A repeat is then two such
            slices, and other tasks may use the core meanwhile. None: the length that the run's size gives.
        least_calls: least number of calls in a slice, so that work done once at its end, such as a flush, counts
            little.
        interrupted: returns how often the worker was taken off its core involuntarily so far.
    """

    name: str
    kind: Kind
    run: Callable[[int], int]
    slice_s: float | None = None
    least_calls: int = 1
    interrupted: Callable[[], int] = times_interrupted


@dataclasses.dataclass(frozen=True)
class Trial:
    """One row of a benchmark of processes.

    Attributes:
        name, kind: as in `Contender`.
        run: run(seconds) starts processes, watches them for that time, ends them, and returns each metric of the
            workload by its name.
        longest_s: the longest time that it is watched.
    """

    name: str
    kind: Kind
    run: Callable[[float], dict[str, float]]
    longest_s: float = math.inf


def repeated(call: Callable[..., object], *arguments: Any, **options: Any) -> Callable[[int], int]:
    """The `run` of a contender that makes the same call again and again."""

    def run(n: int) -> int:
        start = time.monotonic_ns()
        for _ in range(n):
            call(*arguments, **options)
        return time.monotonic_ns() - start

    return run


class Gone(RuntimeError):
    """A contender has ended while it was measured; the text begins with its name."""


@dataclasses.dataclass(frozen=True)
class Absent:
    """A contender that is not measured; `why` begins with its name."""

    why: str

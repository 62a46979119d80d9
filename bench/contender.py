"""Contender: one way to do a piece of work, to be timed beside others. By calls, or by what happens in a while."""

import dataclasses
import math
from collections.abc import Callable
from typing import Literal

from bench.cores import times_interrupted

Kind = Literal["ours", "limit", "peer"]


@dataclasses.dataclass(frozen=True)
class Contender:
    """One row of a benchmark of calls.

    Attributes:
        name: what it does, for a reader.
        kind: "ours"; "limit" does a part of the work that nobody can leave out; "peer" is another library's way.
        run: run(n) does the work n times and returns the nanoseconds that took by a monotonic clock, without what it
            prepared. It keeps its loop to itself, so that no call of a closure is measured with the work; one whose
            work happens in another process or environment asks there.
        slice_s: how long a slice has to be at least, for one that works in threads of its own behind its caller's
            back: then a repeat is one such slice behind another one, and others may have the core meanwhile. None: as
            the size has it.
        least_calls: of a slice: so many that what comes once at its end, such as a flush, is little beside them.
        interrupted: how often what works had to give up its core before it wanted to, so far.
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
        name, kind: as a contender's.
        run: run(seconds) sets processes to work, watches them for so long, ends them, and returns each metric of the
            workload by its name.
        longest_s: how long it is watched at most.
    """

    name: str
    kind: Kind
    run: Callable[[float], dict[str, float]]
    longest_s: float = math.inf


class Gone(RuntimeError):
    """Who is measured has ended; the text begins with its name."""


@dataclasses.dataclass(frozen=True)
class Absent:
    """One who is not measured; `why` begins with its name."""

    why: str

"""Contender: one way to do a piece of work, to be timed beside others."""

import dataclasses
from collections.abc import Callable
from typing import Literal

Kind = Literal["ours", "limit", "peer"]


@dataclasses.dataclass(frozen=True)
class Contender:
    """One row of a benchmark.

    Attributes:
        name: what it does, for a reader.
        kind: "ours"; "limit" does a part of the work that nobody can leave out; "peer" is another library's way.
        run: run(n) does the work n times and returns the nanoseconds that took by a monotonic clock, without what it
            prepared. It keeps its loop to itself, so that no call of a closure is measured with the work; one whose
            work happens in another process or environment asks there.
    """

    name: str
    kind: Kind
    run: Callable[[int], int]

"""How large a run is."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Size:
    """The size of a run, the same for all its workloads.

    Attributes:
        name: as in the JSON.
        items: in the table; the arrays of the limits are as large.
        repeats: how often each limit or peer is measured, each time paired with one of ours; >= 5.
        repeat_s: about how long one repeat of one contender takes.
    """

    name: str
    items: int
    repeats: int
    repeat_s: float


# Repeats are many and short: one of 2 ms mostly fits between two moments at which the kernel gives the core to another
# task, one of 100 ms on a busy machine measures that task as well.
FULL = Size("full", 1_000_000, 51, 0.002)
QUICK = Size("quick", 100_000, 21, 0.002)
SMOKE = Size("smoke", 2_000, 5, 0.0005)  # that everything runs; its times mean nothing

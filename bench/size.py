"""How large a run is."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Size:
    """The size of a run, the same for all its workloads.

    Attributes:
        name: as in the JSON.
        items: in the table; the arrays of the limits are as large.
        repeats: how often each limit or peer is measured, each time paired with one of ours; >= 5.
        slices: of a repeat; the first half of them is for warming up.
        slice_s: about how long a slice takes.
    """

    name: str
    items: int
    repeats: int
    slices: int
    slice_s: float


# Slices are short: one of 2 ms mostly fits between two moments at which the kernel gives the core to another task. And
# they are many: a table of a million items takes its time to fill the caches with what it needs most.
FULL = Size("full", 1_000_000, 21, 20, 0.002)
QUICK = Size("quick", 100_000, 7, 6, 0.002)
SMOKE = Size("smoke", 2_000, 5, 2, 0.0005)  # that everything runs; its times mean nothing

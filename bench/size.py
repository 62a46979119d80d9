"""How large a run is."""

import dataclasses

LEAST_REPEATS = 5


@dataclasses.dataclass(frozen=True)
class Size:
    """The size of a run, the same for all its workloads.

    Attributes:
        name: as in the JSON.
        asks: the most items that a question is about.
        items: the most in a table of 400 B, whatever the question is about; the arrays of the limits are as large.
        repeats: how often each limit or peer is measured, each time paired with one of ours; >= LEAST_REPEATS.
        slices: of a repeat; the first half of them is for warming up.
        slice_s: about how long a slice takes.
        rounds: the same as repeats, of trials.
        window_s: how long a trial is watched, where the workload does not say.
        processes: the most at once.
        arena_bytes: of the largest arena that is attached.
    """

    name: str
    asks: int
    items: int
    repeats: int
    slices: int
    slice_s: float
    rounds: int
    window_s: float
    processes: int
    arena_bytes: int

    @property
    def is_quick(self) -> bool:
        """Whether it does without what costs time and says little."""
        return self.name == "quick"

    def repeated(self, repeats: int) -> "Size":
        """The same with so many repeats, and no more rounds than that."""
        return dataclasses.replace(self, repeats=repeats, rounds=min(self.rounds, repeats))

    def window(self, seconds: float) -> float:
        """How long a trial is watched that needs `seconds` to be believed: all of it in a full run only."""
        return seconds if self.name == "full" else min(seconds, self.window_s)


# Slices are short: one of 2 ms mostly fits between two moments at which the kernel gives the core to another task. And
# they are many: a table of a million items takes its time to fill the caches with what it needs most.
FULL = Size("full", 10_000_000, 10_000_000, 21, 20, 0.002, 5, 3.0, 512, 10 * 10**9)
QUICK = Size("quick", 100_000, 100_000, 5, 6, 0.002, 3, 0.4, 16, 100 * 10**6)
SMOKE = Size("smoke", 100_000, 2_000, 5, 2, 0.0005, 1, 0.05, 2, 10**6)  # that everything runs; its times mean nothing

"""Size: how large a run is."""

import dataclasses

LEAST_REPEATS = 5


@dataclasses.dataclass(frozen=True)
class Size:
    """The size of a run, the same for all its workloads.

    Attributes:
        name: its name in the JSON.
        asks: largest number of items that a question may be about.
        items: largest number of items in a table of steps of 400 B, whatever the question is about. The arrays of the
            limits have the same size.
        repeats: how often each limit or peer is measured, each time paired with ours; >= LEAST_REPEATS.
        slices: number of slices in a repeat; the first half warms up.
        slice_s: approximate length of a slice.
        rounds: how often each trial is run.
        window_s: how long a trial is watched, unless the workload says otherwise.
        processes: largest number of processes at once.
        arena_bytes: size of the largest arena that processes attach to.
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
        """Whether it leaves out workloads that take long and add little."""
        return self.name == "quick"

    def repeated(self, repeats: int) -> "Size":
        """Returns the size with this many repeats, and at most as many rounds."""
        return dataclasses.replace(self, repeats=repeats, rounds=min(self.rounds, repeats))

    def window(self, seconds: float) -> float:
        """How long to watch a trial that needs `seconds` for a reliable result: that long only in a full run."""
        return seconds if self.name == "full" else min(seconds, self.window_s)


# Slices are short, because one of 2 ms usually fits between two moments at which the kernel gives the core to another
# task. There are many, because a table of a million items needs time to fill the caches.
FULL = Size("full", 10_000_000, 10_000_000, 21, 20, 0.002, 5, 3.0, 512, 10 * 10**9)
QUICK = Size("quick", 100_000, 100_000, 5, 6, 0.002, 3, 0.4, 16, 100 * 10**6)
SMOKE = Size("smoke", 100_000, 2_000, 5, 2, 0.0005, 1, 0.05, 2, 10**6)  # only shows that all runs; ignore its times

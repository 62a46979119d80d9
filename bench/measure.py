"""Timing: contenders in turn, ours beside each of the others, ratios pair by pair."""

import contextlib
import dataclasses
import gc
import resource
import statistics
from collections.abc import Iterator, Sequence

from bench.contender import Contender, Kind
from bench.size import Size
from bench.workload import Workload

MAX_GROWTH = 16  # of the number of calls between two looks, while it is being found


@dataclasses.dataclass(frozen=True)
class Summary:
    """Repeats of one number."""

    median: float
    min: float
    max: float
    all: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> "Summary":
        values = [float(f"{value:.5g}") for value in values]  # more digits are noise
        return cls(statistics.median(values), min(values), max(values), tuple(values))


@dataclasses.dataclass(frozen=True)
class Row:
    """What was measured of one contender.

    Attributes:
        calls: in one slice.
        ns_per_call: one value a repeat, in order.
        ours_over_this: the time of ours divided by this one's, one value a pair; None for ours.
    """

    name: str
    kind: Kind
    calls: int
    ns_per_call: Summary
    ours_over_this: Summary | None


@dataclasses.dataclass(frozen=True)
class Answer:
    """A workload and its rows, ours first.

    Attributes:
        disturbed: slices that were left out since the kernel gave the core to another task meanwhile.
    """

    name: str
    question: str
    items_per_call: int
    orientation_ns: float | None
    disturbed: int
    rows: tuple[Row, ...]


def measure(workload: Workload, size: Size, contenders: Sequence[Contender]) -> Answer:
    """Times the contenders, ours first among them, and pairs each other one with a repeat of ours beside it.

    A pair is two repeats in direct succession, ours first in every second one, so that what else the machine does
    meets both alike. So ours has as many repeats as all others together.
    """
    ours, *others = contenders
    with no_garbage_collection():
        calls = {c.name: find_calls(c, size.slice_s) for c in contenders}
        mine: list[float] = []
        theirs: dict[str, list[float]] = {c.name: [] for c in others}
        ratios: dict[str, list[float]] = {c.name: [] for c in others}
        disturbed = 0
        for repeat in range(size.repeats):
            for other in others:
                took = {}
                for c in (ours, other) if repeat % 2 == 0 else (other, ours):
                    took[c.name], left_out = measure_once(c, calls[c.name], size)
                    disturbed += left_out
                mine.append(took[ours.name])
                theirs[other.name].append(took[other.name])
                ratios[other.name].append(took[ours.name] / took[other.name])
    rows = [Row(ours.name, ours.kind, calls[ours.name], Summary.of(mine), None)]
    rows += [Row(c.name, c.kind, calls[c.name], Summary.of(theirs[c.name]), Summary.of(ratios[c.name])) for c in others]
    question = workload.question.format(items=f"{size.items:,}")
    return Answer(workload.name, question, workload.items_per_call, workload.orientation_ns, disturbed, tuple(rows))


def measure_once(contender: Contender, calls: int, size: Size) -> tuple[float, int]:
    """One repeat: nanoseconds a call, and how many of its slices were left out since something came between.

    If something came between in every slice, they count all the same.
    """
    for _ in range(size.slices // 2):
        contender.run(calls)
    calm: list[int] = []
    disturbed: list[int] = []
    for _ in range(size.slices - size.slices // 2):
        before = times_interrupted()
        took = contender.run(calls)
        (calm if times_interrupted() == before else disturbed).append(took)
    return statistics.fmean(calm or disturbed) / calls, len(disturbed)


def times_interrupted() -> int:
    """How often this thread had to give up its core before it wanted to."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


def find_calls(contender: Contender, slice_s: float) -> int:
    """How many calls take about `slice_s`."""
    wanted_ns = slice_s * 1e9
    calls, took = 1, max(contender.run(1), 1)
    while took < wanted_ns / 2:
        calls = max(calls + 1, int(calls * min(wanted_ns / took, MAX_GROWTH)))
        took = max(contender.run(calls), 1)
    return max(1, round(calls * wanted_ns / took))


@contextlib.contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Collections of the interpreter's cycles come when they like and would meet one repeat and not the other."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()

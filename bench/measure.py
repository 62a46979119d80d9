"""Measures contenders in turn, ours beside each of the others, with a ratio for each pair."""

import contextlib
import dataclasses
import gc
import math
import statistics
from collections.abc import Iterator, Sequence

from bench.answer import Answer, Row, Summary
from bench.contender import Absent, Contender, Gone, Trial
from bench.metric import A_CALL, Metric
from bench.size import Size
from bench.workload import Workload

MAX_GROWTH = 16  # largest factor from one guess of the number of calls to the next


@dataclasses.dataclass
class Series:
    """The measurements of one contender, repeat by repeat."""

    contender: Contender | Trial
    calls: int
    values: list[dict[str, float]] = dataclasses.field(default_factory=list)
    ratios: list[dict[str, float]] = dataclasses.field(default_factory=list)

    def row(self, metrics: Sequence[Metric]) -> Row:
        values = {m.name: Summary.of([value[m.name] for value in self.values]) for m in metrics}
        ratios = {m.name: Summary.of([ratio[m.name] for ratio in self.ratios]) for m in metrics if self.ratios}
        return Row(self.contender.name, self.contender.kind, self.calls, values, ratios)


def measure(workload: Workload, size: Size, rows: Sequence[Contender | Trial | Absent]) -> Answer:
    """Measures the contenders or trials of a workload, of which ours is the first. Leaves out those that end early."""
    contenders = [row for row in rows if isinstance(row, Contender)]
    trials = [row for row in rows if isinstance(row, Trial)]
    left_out = [row.why for row in rows if isinstance(row, Absent)]
    names = [row.name for row in rows if not isinstance(row, Absent)]
    if len(set(names)) < len(names):
        raise ValueError(f"two contenders of {workload.name} have one name; there are {', '.join(names)}")
    disturbed = 0
    if contenders:
        series, disturbed = _time(contenders, size, left_out)
    else:
        window_s = size.window_s if workload.window_s is None else size.window(workload.window_s)
        series = _watch(trials, size, window_s, left_out)
    done = tuple(s.row(workload.metrics) for s in series)
    fixed = (workload.name, workload.number, workload.question, workload.metrics, workload.items_per_call)
    return Answer(*fixed, disturbed, tuple(left_out), done)


@contextlib.contextmanager
def leaving_out(left_out: list[str], series: list[Series], one: Series | None = None) -> Iterator[None]:
    """Moves a contender that raises Gone from the series to those left out. Ours never raises it."""
    try:
        yield
    except Gone as why:
        left_out.append(str(why))
        if one is not None:
            series.remove(one)


def ratio(ours: float, this: float) -> float:
    """Ours divided by the other value; 1 if both are 0."""
    return ours / this if this else 1.0 if not ours else math.inf


# --- calls -----------------------------------------------------------------------------------------------------------


def _time(contenders: Sequence[Contender], size: Size, left_out: list[str]) -> tuple[list[Series], int]:
    """Measures each contender but the first, which is ours, in pairs with ours.

    A pair is two repeats in direct succession, with ours first in every second pair, so that other load on the machine
    affects both equally. So ours has as many repeats as all others together.
    """
    with no_garbage_collection():
        series: list[Series] = []
        for c in contenders:
            with leaving_out(left_out, series):
                series.append(Series(c, find_calls(c, c.slice_s or size.slice_s)))
        ours = series[0]
        disturbed = 0
        for repeat in range(size.repeats):
            for other in series[1:]:
                with leaving_out(left_out, series, other):
                    disturbed += _pair(ours, other, repeat % 2 == 0, size)
    return series, disturbed


def _pair(ours: Series, other: Series, ours_first: bool, size: Size) -> int:
    """Measures a repeat of each. Returns how many slices were left out."""
    took: dict[str, float] = {}
    disturbed = 0
    for s in (ours, other) if ours_first else (other, ours):
        took[s.contender.name], left_out = measure_once(s.contender, s.calls, size)
        disturbed += left_out
    for s in (ours, other):
        s.values.append({A_CALL.name: took[s.contender.name]})
    other.ratios.append({A_CALL.name: ratio(took[ours.contender.name], took[other.contender.name])})
    return disturbed


def measure_once(contender: Contender | Trial, calls: int, size: Size) -> tuple[float, int]:
    """Measures one repeat. Returns nanoseconds per call, and how many slices were left out as interrupted.

    If every slice was interrupted, they all count.
    """
    assert isinstance(contender, Contender)
    if contender.slice_s is not None:
        contender.run(calls)
        return contender.run(calls) / calls, 0
    for _ in range(size.slices // 2):
        contender.run(calls)
    calm: list[int] = []
    disturbed: list[int] = []
    for _ in range(size.slices - size.slices // 2):
        before = contender.interrupted()
        took = contender.run(calls)
        (calm if contender.interrupted() == before else disturbed).append(took)
    return statistics.fmean(calm or disturbed) / calls, len(disturbed)


def find_calls(contender: Contender, slice_s: float) -> int:
    """How many calls take about `slice_s`."""
    wanted_ns = slice_s * 1e9
    calls = contender.least_calls
    took = max(contender.run(calls), 1)
    while took < wanted_ns / 2:
        calls = max(calls + 1, int(calls * min(wanted_ns / took, MAX_GROWTH)))
        took = max(contender.run(calls), 1)
    return max(contender.least_calls, round(calls * wanted_ns / took))


@contextlib.contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Switches Python's garbage collector off, which would otherwise slow down some repeats and not others."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


# --- trials ----------------------------------------------------------------------------------------------------------


def _watch(trials: Sequence[Trial], size: Size, window_s: float, left_out: list[str]) -> list[Series]:
    """Runs rounds of all trials, in reverse order in every second round. A pair is ours and another one of a round."""
    series = [Series(trial, 0) for trial in trials]
    ours = series[0]
    for number in range(size.rounds):
        for s in list(series) if number % 2 == 0 else list(reversed(series)):
            assert isinstance(s.contender, Trial)
            with leaving_out(left_out, series, s):
                s.values.append(s.contender.run(min(window_s, s.contender.longest_s)))
        for other in series[1:]:
            mine, its = ours.values[-1], other.values[-1]
            other.ratios.append({name: ratio(value, its[name]) for name, value in mine.items()})
    return series

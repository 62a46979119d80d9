"""Scenes: processes that use a buffer side by side, for any library's buffer. Each makes the `run` of a Trial."""

import dataclasses
import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.crowd import Crowd, Tally, Work, crowd
from bench.steps import Layout

EVERY = 16  # inserts between two checks whether to go on
BLOCKED_AFTER_S = 0.001  # by then, the process that took an item is blocked and waits for the next one

Insert = Callable[[dict[str, Any]], object]
Learn = Callable[[], int]
Take = Callable[[], int]
Run = Callable[[float], dict[str, float]]


@dataclasses.dataclass(frozen=True)
class Ends:
    """The ends of a buffer. Each process makes its own function, with its number among the processes of its kind.

    Attributes:
        insert: makes a function that inserts one step.
        learn: makes a function that takes a batch, sends priorities back if there are any, and returns the number of
            items taken.
        take: makes a function that waits for the next item, and returns its `action`.
        end: called by a process that inserted, before it ends.
    """

    insert: Callable[[int], Insert]
    learn: Callable[[int], Learn] | None = None
    take: Callable[[int], Take] | None = None
    end: Callable[[], None] = lambda: None


def writers(ends: Ends, layout: Layout, num: int) -> Run:
    """Writers that go as fast as they can."""

    def run(seconds: float) -> dict[str, float]:
        with crowd([_writer(ends, layout, at) for at in range(num)]) as them:
            rates = them.rates(seconds)
        return {"inserts a second": float(rates.sum()), "slowest writer's share": float(rates.min() / rates.mean())}

    return run


def mixed(ends: Ends, layout: Layout, num: int) -> Run:
    """Writers and one learner that go as fast as they can."""

    def run(seconds: float) -> dict[str, float]:
        with crowd([*(_writer(ends, layout, at) for at in range(num)), _learner(ends)]) as them:
            rates = them.rates(seconds)
        return {"inserts a second": float(rates[:-1].sum()), "samples a second": float(rates[-1])}

    return run


def beside(ends: Ends, layout: Layout, num: int) -> Run:
    """How long inserts of writers take while a learner samples as fast as it can. Writers do not pause."""

    def run(seconds: float) -> dict[str, float]:
        works = [*(_noting_writer(ends, layout, at) for at in range(num)), _learner(ends)]
        with crowd(works, notes=True) as them:
            them.forget_notes()
            rates = them.rates(seconds)
            noted = percentiles(them, slice(num))
        return {
            **noted,
            "p99 / p50": noted["p99"] / noted["p50"],
            "slowest writer's inserts a second": float(rates[:-1].min()),
            "samples a second": float(rates[-1]),
        }

    return run


def attached(ends: Ends, layout: Layout, num: int, inserts_per_s: float) -> Run:
    """How many items a learner samples per second of its processor time, beside writers with a fixed rate."""

    def run(seconds: float) -> dict[str, float]:
        works = [_learner(ends), *(_paced_writer(ends, layout, at, num, inserts_per_s / num) for at in range(num))]
        with crowd(works) as them:
            before, count = them.cpu_s()[0], them.counts()[0]
            rates = them.rates(seconds)
            took, done = them.cpu_s()[0] - before, them.counts()[0] - count
        return {
            "samples a second of its processor time": float(done / max(took, 1e-9)),
            "samples a second": float(rates[0]),
            "inserts a second": float(rates[1:].sum()),
        }

    return run


def woken(ends: Ends, layout: Layout) -> Run:
    """How long it takes from the start of an insert until another process, which waits for the item, has it."""

    def run(seconds: float) -> dict[str, float]:
        with crowd([_taker(ends), _stamping_writer(ends, layout)], notes=True) as them:
            them.rates(seconds / 5)
            them.forget_notes()
            them.rates(seconds)
            return percentiles(them, slice(1))

    return run


# --- works -----------------------------------------------------------------------------------------------------------


def _steps(layout: Layout) -> list[dict[str, Any]]:
    return layout.separate(layout.num_steps, np.random.default_rng())


def _ready_to_insert(ends: Ends, layout: Layout, at: int) -> tuple[Insert, list[dict[str, Any]]]:
    """Returns a function that inserts, after its first call, and steps for it."""
    insert, steps = ends.insert(at), _steps(layout)
    insert(steps[0])
    return insert, steps


def _writer(ends: Ends, layout: Layout, at: int) -> Work:
    def work(tally: Tally) -> None:
        insert, steps = _ready_to_insert(ends, layout, at)
        parts = [steps[first : first + EVERY] for first in range(0, len(steps), EVERY)]
        tally.start()
        for part in itertools.cycle(parts):
            for step in part:
                insert(step)
            tally.add(len(part))
            if not tally.goes_on():
                break
        ends.end()

    return work


def _noting_writer(ends: Ends, layout: Layout, at: int) -> Work:
    def work(tally: Tally) -> None:
        insert, steps = _ready_to_insert(ends, layout, at)
        tally.start()
        for step in itertools.cycle(steps):
            start = time.monotonic_ns()
            insert(step)
            tally.note(time.monotonic_ns() - start)
            tally.add(1)
            if not tally.goes_on():
                break
        ends.end()

    return work


def _paced_writer(ends: Ends, layout: Layout, at: int, num: int, inserts_per_s: float) -> Work:
    """Makes a writer with a fixed rate. The writers' first inserts are spread over the time between two inserts."""

    def work(tally: Tally) -> None:
        insert, steps = _ready_to_insert(ends, layout, at)
        tally.start()
        tally.add(1)
        due = time.monotonic() + at / num / inserts_per_s
        while tally.goes_on():
            time.sleep(max(0.0, due - time.monotonic()))
            insert(steps[tally.count % len(steps)])
            tally.add(1)
            due += 1 / inserts_per_s
        ends.end()

    return work


def _stamping_writer(ends: Ends, layout: Layout) -> Work:
    def work(tally: Tally) -> None:
        insert, steps = ends.insert(0), _steps(layout)
        tally.start()
        while tally.goes_on():
            time.sleep(BLOCKED_AFTER_S)
            step = steps[tally.count % len(steps)]
            step["action"] = time.monotonic_ns()
            insert(step)
            tally.add(1)
        insert(steps[0])  # lets the process that waits for the next item end
        ends.end()

    return work


def _taker(ends: Ends) -> Work:
    def work(tally: Tally) -> None:
        assert ends.take is not None
        take = ends.take(0)
        tally.start()
        while tally.goes_on():
            stamp = take()
            tally.note(time.monotonic_ns() - stamp)

    return work


def _learner(ends: Ends) -> Work:
    def work(tally: Tally) -> None:
        assert ends.learn is not None
        learn = ends.learn(0)
        learn()
        tally.start()
        while tally.goes_on():
            tally.add(learn())

    return work


def percentiles(them: Crowd, processes: slice) -> dict[str, float]:
    """Percentiles of the times that these processes noted, in nanoseconds."""
    p50, p99, p999 = np.percentile(them.notes(processes), [50, 99, 99.9])
    return {"p50": float(p50), "p99": float(p99), "p99.9": float(p999)}

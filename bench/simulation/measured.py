"""Takes the costs of the simulation from this machine. It needs two cores, and that nothing else wants them."""

import ctypes
import mmap
import os
import statistics
import time
from collections.abc import Callable

import numpy as np

from bench.contender import Trial
from bench.cores import one_core
from bench.crowd import Tally, Work, crowd
from bench.ends import BATCH
from bench.full_table import SAMPLERS, full_table
from bench.limits.futex_wake import CALL, futex_wake
from bench.limits.native import load
from bench.simulation.costs import Costs
from bench.simulation.programs import DRAWS_A_HOLD, UPDATES_A_HOLD
from bench.steps import SMALL
from shmreplay.clients.tables.table import TableHandle

ITEMS = 100_000
SPIN_NS = 5_000.0  # kSpinNs
SLICE_NS = 3_000_000.0  # assumed: Linux's base slice is about that on most machines
SLICES, CALLS, WATCH_S = 30, 500, 1.0
ROUNDS, TURNS_S = 9, 0.3


def measure() -> Costs:
    """Measures for about ten seconds.

    Raises:
        RuntimeError: there is one core only, there is no C++ compiler, or other work disturbs the measurement.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise RuntimeError(f"the costs of two cores need two of them; this process may use {len(cores)}")
    with full_table(SAMPLERS["prioritised"], ITEMS, np.random.default_rng(1)) as table:
        steps = SMALL.separate(SMALL.num_steps, np.random.default_rng(2))
        batch = table.sample(BATCH)
        keys, priorities = batch.keys, batch.priorities

        def insert(i: int) -> None:
            table.insert(steps[i % len(steps)])

        def sample(_: int) -> None:
            table.sample(BATCH)

        def update(_: int) -> None:
            table.update_priorities(keys, priorities)

        sample_ns, sampling = least_ns(sample), share_in_lock(table, sample)
        update_ns, updating = least_ns(update), share_in_lock(table, update)
        # Last: it evicts the items whose priorities are updated.
        insert_ns, inserting = least_ns(insert), share_in_lock(table, insert)
        moved_ns = longer_if_moved_ns(insert)
    look_ns, gap_ns = pauses_ns()
    wake_ns, wake_call_ns = wakes_ns()
    return Costs(
        outside_ns=(1 - inserting) * insert_ns,
        insert_hold_ns=inserting * insert_ns,
        moved_hold_ns=moved_ns,
        batch_ns=(1 - sampling) * sample_ns + (1 - updating) * update_ns,
        draw_hold_ns=sampling * sample_ns * DRAWS_A_HOLD / BATCH,
        update_hold_ns=updating * update_ns * UPDATES_A_HOLD / BATCH,
        look_ns=look_ns,
        spin_ns=SPIN_NS,
        gap_ns=gap_ns,
        wake_ns=wake_ns,
        wake_call_ns=wake_call_ns,
        sleep_call_ns=wake_call_ns,  # assumed
        slice_ns=SLICE_NS,
    )


def least_ns(call: Callable[[int], object]) -> float:
    """Nanoseconds of a call, the least of many slices, on one core."""
    took = []
    with one_core():
        for _ in range(SLICES):
            start = time.monotonic_ns()
            for i in range(CALLS):
                call(i)
            took.append((time.monotonic_ns() - start) / CALLS)
    return min(took)


def share_in_lock(table: TableHandle, call: Callable[[int], object]) -> float:
    """The share of its time that a process which repeats the call is inside the lock, as another core sees it."""
    cores = sorted(os.sched_getaffinity(0))

    def work(tally: Tally) -> None:
        os.sched_setaffinity(0, {cores[-1]})
        call(0)
        tally.start()
        while tally.goes_on():
            for i in range(CALLS):
                call(i)
            tally.add(CALLS)

    looks = held = 0
    with crowd([work]):
        os.sched_setaffinity(0, {cores[0]})
        try:
            until = time.monotonic() + WATCH_S
            while time.monotonic() < until:
                time.sleep(2e-5)  # or looking would be what takes the lock's line away
                held += table._arena.lock_holder() is not None
                looks += 1
        finally:
            os.sched_setaffinity(0, cores)
    return held / looks


def longer_if_moved_ns(call: Callable[[int], object]) -> float:
    """How much longer a call takes when the call before it was on another core; the median of rounds."""
    rounds = [in_turns_ns(call) - in_turns_ns(lambda _: None) - least_ns(call) for _ in range(ROUNDS)]
    moved_ns = statistics.median(rounds)
    if moved_ns <= 0:
        raise RuntimeError(
            f"a call after one on another core seems {-moved_ns:.0f} ns shorter than one after its own; measure on a "
            "machine that does nothing else"
        )
    return moved_ns


def in_turns_ns(call: Callable[[int], object]) -> float:
    """Nanoseconds of a call and of the turn to it, where two processes on two cores call in turn."""
    turn = ctypes.c_int64.from_buffer(mmap.mmap(-1, mmap.PAGESIZE))
    cores = sorted(os.sched_getaffinity(0))

    def works(me: int) -> Work:
        def work(tally: Tally) -> None:
            os.sched_setaffinity(0, {cores[-me]})
            tally.start()
            while tally.goes_on():
                while turn.value != me:
                    if not tally.goes_on():
                        return
                call(tally.count)
                turn.value = 1 - me
                tally.add(1)

        return work

    with crowd([works(0), works(1)]) as them:
        return float(1e9 / them.rates(TURNS_S).sum())


def pauses_ns() -> tuple[float, float]:
    """Nanoseconds of a spinner's look, and of a gap."""
    library = load("pauses")
    many = 100

    def per_call(function: Callable[[ctypes.c_uint64], int]) -> float:
        return least_ns(lambda _: function(ctypes.c_uint64(many))) / many

    return per_call(library.spinner_looks), per_call(library.gaps)


def wakes_ns() -> tuple[float, float]:
    """Nanoseconds until a woken process runs on another core, and those that the wake takes of its caller."""
    trial = futex_wake(same_core=False)
    assert isinstance(trial, Trial)
    took = trial.run(WATCH_S)
    return took["p50"], took[CALL]

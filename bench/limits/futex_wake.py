"""What it costs to wake a sleeping process. No process can learn sooner that another one is done."""

import ctypes
import os
import time

from bench.contender import Absent, Trial
from bench.crowd import Tally, crowd
from bench.limits.native import load
from bench.limits.shared_memory import warm
from bench.scenes import BLOCKED_AFTER_S, percentiles

CALL = "the call"  # nanoseconds that a wake takes of its caller, beside the percentiles of the sleeper's


def futex_wake(same_core: bool) -> Trial | Absent:
    """One futex wake from process to process, with both on one core, or on two cores."""
    where = "on the same core" if same_core else "from core to core"
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2 and not same_core:
        return Absent("a futex wake from core to core needs two of them")
    library = load("futex_wake")
    library.wait_for_wake.restype = ctypes.c_int64
    memory = warm((4096,), "uint8")
    word = memory.ctypes.data_as(ctypes.c_void_p)  # keeps the memory

    def sleep(tally: Tally) -> None:
        os.sched_setaffinity(0, {cores[-1]})
        while tally.goes_on():
            took = library.wait_for_wake(word)
            if took >= 0:
                tally.note(took)

    def wake(tally: Tally) -> None:
        os.sched_setaffinity(0, {cores[-1] if same_core else cores[0]})
        while tally.goes_on():
            time.sleep(BLOCKED_AFTER_S)
            start = time.monotonic_ns()
            library.wake(word)
            tally.note(time.monotonic_ns() - start)

    def run(seconds: float) -> dict[str, float]:
        with crowd([sleep, wake], notes=True) as them:
            them.forget_notes()
            them.rates(seconds)
            return {**percentiles(them, slice(1)), CALL: percentiles(them, slice(1, None))["p50"]}

    return Trial(f"one futex wake {where}", "limit", run)

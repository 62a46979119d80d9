"""Model: processes that share cores and locks, event by event.

A process is a generator of steps: `Compute` takes time on its core, `Take` waits for a lock, `Leave` gives it back,
`Gap` leaves it free until another process has it, `Done` counts what was done. The lock is the core's, see
shmreplay/core/arena/robust_lock.h: whoever comes first has it; a contender looks at it for a while, then it sleeps; an
unlock wakes one sleeper, which tries again like all others. A process keeps its core until it sleeps, or until its
slice is over and others wait for a core, also while it holds the lock.
"""

import collections
import dataclasses
import heapq
import itertools
import random
from collections.abc import Callable, Generator
from typing import TypeAlias

from bench.simulation.costs import Costs


@dataclasses.dataclass(frozen=True)
class Compute:
    ns: float


@dataclasses.dataclass(frozen=True)
class Take:
    lock: "Lock"


@dataclasses.dataclass(frozen=True)
class Leave:
    lock: "Lock"


@dataclasses.dataclass(frozen=True)
class Gap:
    lock: "Lock"


@dataclasses.dataclass(frozen=True)
class Done:
    count: int


Step: TypeAlias = Compute | Take | Leave | Gap | Done
Program: TypeAlias = Generator[Step, None, None]


class Lock:
    """A robust mutex. `has_sleepers` is its FUTEX_WAITERS bit: the next unlock has to wake one."""

    def __init__(self) -> None:
        self.holder: Process | None = None
        self.last_core = -1
        self.holds = 0
        self.has_sleepers = False
        self.sleepers: collections.deque[Process] = collections.deque()


class Process:
    """A process of the model, with what it has counted."""

    def __init__(self, program: Callable[["Process"], Program]) -> None:
        self.count = 0
        self.core = -1  # -1: it has none
        self.program = program(self)
        self.action: Callable[[], None] | None = None  # what it does next, when its event is due or it has a core
        self.since_ns = 0.0  # when it got its core

    def takes_over_from_another_core(self, lock: Lock) -> bool:
        return lock.last_core not in (-1, self.core)


class Model:
    """A machine of `num_cores` cores with the given costs."""

    def __init__(self, costs: Costs, num_cores: int, seed: int) -> None:
        self.costs = costs
        self.now_ns = 0.0
        self.rng = random.Random(seed)
        self._events: list[tuple[float, int, Process]] = []
        self._order = itertools.count()
        self._free_cores = list(range(num_cores))
        self._waiting: collections.deque[Process] = collections.deque()  # for a core

    def start(self, process: Process) -> None:
        """Lets a process begin as soon as it has a core."""
        process.action = lambda: self._go_on(process)
        self._want_core(process)

    def run(self, ns: float) -> None:
        """Lets `ns` nanoseconds pass."""
        until = self.now_ns + ns
        while self._events and self._events[0][0] <= until:
            self.now_ns, _, process = heapq.heappop(self._events)
            # Computations are a thousandth of a slice, so it is enough to look at the slice between them.
            if self._waiting and self.now_ns - process.since_ns >= self.costs.slice_ns:
                self._leave_core(process)
                self._want_core(process)
            else:
                assert process.action is not None
                process.action()
        self.now_ns = until

    # --- cores -------------------------------------------------------------------------------------------------------

    def _after(self, process: Process, ns: float, action: Callable[[], None]) -> None:
        """What a process that has a core does next."""
        process.action = action
        heapq.heappush(self._events, (self.now_ns + ns, next(self._order), process))

    def _want_core(self, process: Process, after_ns: float = 0.0) -> None:
        """The process does its next action when it has a core, and `after_ns` have passed on it."""
        if not self._free_cores:
            self._waiting.append(process)
            return
        assert process.action is not None
        process.core, process.since_ns = self._free_cores.pop(self.rng.randrange(len(self._free_cores))), self.now_ns
        self._after(process, after_ns, process.action)

    def _leave_core(self, process: Process) -> None:
        self._free_cores.append(process.core)
        process.core = -1
        if self._waiting:
            self._want_core(self._waiting.popleft())

    # --- steps -------------------------------------------------------------------------------------------------------

    def _go_on(self, process: Process) -> None:
        step = next(process.program)
        match step:
            case Compute(ns):
                self._after(process, ns, lambda: self._go_on(process))
            case Done(count):
                process.count += count
                self._after(process, 0.0, lambda: self._go_on(process))
            case Take(lock):
                self._try(process, lock)
            case Leave(lock):
                self._leave(process, lock)
            case Gap(lock):
                self._wait_in_gap(process, lock, lock.holds, self.now_ns + self.costs.gap_ns)

    def _try(self, process: Process, lock: Lock) -> None:
        if lock.holder is None:
            self._enter(process, lock)
        else:
            self._look(process, lock, self.now_ns + self.costs.spin_ns)

    def _look(self, process: Process, lock: Lock, until_ns: float) -> None:
        # The looks of spinners are not in step.
        pause = self.costs.look_ns * self.rng.uniform(0.5, 1.5)
        self._after(process, pause, lambda: self._looked(process, lock, until_ns))

    def _looked(self, process: Process, lock: Lock, until_ns: float) -> None:
        if lock.holder is None:
            self._enter(process, lock)
        elif self.now_ns < until_ns:
            self._look(process, lock, until_ns)
        else:
            self._after(process, self.costs.sleep_call_ns, lambda: self._sleep(process, lock))

    def _sleep(self, process: Process, lock: Lock) -> None:
        lock.has_sleepers = True
        if lock.holder is None:
            self._enter(process, lock)
            return
        lock.sleepers.append(process)
        process.action = lambda: self._sleep(process, lock)  # a woken process tries once, then sleeps again
        self._leave_core(process)

    def _enter(self, process: Process, lock: Lock) -> None:
        lock.holder = process
        lock.holds += 1
        self._after(process, 0.0, lambda: self._go_on(process))

    def _leave(self, process: Process, lock: Lock) -> None:
        lock.holder, lock.last_core = None, process.core
        wakes = lock.has_sleepers and bool(lock.sleepers)
        lock.has_sleepers = False
        if wakes:
            self._want_core(lock.sleepers.popleft(), self.costs.wake_ns)
        self._after(process, self.costs.wake_call_ns if wakes else 0.0, lambda: self._go_on(process))

    def _wait_in_gap(self, process: Process, lock: Lock, holds: int, until_ns: float) -> None:
        if lock.holds != holds or self.now_ns >= until_ns:
            self._go_on(process)
        else:
            look = self.costs.gap_ns / 16
            self._after(process, look, lambda: self._wait_in_gap(process, lock, holds, until_ns))

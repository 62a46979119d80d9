"""Programs: what writers and learners do, as steps of the model."""

import itertools
import random
from collections.abc import Callable, Sequence

from bench.simulation.costs import Costs
from bench.simulation.model import Compute, Done, Gap, Leave, Lock, Process, Program, Take

BATCH = 256
DRAWS_A_HOLD, UPDATES_A_HOLD = 16, 32


def writer(costs: Costs, rng: random.Random, lock: Lock) -> Callable[[Process], Program]:
    """Inserts one step after the other, as fast as it can."""

    def program(process: Process) -> Program:
        while True:
            yield Compute(costs.outside_ns * rng.uniform(0.8, 1.2))
            yield from hold(process, lock, costs.insert_hold_ns, costs.moved_hold_ns)
            yield Done(1)

    return program


def learner(costs: Costs, rng: random.Random, locks: Sequence[Lock]) -> Callable[[Process], Program]:
    """Samples a batch of 256 and updates its priorities, as fast as it can. Each lock has a part of the table."""

    def program(process: Process) -> Program:
        holds = [
            *((lock, costs.draw_hold_ns) for lock in spread(locks, DRAWS_A_HOLD)),
            *((lock, costs.update_hold_ns) for lock in spread(locks, UPDATES_A_HOLD)),
        ]
        holds_before = dict.fromkeys(locks, 0)
        while True:
            for lock, ns in holds:
                yield Compute(costs.batch_ns / len(holds) * rng.uniform(0.8, 1.2))
                yield from hold(process, lock, ns, costs.moved_hold_ns)
                others_came = lock.holds - holds_before[lock] > 1
                holds_before[lock] = lock.holds
                if others_came:
                    yield Gap(lock)
            yield Done(BATCH)

    return program


def hold(process: Process, lock: Lock, own_ns: float, moved_ns: float) -> Program:
    """One stay inside the lock."""
    yield Take(lock)
    yield Compute(own_ns + (moved_ns if process.takes_over_from_another_core(lock) else 0.0))
    yield Leave(lock)


def spread(locks: Sequence[Lock], items_a_hold: int) -> list[Lock]:
    """The locks of a batch, hold by hold: each shard's part of it, in holds of at most `items_a_hold`."""
    part = -(-BATCH // len(locks))
    return list(itertools.chain.from_iterable([lock] * -(-part // items_a_hold) for lock in locks))

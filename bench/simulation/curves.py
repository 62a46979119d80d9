"""Curves: what the model says of a crowd of writers and learners, and of machines with more cores."""

import dataclasses
from collections.abc import Sequence

from bench.simulation.costs import Costs
from bench.simulation.model import Lock, Model, Process
from bench.simulation.programs import learner, writer

WRITERS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
LEARNERS = (0, 1, 8)
SHARDS = (1, 4, 16)
SOCKETS = 2.0  # times as long for a line between two sockets as within one
BEGIN_NS = 2e6  # until the queues are as they stay


@dataclasses.dataclass(frozen=True)
class Crowd:
    """Processes that go as fast as they can."""

    writers: int
    learners: int = 0
    shards: int = 1


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a crowd gets done.

    Attributes:
        crowd: which one.
        inserts_per_s: of all writers.
        samples_per_s: of all learners.
    """

    crowd: Crowd
    inserts_per_s: float
    samples_per_s: float


def simulate(costs: Costs, crowd: Crowd, num_cores: int, ns: float, seed: int = 1) -> Outcome:
    """Lets a crowd work for `ns` nanoseconds, after a beginning that does not count."""
    model = Model(costs, num_cores, seed)
    locks = [Lock() for _ in range(crowd.shards)]
    writers = [Process(writer(costs, model.rng, locks[i % crowd.shards])) for i in range(crowd.writers)]
    learners = [Process(learner(costs, model.rng, locks)) for _ in range(crowd.learners)]
    for process in (*writers, *learners):
        model.start(process)
    model.run(BEGIN_NS)
    before = _counts(writers), _counts(learners)
    model.run(ns)
    inserts, samples = _counts(writers) - before[0], _counts(learners) - before[1]
    return Outcome(crowd, 1e9 * inserts / ns, 1e9 * samples / ns)


def crowds(num_cores: int) -> list[Crowd]:
    """The crowds of the curves, with a core for each process."""
    return [
        Crowd(writers, learners, shards)
        for learners in LEARNERS
        for shards in SHARDS
        for writers in WRITERS
        if shards <= writers and writers + learners <= num_cores
    ]


def curves(costs: Costs, num_cores: int, ns: float) -> list[Outcome]:
    return [simulate(costs, crowd, num_cores, ns) for crowd in crowds(num_cores)]


def shards_pay_from(outcomes: Sequence[Outcome], learners: int, gain: float = 1.25) -> int | None:
    """The fewest writers from which four shards take `gain` times the inserts of one, beside so many learners."""
    of = {outcome.crowd: outcome.inserts_per_s for outcome in outcomes}
    for writers in WRITERS:
        one, four = of.get(Crowd(writers, learners, 1)), of.get(Crowd(writers, learners, 4))
        if one is not None and four is not None and four >= gain * one:
            return writers
    return None


def _counts(processes: Sequence[Process]) -> int:
    return sum(process.count for process in processes)

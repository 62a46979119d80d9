"""Check: the model beside this machine, crowd by crowd."""

import dataclasses
import statistics
from collections.abc import Iterator

import numpy as np

import shmreplay as sr
from bench import scenes
from bench.ends import ends_of
from bench.full_table import EXPONENT, fill
from bench.signature import signature
from bench.simulation.costs import Costs
from bench.simulation.curves import Crowd, Outcome, simulate
from bench.steps import SMALL

ITEMS = 100_000
ROUNDS, WINDOW_S = 5, 1.0


@dataclasses.dataclass(frozen=True)
class Pair:
    """A crowd as it was measured, medians of several rounds, and as it was simulated."""

    measured: Outcome
    simulated: Outcome


def crowds(num_cores: int) -> list[Crowd]:
    """Crowds from one process to four times as many as cores, and shards where there are writers for them."""
    writers = [n for n in (1, 2, 4, 8, 16, 32, 64, 128, 256) if n <= max(4, 4 * num_cores)]
    return [
        *(Crowd(n) for n in writers),
        *(Crowd(n, 1) for n in writers if n <= max(4, num_cores)),
        *(Crowd(n, 0, shards) for shards in (4, 16) for n in writers if shards <= n <= num_cores),
    ]


def pairs(costs: Costs, num_cores: int, simulated_ns: float) -> Iterator[Pair]:
    """Measures and simulates the crowds one after the other."""
    for crowd in crowds(num_cores):
        yield Pair(measure(crowd), simulate(costs, crowd, num_cores, simulated_ns))


def measure(crowd: Crowd) -> Outcome:
    """Lets a real crowd work on a full prioritised table of steps of 400 B."""
    processes = crowd.writers + crowd.learners + 8
    table = sr.Table(
        "bench",
        signature(SMALL),
        ITEMS,
        sampler=sr.selectors.Prioritized(EXPONENT),
        shards=crowd.shards,
        max_streams=processes + crowd.shards * 8,
        max_sessions=processes,
    )
    with sr.Server([table], timeout_s=120) as server, server.client() as client:
        for part in table.parts:
            fill(client.table(part.name), part.max_size, np.random.default_rng(9))
        ends = ends_of(client.table("bench"), updates=True)
        scene = scenes.mixed if crowd.learners else scenes.writers
        rounds = [scene(ends, SMALL, crowd.writers)(WINDOW_S) for _ in range(ROUNDS)]
    inserts = statistics.median(each["inserts a second"] for each in rounds)
    samples = statistics.median(each.get("samples a second", 0.0) for each in rounds)
    return Outcome(crowd, inserts, samples)

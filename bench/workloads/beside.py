"""How long do inserts take while a learner samples as fast as it can, and does any writer starve?"""

import contextlib
import functools
from collections.abc import Iterator, Sequence

import numpy as np

import shmreplay as sr
from bench import scenes
from bench.contender import Absent, Contender, Trial
from bench.ends import BATCH, ends_of, ends_of_their_own
from bench.full_table import EXPONENT, SAMPLERS, fill
from bench.metric import MEDIAN, P99, P999, SAMPLES, SLOWEST, TAIL
from bench.peers.process import peers
from bench.peers.task import Task
from bench.signature import signature
from bench.size import Size
from bench.steps import SMALL
from bench.workload import Workload

ITEMS = 100_000
OWN_ITEMS = 1000


@contextlib.contextmanager
def trials(size: Size, num: int) -> Iterator[Sequence[Contender | Trial | Absent]]:
    items = min(ITEMS, size.items)
    rng = np.random.default_rng(11)
    task = Task("beside", items, batch=BATCH, exponent=EXPONENT, writers=num)
    sampler = SAMPLERS["prioritised"]
    large = [sr.Table(name, signature(SMALL), items, sampler=sampler) for name in ("bench", "learner")]
    own = [sr.Table(f"own{at}", signature(SMALL), OWN_ITEMS, sampler=sampler) for at in range(num)]
    with sr.Server([*large, *own]) as server, server.client() as client, peers(task, trial=True) as others:
        for table in large:
            fill(client.table(table.name), items, rng)
        yield [
            Trial("insert(step)", "ours", scenes.beside(ends_of(client.table("bench")), SMALL, num)),
            Trial("the same processes, a table each", "limit", scenes.beside(ends_of_their_own(client), SMALL, num)),
            *others,
        ]


WORKLOADS = tuple(
    Workload(
        f"beside_{num}",
        f"How long does an insert of a step of {SMALL.name} take in {num} {'process' if num == 1 else 'processes'}, "
        f"while a learner samples {BATCH} by priority from the same table as fast as it can?",
        functools.partial(trials, num=num),
        "W13",
        (TAIL, MEDIAN, P99, P999, SLOWEST, SAMPLES),
        in_quick=num > 1,
        window_s=5.0,
    )
    for num in (1, 4)
)

"""What do attached writers take from a learner?"""

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np

import shmreplay as sr
from bench import scenes
from bench.contender import Absent, Contender, Trial
from bench.ends import BATCH, ends_of
from bench.full_table import EXPONENT, SAMPLERS, fill
from bench.metric import INSERTS, OF_ITS_TIME, SAMPLES
from bench.peers.process import peers
from bench.peers.task import Task
from bench.signature import signature
from bench.size import Size
from bench.steps import SMALL
from bench.workload import Workload

ITEMS = 100_000
INSERTS_PER_S = 10_000
WRITERS = (0, 16, 64, 256)


@contextlib.contextmanager
def trials(size: Size) -> Iterator[Sequence[Contender | Trial | Absent]]:
    items = min(ITEMS, size.items)
    most = max(WRITERS)
    table = sr.Table(
        "bench",
        signature(SMALL),
        items,
        sampler=SAMPLERS["prioritised"],
        max_streams=most + 8,
        max_sessions=most + 8,
    )
    numbers = [num for num in WRITERS if num <= size.processes]
    with sr.Server([table]) as server, server.client() as client, contextlib.ExitStack() as stack:
        handle = client.table("bench")
        fill(handle, items, np.random.default_rng(12))
        ends = ends_of(handle, updates=True)
        rows: list[Contender | Trial | Absent] = [
            Trial(f"{num} writers", "ours", scenes.attached(ends, SMALL, num, INSERTS_PER_S)) for num in numbers
        ]
        for num in () if size.is_quick else (0, 16):
            task = Task("attached", items, batch=BATCH, exponent=EXPONENT, writers=num, inserts_per_s=INSERTS_PER_S)
            rows += [row for row in stack.enter_context(peers(task, trial=True)) if num == 0 or isinstance(row, Trial)]
        yield rows


WORKLOADS = (
    Workload(
        "attached",
        f"How many items does a learner sample, {BATCH} by priority and then updated, in a second of its own processor "
        f"time, while so many processes insert {INSERTS_PER_S:,} steps of {SMALL.name} a second together?",
        trials,
        "W9",
        (OF_ITS_TIME, SAMPLES, INSERTS),
    ),
)

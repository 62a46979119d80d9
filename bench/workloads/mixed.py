"""How fast are actors and a learner at the same table?"""

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np

from bench import scenes
from bench.contender import Absent, Contender, Trial
from bench.ends import BATCH, ends_of
from bench.full_table import EXPONENT, SAMPLERS, full_table
from bench.metric import INSERTS, SAMPLES
from bench.peers.process import peers
from bench.peers.task import Task
from bench.size import Size
from bench.steps import SMALL
from bench.workload import Workload

ITEMS = 100_000
WRITERS = 4
WINDOW_S = 10.0


@contextlib.contextmanager
def trials(size: Size) -> Iterator[Sequence[Contender | Trial | Absent]]:
    items = min(ITEMS, size.items)
    task = Task("mixed", items, batch=BATCH, exponent=EXPONENT, writers=WRITERS)
    with (
        full_table(SAMPLERS["prioritised"], items, np.random.default_rng(10)) as table,
        peers(task, trial=True) as others,
    ):
        ends = ends_of(table, updates=True)
        yield [Trial("insert, sample, update_priorities", "ours", scenes.mixed(ends, SMALL, WRITERS)), *others]


WORKLOADS = (
    Workload(
        "mixed",
        f"How many steps of {SMALL.name} do {WRITERS} processes insert one by one, while one learner samples {BATCH} "
        "by priority and updates them, all as fast as they can?",
        trials,
        "W4",
        (INSERTS, SAMPLES),
        window_s=WINDOW_S,
    ),
)

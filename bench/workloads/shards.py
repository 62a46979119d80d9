"""What do shards give writers that share a table, and what do they cost a learner?"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import shmreplay as sr
from bench import scenes
from bench.contender import Absent, Contender, Trial
from bench.ends import BATCH, ends_of
from bench.full_table import SAMPLERS, fill
from bench.metric import INSERTS, SAMPLES, SHARE
from bench.scenes import Ends, Run
from bench.signature import signature
from bench.size import Size
from bench.steps import SMALL, Layout
from bench.workload import Workload

ITEMS = 100_000
SHARDS = (4, 2, 1)
WINDOW_S = 5.0

Scene = Callable[[Ends, Layout, int], Run]


@contextlib.contextmanager
def trials(
    size: Size, num: int, scene: Scene, sampler: str, **ends: Any
) -> Iterator[Sequence[Contender | Trial | Absent]]:
    items, num = min(ITEMS, size.items), min(num, size.processes)
    options: dict[str, Any] = {"sampler": SAMPLERS[sampler], "max_streams": 4 * (num + 8), "max_sessions": num + 8}
    tables = [sr.Table(f"of{shards}", signature(SMALL), items, shards=shards, **options) for shards in SHARDS]
    with sr.Server(tables, timeout_s=120) as server, server.client() as client:
        rows = []
        for table in tables:
            for part in table.parts:
                fill(client.table(part.name), part.max_size, np.random.default_rng(9))
            run = scene(ends_of(client.table(table.name), **ends), SMALL, num)
            rows.append(Trial(f"shards={table.shards}", "ours", run))
        yield rows


WORKLOADS = (
    *(
        Workload(
            f"shards_{num}",
            f"How many steps of {SMALL.name} do {num} processes insert into one uniform table that is full, one by "
            "one, with 1, 2 and 4 shards?",
            functools.partial(trials, num=num, scene=scenes.writers, sampler="uniform"),
            "W3",
            (INSERTS, SHARE),
            processes=num,
            in_quick=num == 4,
            window_s=WINDOW_S,
        )
        for num in (1, 2, 4, 16)
    ),
    Workload(
        "shards_mixed",
        f"The same with 4 writers, while one learner samples {BATCH} by priority and updates them, all as fast as they "
        "can.",
        functools.partial(trials, num=4, scene=scenes.mixed, sampler="prioritised", updates=True),
        "W4",
        (INSERTS, SAMPLES),
        processes=4,
        in_quick=False,
        window_s=WINDOW_S,
    ),
)

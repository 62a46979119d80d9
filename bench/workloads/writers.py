"""How much do writers put in that share a table, and does any of them get less than the others?"""

import contextlib
import functools
from collections.abc import Iterator, Sequence

import numpy as np

import shmreplay as sr
from bench import scenes
from bench.contender import Absent, Contender, Trial
from bench.ends import ends_of, ends_of_their_own
from bench.full_table import fill
from bench.metric import INSERTS, SHARE
from bench.peers.process import peers
from bench.peers.task import Task
from bench.signature import signature
from bench.size import Size
from bench.steps import SMALL
from bench.workload import Workload

ITEMS = 100_000
OWN_ITEMS = 1000
LONG_S = 30.0
LONG = (64, 512)  # numbers of writers that are watched for so long: some get less than others in a short time


@contextlib.contextmanager
def trials(size: Size, num: int) -> Iterator[Sequence[Contender | Trial | Absent]]:
    items, num = min(ITEMS, size.items), min(num, size.processes)
    shared = sr.Table("bench", signature(SMALL), items, max_streams=num + 8, max_sessions=num + 8)
    own = [sr.Table(f"own{at}", signature(SMALL), OWN_ITEMS, max_streams=4, max_sessions=4) for at in range(num)]
    with (
        sr.Server([shared, *(own if num > 1 else [])], timeout_s=120) as server,
        server.client() as client,
        peers(Task("writers", items, writers=num), trial=True) as others,
    ):
        table = client.table("bench")
        fill(table, items, np.random.default_rng(9))
        rows: list[Contender | Trial | Absent] = [
            Trial("insert(step)", "ours", scenes.writers(ends_of(table), SMALL, num))
        ]
        if num > 1:
            run = scenes.writers(ends_of_their_own(client), SMALL, num)
            rows.append(Trial("the same processes, a table each", "limit", run))
        yield [*rows, *others]


WORKLOADS = tuple(
    Workload(
        f"writers_{num}",
        f"How many steps of {SMALL.name} do {num} processes insert into one uniform table that is full, one by one?",
        functools.partial(trials, num=num),
        "W3",
        (INSERTS, SHARE),
        processes=num,
        in_quick=num != 2,
        window_s=LONG_S if num in LONG else None,
    )
    for num in (1, 2, 4, 16, 64, 256, 512)
)

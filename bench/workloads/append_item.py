"""How long does an actor wait that appends a step and makes an item of it by hand?"""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import shmreplay as sr
from bench.contender import Absent, Contender, Trial
from bench.limits.dict_copy import dict_copy
from bench.limits.robust_lock import robust_lock
from bench.signature import signature
from bench.size import Size
from bench.steps import SMALL
from bench.workload import Workload
from shmreplay.clients.writers.writer import Writer

ITEMS = 100_000
LENGTH = 5  # steps of an item
COMMIT_EVERY = 16


@contextlib.contextmanager
def contenders(size: Size) -> Iterator[Sequence[Contender | Trial | Absent]]:
    items = min(ITEMS, size.items)
    steps = SMALL.separate(SMALL.num_steps, np.random.default_rng(8))
    for step in steps:
        step["terminated"] = False  # ends are calls of their own
    table = sr.Table("bench", signature(SMALL), items, item_steps=LENGTH, max_streams=4)
    with (
        sr.Server([table]) as server,
        server.client() as client,
        client.table("bench").writer(history=LENGTH) as writer,
        client.table("bench").writer(history=LENGTH, commit_every=COMMIT_EVERY) as sharing,
    ):
        run = appends(writer, steps)
        estimate = client.table("bench").estimate()
        run(estimate.num_chunks * estimate.chunk_steps + 1)  # every page is touched, and items are evicted from here
        yield [
            Contender("append + create_item", "ours", run),
            Contender(f"append + create_item, commit_every={COMMIT_EVERY}", "ours", appends(sharing, steps)),
            robust_lock(),
            dict_copy(steps, SMALL.column_bytes, items),
        ]


def appends(writer: Writer, steps: list[dict[str, Any]]) -> Callable[[int], int]:
    for step in steps[:LENGTH]:
        writer.append(step)
    endless = itertools.cycle(steps)

    def run(n: int) -> int:
        append, create_item = writer.append, writer.create_item
        start = time.monotonic_ns()
        for step in itertools.islice(endless, n):
            append(step)
            create_item(1.0, LENGTH)
        return time.monotonic_ns() - start

    return run


WORKLOADS = (
    Workload(
        "append_item",
        f"How long do append of a step of {SMALL.name} and create_item of the last {LENGTH} steps take, into a uniform "
        "table that is full?",
        contenders,
        "W1",
    ),
)

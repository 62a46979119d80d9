"""How long do environments that step together wait for their rows to be taken?"""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import shmreplay as sr
from bench.contender import Absent, Contender, Trial
from bench.limits.memcpy import memcpy_fresh, memcpy_warm
from bench.limits.robust_lock import robust_lock
from bench.peers.process import peers
from bench.peers.task import Task
from bench.signature import signature
from bench.size import Size
from bench.steps import SMALL
from bench.workload import Workload
from shmreplay.clients.writers.vector_writer import VectorWriter

ITEMS = 1_000_000
NUM_STREAMS = 256
NUM_STEPS = 4  # different ones that the writer goes round
N = 3


@contextlib.contextmanager
def contenders(size: Size) -> Iterator[Sequence[Contender | Trial | Absent]]:
    rng = np.random.default_rng(6)
    items = min(ITEMS, size.items)
    steps = [SMALL.stacked(NUM_STREAMS, rng) for _ in range(NUM_STEPS)]
    for step in steps:
        step["terminated"][:] = False  # ends are calls of their own
    packed = rng.integers(0, 256, (NUM_STEPS, NUM_STREAMS * SMALL.step_bytes), np.uint8)
    options: dict[str, Any] = {"item": sr.NStep(N), "capacity_steps": items, "max_streams": NUM_STREAMS}
    table = sr.Table("bench", signature(SMALL), items, **options)
    with (
        sr.Server([table]) as server,
        server.client() as client,
        client.table("bench").vector_writer(NUM_STREAMS) as writer,
        peers(Task("insert stacked", items, batch=NUM_STREAMS)) as others,
    ):
        chunks = client.table("bench").estimate()
        for step in itertools.islice(itertools.cycle(steps), chunks.num_chunks * chunks.chunk_steps // NUM_STREAMS + 1):
            writer.append(step)  # every page of the arena is touched, and items are evicted from here on
        yield [
            Contender(f"append of {NUM_STREAMS} streams", "ours", appends(writer, steps)),
            robust_lock(),
            memcpy_warm(packed, max(1, items // NUM_STREAMS)),
            memcpy_fresh(packed),
            *others,  # rows of one step each
        ]


def appends(writer: VectorWriter, steps: list[dict[str, NDArray[Any]]]) -> Callable[[int], int]:
    endless = itertools.cycle(steps)

    def run(n: int) -> int:
        append = writer.append
        start = time.monotonic_ns()
        for step in itertools.islice(endless, n):
            append(step)
        return time.monotonic_ns() - start

    return run


WORKLOADS = (
    Workload(
        "vector_append",
        f"How long does one append of {NUM_STREAMS} streams' rows of {SMALL.name} take, each making an item of "
        f"{N} steps, into a uniform table whose arena is full?",
        contenders,
        "W8",
        items_per_call=NUM_STREAMS,
    ),
)

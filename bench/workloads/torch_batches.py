"""How long does a PyTorch learner on the CPU wait for a batch of tensors?"""

import contextlib
import functools
import importlib.util
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from bench.contender import Absent, Contender, Trial
from bench.full_table import EXPONENT, SAMPLERS, full_table
from bench.peers.process import peers
from bench.peers.task import Task
from bench.size import Size
from bench.steps import TRANSITIONS
from bench.workload import Workload
from shmreplay.clients.tables.table import TableHandle

BATCH = 256
BYTES_AN_ITEM = 2_500  # of all that are measured beside each other


@contextlib.contextmanager
def contenders(size: Size, sampler: str, items: int, layout: str) -> Iterator[Sequence[Contender | Trial | Absent]]:
    made = TRANSITIONS[layout]
    items = min(items, made.items(size.items))
    task = Task("torch batches", items, layout, BATCH, exponent=0.0 if sampler == "uniform" else EXPONENT)
    with (
        full_table(SAMPLERS[sampler], items, np.random.default_rng(3), made) as table,
        contextlib.ExitStack() as samplers,
        peers(task) as others,
    ):
        rows = [
            Contender("TorchSampler, drawn when asked", "ours", batches(table, 0, samplers)),
            Contender("sample(), numpy", "limit", sampled(table)),
        ]
        yield [*rows, *others]


def batches(table: TableHandle, prefetch: int, samplers: contextlib.ExitStack) -> Callable[[int], int]:
    from shmreplay.clients.torch import TorchSampler

    sampler = samplers.enter_context(TorchSampler(table, BATCH, prefetch=prefetch, seed=1))

    def run(n: int) -> int:
        start = time.monotonic_ns()
        for _ in range(n):
            batch = next(sampler)  # kept until the next one is there, as a learner does
        took = time.monotonic_ns() - start
        if batch.data["observation"].shape[0] != BATCH:
            raise RuntimeError(f"a batch of {BATCH} has {len(batch)} items")
        return took

    return run


def sampled(table: TableHandle) -> Callable[[int], int]:
    def run(n: int) -> int:
        sample = table.sample
        start = time.monotonic_ns()
        for _ in range(n):
            batch = sample(BATCH)
        took = time.monotonic_ns() - start
        if len(batch) != BATCH:
            raise RuntimeError(f"sample({BATCH}) gave {len(batch)} items")
        return took

    return run


# Ours needs torch in our own environment: without it there is nothing to ask.
WORKLOADS = tuple(
    Workload(
        f"torch_batches_{sampler}_{layout.rpartition(' ')[2]}",
        f"How long does a PyTorch learner on the CPU wait for a batch of {BATCH} transitions of "
        f"{TRANSITIONS[layout].name}, {how}, among {items:,}?",
        functools.partial(contenders, sampler=sampler, items=items, layout=layout),
        "W14",
        items_per_call=BATCH,
        memory=items * BYTES_AN_ITEM if layout.endswith("400B") else 0,
        in_quick=layout.endswith("400B"),
    )
    for sampler, how in (("uniform", "uniform"), ("prioritised", f"prioritised with exponent {EXPONENT}"))
    for layout, items in (("transition 400B", 100_000), ("transition 40kB", 10_000))
    if importlib.util.find_spec("torch") is not None
)

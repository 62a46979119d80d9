"""How many bytes are moved for a batch, by each way to a PyTorch learner?"""

import contextlib
import functools
import importlib.util
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bench.contender import Absent, Contender, Trial
from bench.full_table import SAMPLERS, full_table
from bench.metric import Metric
from bench.size import Size
from bench.steps import SMALL
from bench.workload import Workload
from shmreplay.clients.cuda.driver import Driver
from shmreplay.clients.cuda.errors import CudaUnavailable
from shmreplay.clients.tables.table import TableHandle

if TYPE_CHECKING:
    from shmreplay.clients.torch.choice import Transfer

ITEMS = 100_000
BATCH = 256
NUM_BATCHES = 20
WAYS: tuple["Transfer", ...] = ("gather", "staging", "pageable")

COPIED = Metric("copied by the processor", "bytes", "less")
SENT = Metric("sent to the GPU", "bytes", "less")
READ = Metric("read by the GPU where it lies", "bytes", "less")


@contextlib.contextmanager
def trials(size: Size) -> Iterator[Sequence[Contender | Trial | Absent]]:
    items = min(ITEMS, size.items)
    with full_table(SAMPLERS["uniform"], items, np.random.default_rng(21)) as table:
        yield [Trial("on the CPU", "ours", functools.partial(moved, table, "cpu", "auto")), *on_gpu(table)]


def on_gpu(table: TableHandle) -> list[Contender | Trial | Absent]:
    try:
        Driver.open()
    except CudaUnavailable as error:
        return [Absent(f"{way}: {error}") for way in WAYS]
    return [Trial(f"on a GPU by {way}", "ours", functools.partial(moved, table, "cuda:0", way)) for way in WAYS]


def moved(table: TableHandle, device: str, way: "Transfer", seconds: float) -> dict[str, float]:
    """Bytes a batch, counted by the sampler: however long that takes, a number of batches says it all."""
    from shmreplay.clients.torch import TorchSampler

    with TorchSampler(table, BATCH, device=device, transfer=way, prefetch=0, seed=1) as sampler:
        for _ in range(NUM_BATCHES):
            next(sampler)
        info = sampler.info()
    counted = {COPIED: info.gathered_bytes, SENT: info.sent_bytes, READ: info.read_bytes}
    return {metric.name: number / info.batches for metric, number in counted.items()}


# None without torch in our own environment: there is nothing to count.
WORKLOADS = tuple(
    Workload(
        "bytes_copied",
        f"How many bytes are moved for a batch of {BATCH} steps of {SMALL.name}, on its way to a PyTorch learner?",
        trials,
        "W15",
        (COPIED, SENT, READ),
        items_per_call=BATCH,
    )
    for _ in ("torch",)
    if importlib.util.find_spec("torch") is not None
)

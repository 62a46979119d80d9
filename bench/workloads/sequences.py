"""How fast do sequences of frames go in and out, and what memory does one take?"""

import contextlib
import functools
import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import shmreplay as sr
from bench.contender import Absent, Contender, Trial
from bench.frames import BATCH, COLUMNS, KINDS, LENGTH, PERIOD, SIDE, steps
from bench.metric import Metric
from bench.peers.process import peers
from bench.peers.task import Task
from bench.scenes import Run
from bench.size import Size
from bench.workload import Workload
from shmreplay.clients.tables.table import TableHandle
from shmreplay.estimates import mean_stored_bytes

ITEMS = 1000
NUM_STEPS = 400  # different ones that the writer goes round

IN = Metric("items in a second", "/s", "more")
OUT = Metric("items out a second", "/s", "more")
BYTES = Metric("bytes an item", "bytes", "less")


@contextlib.contextmanager
def trials(size: Size, kind: str) -> Iterator[Sequence[Contender | Trial | Absent]]:
    items = max(2 * BATCH, min(ITEMS, size.items // 100))
    with contextlib.ExitStack() as stack:
        rows: list[Contender | Trial | Absent] = []
        for compression in ("lz4", None):
            server = stack.enter_context(sr.Server([table(items, kind, compression)]))
            handle = stack.enter_context(server.client()).table("bench", seed=1)
            rows.append(Trial(compression or "raw", "ours", in_and_out(handle, kind)))
        rows += stack.enter_context(peers(Task("sequences", items, batch=BATCH, kind=kind), trial=True))
        yield rows


def table(items: int, kind: str, compression: str | None) -> sr.Table:
    """A table whose heap is planned by the measured size of such frames, and its steps for overlapping sequences."""
    mean = None
    if compression is not None:
        spec = sr.ArraySpec((SIDE, SIDE), "uint8", compression=compression)
        mean = mean_stored_bytes(spec, KINDS[kind](100, np.random.default_rng(13)))
    signature = {name: sr.ArraySpec(shape, dtype) for name, (shape, dtype) in COLUMNS.items()}
    signature["observation"] = sr.ArraySpec((SIDE, SIDE), "uint8", compression=compression, mean_bytes=mean)
    options: dict[str, Any] = {"max_streams": 1, "max_sessions": 8, "capacity_steps": items * PERIOD + LENGTH}
    return sr.Table("bench", signature, items, item=sr.Sequence(LENGTH, period=PERIOD), **options)


def in_and_out(table: TableHandle, kind: str) -> Run:
    """Inserts for half of the time, samples for the other half; the table is full."""
    endless = itertools.cycle(steps(kind, NUM_STEPS))
    writer = table.writer()

    def write(seconds: float, items: int) -> float:
        done, start = 0, time.monotonic()
        while done < items or time.monotonic() < start + seconds:
            for step in itertools.islice(endless, PERIOD):
                done += len(writer.append(step))
        return done / (time.monotonic() - start)

    def run(seconds: float) -> dict[str, float]:
        if len(table) < table.info().max_size:
            write(0, table.info().max_size * 3 // 2)
        rate = write(seconds / 2, 1)
        done, start = 0, time.monotonic()
        while time.monotonic() < start + seconds / 2:
            done += len(table.sample(BATCH))
        out = done / (time.monotonic() - start)
        return {IN.name: rate, OUT.name: out, BYTES.name: table.estimate().total_bytes / len(table)}

    return run


WORKLOADS = tuple(
    Workload(
        f"sequences_{kind}",
        f"How many sequences of {LENGTH} steps, one every {PERIOD}, of frames of {SIDE} x {SIDE} bytes ({what}) go "
        f"into a full table, and out in batches of {BATCH}; and what memory does one take?",
        functools.partial(trials, kind=kind),
        "W5",
        (OUT, IN, BYTES),
    )
    for kind, what in (("noise", "a block over noise that stays"), ("tiles", "plain tiles"))
)

"""What does one more client cost?"""

import contextlib
import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

import shmreplay as sr
from bench import machine
from bench.attach_once import LAYOUT
from bench.contender import Absent, Contender, Trial
from bench.metric import Metric
from bench.scenes import Run
from bench.signature import signature
from bench.size import Size
from bench.steps import LAYOUTS
from bench.workload import Workload

INSERTS_PER_S = 50_000  # about what an actor that does little else writes; times the window

ATTACH = Metric("attach", "ns", "less")
PRIVATE = Metric("private bytes", "bytes", "less")
PAGE_TABLES = Metric("page tables", "bytes", "less")
AFTER_WRITING = Metric("page tables after writing", "bytes", "less")
INDEX = Metric("index", "bytes", "less")


@contextlib.contextmanager
def trials(size: Size, arena_bytes: int) -> Iterator[Sequence[Contender | Trial | Absent]]:
    layout = LAYOUTS[LAYOUT]
    items = min(arena_bytes, size.arena_bytes) // (layout.step_bytes + 250)
    table = sr.Table("bench", signature(layout), items)
    with sr.Server([table], timeout_s=300) as server, server.client() as client:
        index = client.table("bench").estimate().index_bytes
        yield [Trial("one more client", "ours", attaches(server.address, index))]


def attaches(address: str, index: int) -> Run:
    def run(seconds: float) -> dict[str, float]:
        command = [sys.executable, "-m", "bench.attach_once", address, str(int(INSERTS_PER_S * seconds))]
        env = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
        done = subprocess.run(command, cwd=machine.ROOT, env=env, capture_output=True, text=True, check=True)
        said: dict[str, float] = json.loads(done.stdout)
        return {**said, INDEX.name: index}

    return run


WORKLOADS = tuple(
    Workload(
        f"attach_{named}",
        f"What does a process pay that attaches to an arena of {words} of steps of {LAYOUTS[LAYOUT].name}, in time and "
        "in memory, and what after it has written for a while?",
        functools.partial(trials, arena_bytes=arena_bytes),
        "W12",
        (ATTACH, PRIVATE, PAGE_TABLES, AFTER_WRITING, INDEX),
        memory=arena_bytes * 5 // 4,
        least_items=0 if arena_bytes <= 10**8 else 1_000_000,
    )
    for named, words, arena_bytes in (("100MB", "100 MB", 10**8), ("10GB", "10 GB", 10**10))
)

"""What does a learner and an actor gain from pages of 2 MiB?"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import shmreplay as sr
from bench.contender import Contender, repeated
from bench.full_table import SAMPLERS, fill
from bench.signature import signature
from bench.size import Size
from bench.steps import SMALL
from bench.workload import Workload
from shmreplay.clients.tables.table import TableHandle

ITEMS = 1_000_000
BATCH = 256
KINDS = {"auto": "huge pages, where there are some", "never": "small pages"}

Call = Callable[[TableHandle], Callable[[], object]]


@contextlib.contextmanager
def contenders(size: Size, call: Call) -> Iterator[Sequence[Contender]]:
    with contextlib.ExitStack() as taken:
        tables = {name: taken.enter_context(table(size, kind)) for kind, name in KINDS.items()}
        yield [Contender(name, "ours", repeated(call(handle))) for name, handle in tables.items()]


@contextlib.contextmanager
def table(size: Size, huge_pages: str) -> Iterator[TableHandle]:
    """A full table on its own server."""
    items = min(ITEMS, size.items)
    made = sr.Table("bench", signature(SMALL), items, sampler=SAMPLERS["prioritised"])
    with sr.Server([made], huge_pages=huge_pages) as server, server.client() as client:
        handle = client.table("bench", seed=1)
        fill(handle, items, np.random.default_rng(17))
        yield handle


def samples(handle: TableHandle) -> Callable[[], object]:
    return functools.partial(handle.sample, BATCH)


def inserts(handle: TableHandle) -> Callable[[], object]:
    steps = SMALL.separate(1000, np.random.default_rng(18))
    at = 0

    def insert() -> None:
        nonlocal at
        at = (at + 1) % len(steps)
        handle.insert(steps[at], 0.5)

    return insert


def updates(handle: TableHandle) -> Callable[[], object]:
    rng = np.random.default_rng(19)
    batches: list[tuple[Any, Any]] = [(handle.sample(BATCH).keys, 1 - rng.random(BATCH)) for _ in range(256)]
    at = 0

    def update() -> None:
        nonlocal at
        at = (at + 1) % len(batches)
        handle.update_priorities(*batches[at])

    return update


WORKLOADS = tuple(
    Workload(
        f"huge_pages_{name}",
        f"How long does {words} take where a prioritised table of {ITEMS:,} items of {SMALL.name} lies in huge "
        "pages, and where it lies in small ones?",
        functools.partial(contenders, call=call),
        "W16",
        items_per_call=items,
        memory=3 * 10**9,
        in_quick=name == "sample",
    )
    for name, words, call, items in (
        ("sample", f"sample({BATCH})", samples, BATCH),
        ("insert", "insert(step, priority)", inserts, 1),
        ("update", f"update_priorities of {BATCH}", updates, BATCH),
    )
)

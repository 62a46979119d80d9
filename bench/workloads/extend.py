"""How fast do whole arrays go in?"""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import shmreplay as sr
from bench.contender import Contender
from bench.full_table import SAMPLERS, full_table
from bench.limits.memcpy import memcpy_fresh, memcpy_warm
from bench.limits.robust_lock import robust_lock
from bench.size import Size
from bench.steps import SMALL
from bench.workload import Workload
from shmreplay.clients.tables.table import TableHandle

ITEMS = 1_000_000
ROWS = 8192
NUM_ARRAYS = 4  # different ones that the writer goes round
EPISODE = 128  # rows
HEAP_ROWS = 1024


@contextlib.contextmanager
def contenders(size: Size) -> Iterator[Sequence[Contender]]:
    rng = np.random.default_rng(5)
    arrays = [SMALL.stacked(ROWS, rng) for _ in range(NUM_ARRAYS)]
    for columns in arrays:
        columns["terminated"][:] = np.arange(ROWS) % EPISODE == EPISODE - 1
    packed = rng.integers(0, 256, (NUM_ARRAYS, ROWS * SMALL.step_bytes), np.uint8)
    items = min(ITEMS, size.items)
    with full_table(SAMPLERS["uniform"], items, rng) as table:
        yield [
            Contender("extend(columns)", "ours", extends(table, arrays)),
            robust_lock(),
            memcpy_warm(packed, max(1, items // ROWS)),
            memcpy_fresh(packed),
        ]


def extends(table: TableHandle, arrays: list[dict[str, NDArray[Any]]]) -> Callable[[int], int]:
    endless = itertools.cycle(arrays)

    def run(n: int) -> int:
        extend = table.extend
        start = time.monotonic_ns()
        for columns in itertools.islice(endless, n):
            extend(columns)
        return time.monotonic_ns() - start

    return run


@contextlib.contextmanager
def heap_contenders(size: Size) -> Iterator[Sequence[Contender]]:
    """Arrays of columns in the heap, beside the same bytes as plain columns."""
    rng = np.random.default_rng(5)
    items = min(ITEMS // 10, size.items)
    ragged = [rng.random((int(n), 3), np.float32) for n in rng.integers(1, 16, HEAP_ROWS)]
    notes = rng.random((HEAP_ROWS, 4), np.float32)
    kinds: dict[str, dict[str, tuple[sr.ArraySpec, Any]]] = {
        "extend(columns), some in the heap": {
            "points": (sr.ArraySpec((None, 3), "float32"), ragged),
            "note": (sr.ArraySpec((4,), "float32", optional=True), notes),
        },
        "extend(columns) as long, none in the heap": {
            "points": (sr.ArraySpec((8, 3), "float32"), rng.random((HEAP_ROWS, 8, 3), np.float32)),
            "note": (sr.ArraySpec((4,), "float32"), notes),
        },
    }
    tables = [
        sr.Table(f"bench{i}", {name: spec for name, (spec, _) in kind.items()}, items)
        for i, kind in enumerate(kinds.values())
    ]
    with sr.Server(tables) as server, server.client() as client:
        rows = []
        for i, (name, kind) in enumerate(kinds.items()):
            table = client.table(f"bench{i}")
            columns = {name: values for name, (_, values) in kind.items()}
            for _ in range(2 * items // HEAP_ROWS + 1):
                table.extend(columns)
            rows.append(Contender(name, "ours", extends(table, [columns])))
        yield rows


WORKLOADS = (
    Workload(
        "heap_arrays",
        f"How long does extend of {HEAP_ROWS} rows take with a column of variable shape and an optional one, each row "
        "an item, into a uniform table that is full?",
        heap_contenders,
        items_per_call=HEAP_ROWS,
        in_quick=False,
    ),
    Workload(
        "extend",
        f"How long does extend of arrays of {ROWS} rows of {SMALL.name} take, each row an item and {EPISODE} "
        "rows an episode, into a uniform table that is full?",
        contenders,
        items_per_call=ROWS,
    ),
)

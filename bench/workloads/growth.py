"""What do a batch and its priorities cost as a table grows?"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from bench.contender import Absent, Contender, Trial
from bench.full_table import EXPONENT, SAMPLERS, full_table
from bench.limits.gather import gather
from bench.limits.sum_tree import BareSumTree
from bench.size import Size
from bench.steps import SMALL
from bench.workload import Opened, Workload
from bench.workloads.sample import BATCH, NUM_SETS, drawn_rows, samples
from bench.workloads.update_priorities import updates
from shmreplay.clients.tables.table import TableHandle

SMALLEST = 10_000
LARGEST = 10_000_000
BESIDE = f"among {SMALLEST:,}"
BYTES_AN_ITEM = 1200  # ours with its index, and the array that the limit gathers from


@contextlib.contextmanager
def sample(size: Size, items: int) -> Iterator[Sequence[Contender | Trial | Absent]]:
    rng = np.random.default_rng(14)
    items = min(items, size.items)
    rows = drawn_rows(items, "prioritised", rng)
    with _tables(size, items, rng) as (table, small):
        draw = BareSumTree(items, EXPONENT, rng).draws(rng.random((NUM_SETS, BATCH)))
        yield [
            Contender(f"sample({BATCH})", "ours", samples(table)),
            *([Contender(f"sample({BATCH}) {BESIDE}", "ours", samples(small))] if small else []),
            both(draw, gather(SMALL.column_bytes, items, rows)),
        ]


@contextlib.contextmanager
def update(size: Size, items: int) -> Iterator[Sequence[Contender | Trial | Absent]]:
    rng = np.random.default_rng(15)
    items = min(items, size.items)
    priorities = 1 - rng.random((NUM_SETS, BATCH))
    with _tables(size, items, rng) as (table, small):
        tree = BareSumTree(items, EXPONENT, rng)
        yield [
            Contender("update_priorities", "ours", _updates(table, priorities)),
            *([Contender(f"update_priorities {BESIDE}", "ours", _updates(small, priorities))] if small else []),
            tree.updates(rng.integers(0, items, (NUM_SETS, BATCH)), priorities),
        ]


def both(one: Contender, other: Contender) -> Contender:
    """One after the other."""
    return Contender(f"{one.name}, then {other.name}", "limit", lambda n: one.run(n) + other.run(n))


def _updates(table: TableHandle, priorities: NDArray[np.float64]) -> Callable[[int], int]:
    keys = [table.sample(BATCH).keys.copy() for _ in range(NUM_SETS)]
    return updates(table, keys, list(priorities))


@contextlib.contextmanager
def _tables(size: Size, items: int, rng: np.random.Generator) -> Iterator[tuple[TableHandle, TableHandle | None]]:
    """The table, and the smallest one beside it, if it is another one."""
    sampler = SAMPLERS["prioritised"]
    with contextlib.ExitStack() as stack:
        table = stack.enter_context(full_table(sampler, items, rng))
        small = None
        if items > SMALLEST or size.name == "smoke":
            small = stack.enter_context(full_table(sampler, min(SMALLEST, items), rng))
        yield table, small


def _workload(verb: str, open_it: Callable[..., Opened], named: str, items: int) -> Workload:
    return Workload(
        f"growth_{verb}_{named}",
        f"How long does {verb} of {BATCH} of {SMALL.name} take, by priority, among {items:,} items, and beside that "
        f"among {SMALLEST:,}?",
        functools.partial(open_it, items=items),
        "W10",
        items_per_call=BATCH,
        least_items=items,
        memory=items * BYTES_AN_ITEM,
    )


WORKLOADS = tuple(
    _workload(verb, open_it, named, items)
    for verb, open_it in (("sample", sample), ("update", update))
    for named, items in (("1e4", SMALLEST), ("1e5", 100_000), ("1e6", 1_000_000), ("1e7", LARGEST))
)

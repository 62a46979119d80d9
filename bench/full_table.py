"""A full table on its own server: every further insert evicts an item, as in most of a long run."""

import contextlib
from collections.abc import Iterator

import numpy as np

import shmreplay as sr
from bench.signature import signature
from bench.steps import SMALL, Layout
from shmreplay.clients.tables.table import TableHandle
from shmreplay.selectors import Selector

EXPONENT = 0.6
SAMPLERS = {"uniform": sr.selectors.Uniform(), "prioritised": sr.selectors.Prioritized(EXPONENT)}
FILL_BYTES = 400_000  # of one insert_batch


@contextlib.contextmanager
def full_table(
    sampler: Selector, items: int, rng: np.random.Generator, layout: Layout = SMALL
) -> Iterator[TableHandle]:
    """Yields a table of `items` random steps with random priorities in (0, 1]. Seeded, so its draws repeat."""
    with sr.Server([sr.Table("bench", signature(layout), items, sampler=sampler)]) as server, server.client() as client:
        table = client.table("bench", seed=1)
        fill(table, items, rng, layout)
        yield table


def fill(table: TableHandle, items: int, rng: np.random.Generator, layout: Layout = SMALL) -> None:
    """Fills a table. This process writes every chunk of the arena, so that no later insert is the first on a page."""
    n = max(1, min(1000, FILL_BYTES // layout.step_bytes))
    rows = layout.stacked(n, rng)
    arena = table.estimate()
    for _ in range(arena.num_chunks * arena.chunk_steps // n + 1):
        table.insert_batch(rows, 1 - rng.random(n))
    if len(table) != items:
        raise RuntimeError(f"the table has {len(table)} items; expected it to be full with {items}")

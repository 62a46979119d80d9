"""A table that is full, on a server of its own: from there on every insert evicts, as in most of a long run."""

import contextlib
from collections.abc import Iterator

import numpy as np

import shmreplay as sr
from bench.steps import SIGNATURE, stacked
from shmreplay.clients.table import TableHandle
from shmreplay.selectors import Selector

EXPONENT = 0.6
SAMPLERS = {"uniform": sr.selectors.Uniform(), "prioritised": sr.selectors.Prioritized(EXPONENT)}
FILL = 1000  # items an insert_batch


@contextlib.contextmanager
def full_table(sampler: Selector, items: int, rng: np.random.Generator) -> Iterator[TableHandle]:
    """Yields a table of `items` random steps of random priorities in (0, 1]. Seeded: its draws repeat.

    Every chunk of its arena was written by this process before, so that no insert is the first to touch a page.
    """
    with sr.Server([sr.Table("bench", SIGNATURE, items, sampler=sampler)]) as server, server.client() as client:
        table = client.table("bench", seed=1)
        rows = stacked(FILL, rng)
        arena = table.estimate()
        for _ in range(arena.num_chunks * arena.chunk_steps // FILL + 1):
            table.insert_batch(rows, 1 - rng.random(FILL))
        if len(table) != items:
            raise RuntimeError(f"the table has {len(table)} items; expected it to be full with {items}")
        yield table

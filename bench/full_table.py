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
FILL = 1000  # items an insert_batch; sizes of tables are multiples of it


@contextlib.contextmanager
def full_table(sampler: Selector, items: int, rng: np.random.Generator) -> Iterator[TableHandle]:
    """Yields a table of `items` random steps of random priorities in (0, 1]. Seeded: its draws repeat."""
    with sr.Server([sr.Table("bench", SIGNATURE, items, sampler=sampler)]) as server, server.client() as client:
        table = client.table("bench", seed=1)
        rows = stacked(FILL, rng)
        for _ in range(items // FILL):
            table.insert_batch(rows, 1 - rng.random(FILL))
        if len(table) != items:
            raise RuntimeError(f"the table has {len(table)} items after {items} inserts; expected it to be full")
        yield table

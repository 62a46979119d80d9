"""Tables whose items are the numbers 0, 1, 2, ..., so that a draw says what was drawn."""

from typing import Any

import numpy as np

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from tests.support.tables import TableMaker

SIGNATURE = {"n": sr.ArraySpec((), "int64")}


def filled(make_table: TableMaker, size: int, priorities: Any = None, **options: Any) -> TableHandle:
    """A table with the values 0, 1, ..., size - 1, in slots of the same numbers."""
    table = make_table(options.pop("max_size", size), signature=SIGNATURE, **options)
    table.insert_batch({"n": np.arange(size)}, priorities)
    return table

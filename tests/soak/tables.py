"""The tables of a storm."""

from typing import Any

import shmreplay as sr
from tests.soak import values
from tests.support.tables import COLUMNS

KEPT = ("kept", "stored")  # they lose nothing by themselves
SPANS = ("sums", "recent", "bulk")  # of up to three steps, over the same steps, evicting all the time
NAMES = (*KEPT, "queue", *SPANS, "unrolls")
ITEM_STEPS = 3


def tables() -> list[sr.Table]:
    """Two that keep, of plain columns and of every kind; a queue; three over the same steps; one of revised states."""
    shared: dict[str, Any] = {"arena": "shared", "max_streams": 128, "max_sessions": 512}
    own: dict[str, Any] = {"max_streams": 256, "max_sessions": 512}
    spans = {**shared, "item_steps": ITEM_STEPS}
    prioritized = sr.selectors.Prioritized
    return [
        sr.Table("kept", COLUMNS, 100_000, sampler=prioritized(0.6), chunk_steps=4, **own),
        sr.Table("stored", values.COLUMNS, 20_000, chunk_steps=4, **own),
        sr.Table.queue("queue", COLUMNS, 64, **own),
        sr.Table("sums", COLUMNS, 300, sampler=prioritized(0.7), remover=sr.selectors.MinHeap(), **spans),
        sr.Table("recent", COLUMNS, 200, **spans),
        sr.Table("bulk", COLUMNS, 200, item=sr.Sequence(ITEM_STEPS), **shared),
        sr.Table("unrolls", values.COLUMNS, 150, sampler=prioritized(0.5), item_steps=ITEM_STEPS, **own),
    ]

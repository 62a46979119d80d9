"""IndexTerm: what the bytes of an index segment are for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class IndexTerm:
    """The bytes that one kind of record takes in the index.

    Attributes:
        name: "items", "chunks", "streams", "sessions", and "blocks" if there is a heap; "the rest" is the
            lock, its undo log, patterns and specs.
        count: number of records; 0 for the rest.
        num_bytes: their bytes; for items, with the structures of samplers and removers.
    """

    name: str
    count: int
    num_bytes: int


def index_terms(
    native: dict[str, Any], plan_arena: Callable[[dict[str, Any]], dict[str, int]]
) -> tuple[IndexTerm, ...]:
    """Divides the size of an arena's index by kind of record.

    The core only says the size of a whole index. So the size of one kind is the difference from an index with a single
    record of that kind. Exact to the page.

    Args:
        native: from `ArenaSpec.native()`.
        plan_arena: the core's function, which returns "index_bytes" for such a dict.
    """
    whole = plan_arena(native)["index_bytes"]
    single: dict[str, dict[str, Any]] = {
        "items": {"tables": [{**table, "max_size": 1} for table in native["tables"]]},
        "chunks": {"num_chunks": 1},
        "streams": {"max_streams": 1},
        "sessions": {"max_sessions": 1},
    }
    counts = {
        "items": sum(table["max_size"] for table in native["tables"]),
        "chunks": native["num_chunks"],
        "streams": native["max_streams"],
        "sessions": native["max_sessions"],
    }
    if native["num_blocks"] > 0:
        single["blocks"] = {"num_blocks": 1}
        counts["blocks"] = native["num_blocks"]
    terms = [
        IndexTerm(name, counts[name], whole - plan_arena({**native, **fewer})["index_bytes"])
        for name, fewer in single.items()
    ]
    return (*terms, IndexTerm("the rest", 0, whole - sum(term.num_bytes for term in terms)))

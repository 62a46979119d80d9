"""IndexTerm: what the bytes of an index segment are for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class IndexTerm:
    """What one kind of record takes of the index.

    Attributes:
        name: "items", "chunks", "streams", "sessions", and "blocks" of the heap where there is one; "the rest" is the
            lock, its undo log, patterns and specs.
        count: number of records; 0 for the rest.
        num_bytes: bytes of them, with the structures of samplers and removers for items.
    """

    name: str
    count: int
    num_bytes: int


def index_terms(
    native: dict[str, Any], plan_arena: Callable[[dict[str, Any]], dict[str, int]]
) -> tuple[IndexTerm, ...]:
    """Divides the index of an arena, which the core lays out as one, by asking what each kind of record adds to it.

    Exact to the page: it is what the index has more than one with a single record of the kind.

    Args:
        native: of `ArenaSpec.native()`.
        plan_arena: the core's; gives "index_bytes" for such a dict.
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

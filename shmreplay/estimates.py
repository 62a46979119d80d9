"""Estimate: the memory of an arena, term by term."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from shmreplay import _core
from shmreplay.base.host_memory import show_bytes, whole_huge_bytes
from shmreplay.columns.heap_plan import HeapPlan
from shmreplay.columns.specs import ArraySpec
from shmreplay.tables.index_terms import IndexTerm, index_terms
from shmreplay.tables.plan import ArenaSpec, TableTerm, ceil_div, plan
from shmreplay.tables.shards import KEY_SHIFT
from shmreplay.tables.table import Table

INSERTS_PER_S = 1_000_000  # that the time until a key is given again is said for


@dataclass(frozen=True)
class Estimate:
    """The memory of an arena, term by term. `str()` makes a readable table.

    Attributes:
        name: name of the arena.
        terms: what each table adds.
        chunk_steps: steps per chunk.
        history: steps that an open stream keeps for its next item.
        max_streams: largest number of open streams.
        stream_chunks: chunks for open streams.
        reserve_chunks: chunks for reads in flight.
        num_chunks: all chunks.
        chunk_bytes: bytes per chunk, alignment included.
        row_bytes: bytes of one step as the caller passes it; an axis of any size counts as 16.
        bytes_per_step: bytes of one step in a chunk, with alignment, and of its values in the heap; rounded up.
        bytes_per_item: `total_bytes` divided by the number of items of full tables, rounded up.
        heap: blocks for values that are not stored in the rows.
        item_index_bytes: bytes of the index for each item of `max_size`.
        index_bytes: bytes of the index segment.
        index_terms: the same by kind of record.
        data_bytes: bytes of the data segment.
        huge_bytes: bytes of both segments that can be in huge pages: all but their ends.
        total_bytes: bytes of shared memory.
        inserts_per_key: so many inserts into the arena after an item's own, at the earliest, another item can get its
            key: 2 ** 56 divided by the slots of the largest table, rounded up to a power of two.
    """

    name: str
    terms: tuple[TableTerm, ...]
    chunk_steps: int
    history: int
    max_streams: int
    stream_chunks: int
    reserve_chunks: int
    num_chunks: int
    chunk_bytes: int
    row_bytes: int
    bytes_per_step: int
    bytes_per_item: int
    heap: HeapPlan
    item_index_bytes: int
    index_bytes: int
    index_terms: tuple[IndexTerm, ...]
    data_bytes: int
    huge_bytes: int
    total_bytes: int
    inserts_per_key: int

    def __str__(self) -> str:
        """One line for each term: name, how it is computed, chunks, bytes."""
        lines = []
        for term in self.terms:
            lines.append(self._chunk_line(f"table {term.name!r}", _how(term, self.chunk_steps), term.chunks))
            if term.shared_steps is not None:
                lines.append(
                    f"    its windows overlap: capacity_steps={term.shared_steps}, and one an episode, holds all"
                )
        streams = f"{self.max_streams} streams x (ceil({self.history} / {self.chunk_steps}) + 2)"
        lines += [
            self._chunk_line("open streams", streams, self.stream_chunks),
            self._chunk_line("reserve", "reads in flight", self.reserve_chunks),
            *self._heap_lines(),
            self._chunk_line("data", f"{self.chunk_bytes} B a chunk", self.num_chunks, self.data_bytes),
            *(self._index_line(term) for term in self.index_terms),
            _line("index", "", "", self.index_bytes),
            _line("total", "", "", self.total_bytes),
            _line("in huge pages", "where there are some (shmreplay doctor)", "", self.huge_bytes),
            _line("a step", f"{self.row_bytes} B as given, in its chunk", "", self.bytes_per_step),
            _line("an item", "its share of the total", "", self.bytes_per_item),
            f"  {'a key':<24} given again after {self.inserts_per_key:,} inserts at the earliest: "
            f"{_duration(self.inserts_per_key / INSERTS_PER_S)} at a million inserts a second",
        ]
        return "\n".join([f"arena {self.name!r}, {self.chunk_steps} steps a chunk", *lines])

    def _heap_lines(self) -> list[str]:
        heap = self.heap
        if heap.num_blocks == 0:
            return []
        shares = [(heap.num_rows, "steps", heap.step_bytes), (heap.num_items, "items", heap.item_bytes)]
        how = " + ".join(f"{count} {what} x {each} B" for count, what, each in shares if count > 0)
        return [_line("heap", how, f"{heap.num_blocks} blocks", heap.num_bytes)]

    def _index_line(self, term: IndexTerm) -> str:
        how = {"items": f"{self.item_index_bytes} B an item", "the rest": "lock, undo log, patterns"}.get(term.name, "")
        return _line(f"index, {term.name}", how, f"{term.count} {term.name}" if term.count else "", term.num_bytes)

    def _chunk_line(self, name: str, how: str, chunks: int, num_bytes: int | None = None) -> str:
        return _line(name, how, f"{chunks} chunks", chunks * self.chunk_bytes if num_bytes is None else num_bytes)


def estimate(tables: Sequence[Table]) -> Estimate:
    """Returns the memory of the arena that `plan(tables)` sizes, exact to the page.

    Raises:
        ValueError: as `plan`.
    """
    return estimate_of(plan(tables), _core.plan_arena)


def mean_stored_bytes(spec: ArraySpec, rows: NDArray[Any]) -> int:
    """Returns the average stored bytes of a row of a compressed column, for the column's `mean_bytes`.

    Args:
        spec: a column that is compressed and has one shape, without other options.
        rows: consecutive rows of a stream, `[n, *shape]` of its dtype, n > 0.

    Raises:
        ValueError: the column is another kind, or the rows do not fit it.
    """
    if not spec.is_packed:
        raise ValueError(f"mean_stored_bytes: the column is {spec}; expected one with compression='lz4' and one shape")
    if rows.dtype != spec.dtype or rows.shape[1:] != spec.shape or len(rows) == 0:
        raise ValueError(
            f"mean_stored_bytes: rows are {rows.dtype} {rows.shape}; expected {spec.dtype} (n, *{spec.shape})"
        )
    flat = np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint8)
    return ceil_div(_core.packed_bytes(flat), len(rows))


def estimate_of(spec: ArenaSpec, plan_arena: Callable[[dict[str, Any]], dict[str, int]]) -> Estimate:
    """Returns the estimate for `spec`, with the sizes in bytes that the core's `plan_arena` gives."""
    native = spec.native()
    sizes = plan_arena(native)
    total = sizes["index_bytes"] + sizes["data_bytes"]
    return Estimate(
        name=spec.name,
        terms=spec.terms,
        chunk_steps=spec.chunk_steps,
        history=spec.history,
        max_streams=spec.max_streams,
        stream_chunks=spec.stream_chunks,
        reserve_chunks=spec.reserve_chunks,
        num_chunks=spec.num_chunks,
        chunk_bytes=sizes["chunk_bytes"],
        row_bytes=sum(leaf.spec.row_bytes for leaf in spec.tables[0].sig.leaves if not leaf.spec.is_per_item),
        bytes_per_step=ceil_div(sizes["chunk_bytes"], spec.chunk_steps) + spec.heap.step_bytes,
        bytes_per_item=ceil_div(total, sum(table.max_size for table in spec.tables)),
        heap=spec.heap,
        item_index_bytes=sizes["item_index_bytes"],
        index_bytes=sizes["index_bytes"],
        index_terms=index_terms(native, plan_arena),
        data_bytes=sizes["data_bytes"],
        huge_bytes=whole_huge_bytes(sizes["index_bytes"]) + whole_huge_bytes(sizes["data_bytes"]),
        total_bytes=total,
        inserts_per_key=1 << (KEY_SHIFT - max(table.max_size for table in spec.tables).bit_length()),
    )


def together(name: str, parts: Sequence[Estimate]) -> Estimate:
    """Adds up the estimates of the shards of a table."""
    added = (
        *("max_streams", "stream_chunks", "reserve_chunks", "num_chunks"),
        *("index_bytes", "data_bytes", "total_bytes", "huge_bytes"),
    )
    index = [
        IndexTerm(terms[0].name, sum(term.count for term in terms), sum(term.num_bytes for term in terms))
        for terms in zip(*(part.index_terms for part in parts), strict=True)
    ]
    terms = tuple(term for part in parts for term in part.terms)
    sums: dict[str, int] = {field: sum(getattr(part, field) for part in parts) for field in added}
    per_item = ceil_div(sums["total_bytes"], sum(term.max_size for term in terms))
    return replace(
        parts[0],
        name=name,
        terms=terms,
        index_terms=tuple(index),
        bytes_per_item=per_item,
        **cast(dict[str, Any], sums),
    )


def _how(term: TableTerm, chunk_steps: int) -> str:
    factor = f" x {term.fragmentation:.2f}" if term.fragmentation != 1.0 else ""
    return f"{term.max_size} items: {term.steps} steps{factor} / {chunk_steps}"


def _duration(seconds: float) -> str:
    for unit, length in (("years", 365 * 86400), ("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.0f} seconds"


def _line(name: str, how: str, chunks: str, num_bytes: int) -> str:
    return f"  {name:<24} {how:<48} {chunks:>18} {show_bytes(num_bytes):>12}"

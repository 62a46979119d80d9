"""Plan: how many chunks an arena needs, and of how many steps.

    chunks = sum over tables (ceil(max_size * item_steps * F / chunk_steps))     the items at worst
           + max_streams * (ceil(history / chunk_steps) + 2)                     steps that open streams hold
           + reserve                                                             chunks that readers are still gathering

F is 1 if items are deleted in the order of their insertion, or if each has its own chunk; otherwise it is the harmonic
number of `chunk_steps`. With random removal, a chunk is free only after its last item was deleted. That needs F times
the space: 4.7 times at 64 steps.

Values that are not stored in the rows are in a heap: see `heap_plan`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shmreplay import selectors
from shmreplay.base.checks import INT32_MAX
from shmreplay.base.host_memory import show_bytes
from shmreplay.columns.heap_plan import HeapPlan, plan_heap, step_bytes
from shmreplay.rules.windows import Window
from shmreplay.tables.packed_specs import pack_specs
from shmreplay.tables.table import MAX_CHUNK_STEPS, Table

MAX_TABLES = 64  # over the steps of one arena
_CHUNK_BYTES = 64 * 1024
_LEAST_RESERVE, _LEAST_RESERVE_BYTES = (2, 16), 64 * 2**20
_MAX_DATA_BYTES = 2**48
_ALIGNMENT = 128
_PRESENCE_BYTES, _PRESENCE_COLUMNS = 8, 64
_ON_FULL_EVICT, _ON_FULL_WAIT, _ON_FULL_ERROR = 0, 1, 2


@dataclass(frozen=True)
class TableTerm:
    """What one table adds to its arena.

    Attributes:
        name: name of the table.
        max_size: largest number of items.
        item_steps: steps of the longest item.
        fragmentation: F; 1.0 if items are deleted in order or have a chunk each, or if `capacity_steps` is given.
        steps: number of steps to have room for, without F.
        chunks: number of chunks for them, with F.
        shared_steps: if the items are overlapping windows and `capacity_steps` is not given, the number of steps they
            have together, without the final one of each episode; otherwise None.
    """

    name: str
    max_size: int
    item_steps: int
    fragmentation: float
    steps: int
    chunks: int
    shared_steps: int | None = None


@dataclass(frozen=True)
class ArenaSpec:
    """Sizes of one arena and the tables in it. Made by `plan`.

    Attributes:
        name: name of the arena.
        tables: the tables, in the order of their indices in the segment.
        terms: what each table adds, in the same order.
        chunk_steps: steps per chunk.
        history: steps that an open stream keeps for its next item.
        stream_chunks: chunks for open streams.
        reserve_chunks: chunks for reads in flight.
        max_streams: largest number of open streams.
        max_sessions: largest number of attached processes.
        heap: blocks for values that are not stored in the rows.
    """

    name: str
    tables: tuple[Table, ...]
    terms: tuple[TableTerm, ...]
    chunk_steps: int
    history: int
    stream_chunks: int
    reserve_chunks: int
    max_streams: int
    max_sessions: int
    heap: HeapPlan = field(default_factory=HeapPlan)

    @property
    def capacity_chunks(self) -> int:
        """Chunks for the items of all tables."""
        return sum(term.chunks for term in self.terms)

    @property
    def num_chunks(self) -> int:
        """All chunks of the arena."""
        return self.capacity_chunks + self.stream_chunks + self.reserve_chunks

    @property
    def columns(self) -> tuple[int, ...]:
        """Bytes from one row of each column to the next."""
        return _columns(self.tables)

    def native(self) -> dict[str, Any]:
        """Returns the plan as the native code takes it."""
        return {
            "columns": [(leaf.row_bytes, leaf.flags, leaf.packed_bytes) for leaf in self.tables[0].sig.leaves],
            "num_blocks": self.heap.num_blocks,
            "block_bytes": self.heap.block_bytes,
            "chunk_steps": self.chunk_steps,
            "num_chunks": self.num_chunks,
            "max_streams": self.max_streams,
            "max_sessions": self.max_sessions,
            "specs": pack_specs(self.tables),
            "tables": [_native_table(table) for table in self.tables],
        }


def by_arena(tables: Iterable[Table]) -> dict[str, list[Table]]:
    """Groups tables by the name of their arena, in the given order. A table with shards becomes its shards.

    Raises ValueError for two tables with the same name.
    """
    groups: dict[str, list[Table]] = {}
    names: set[str] = set()
    for table in tables:
        if table.name in names:
            raise ValueError(f"table {table.name!r} is given twice; names of tables are unique")
        names.add(table.name)
        for part in table.parts:
            groups.setdefault(part.arena_name, []).append(part)
    return groups


def plan(tables: Sequence[Table]) -> ArenaSpec:
    """Sizes the arena that holds `tables`: one table, or several that share their steps.

    `chunk_steps` is chosen in this order:

    1. The value that a table gives.
    2. For items that get one chunk each (`sr.Unroll`): the steps of an item, if all such tables agree.
    3. 1 if items are single steps and F would be above 1.
    4. The largest power of two whose chunk, with its values in the heap, is at most 64 KiB. It is halved until the open
       streams, with three chunks each, need at most half of the steps of the tables. Otherwise a small table would be
       dwarfed by its streams.

    The reserve is an eighth of the tables' chunks, at least 16 and at most 1024. If 16 chunks are more than 64 MiB, its
    minimum is what fits into 64 MiB, but at least 2. A table's `capacity_steps` replaces `max_size * item_steps * F`.
    The largest `max_streams` and `max_sessions` of the tables count.

    Raises:
        ValueError: there is no table; two have the same name, or different arenas, signatures or `chunk_steps`; or the
            arena would have too many tables, chunks or bytes.
    """
    _check_together(tables)
    given = {table.chunk_steps for table in tables} - {None}
    chunk_steps = given.pop() or 1 if given else _default_chunk_steps(tables)
    terms = tuple(_term(table, chunk_steps) for table in tables)
    history = max(table.item_steps for table in tables)
    max_streams = max(table.max_streams for table in tables)
    spec = ArenaSpec(
        name=tables[0].arena_name,
        tables=tuple(tables),
        terms=terms,
        chunk_steps=chunk_steps,
        history=history,
        stream_chunks=max_streams * (ceil_div(history, chunk_steps) + 2),
        reserve_chunks=_reserve(terms, chunk_bytes(_columns(tables), chunk_steps)),
        max_streams=max_streams,
        max_sessions=max(table.max_sessions for table in tables),
    )
    items = sum(math.ceil(term.max_size * term.fragmentation) for term in terms)
    num_rows, num_items = spec.num_chunks * chunk_steps, items + spec.reserve_chunks * chunk_steps
    spec = replace(spec, heap=plan_heap(tables[0].sig.leaves, num_rows, num_items))
    if spec.heap.num_blocks > INT32_MAX:
        raise ValueError(
            f"arena {spec.name!r}: needs {spec.heap.num_blocks} blocks of {spec.heap.block_bytes} bytes for its heap; "
            f"at most {INT32_MAX} can be numbered: lower max_size, item_steps or mean_bytes{overlap_hint(terms)}"
        )
    _check_bytes(spec, chunk_bytes(_columns(tables), chunk_steps))
    if spec.num_chunks > INT32_MAX:
        raise ValueError(
            f"arena {spec.name!r}: needs {spec.num_chunks} chunks of {chunk_steps} steps; at most {INT32_MAX} can be "
            f"numbered: lower max_size or item_steps, or raise chunk_steps{overlap_hint(terms)}"
        )
    return spec


def _check_bytes(spec: ArenaSpec, bytes_per_chunk: int) -> None:
    num_bytes = spec.num_chunks * bytes_per_chunk + spec.heap.num_blocks * spec.heap.block_bytes
    if max(num_bytes, bytes_per_chunk) > _MAX_DATA_BYTES:
        raise ValueError(
            f"arena {spec.name!r}: needs {show_bytes(num_bytes)} for its steps; an arena has at most "
            f"{show_bytes(_MAX_DATA_BYTES)}: lower max_size, item_steps or chunk_steps{overlap_hint(spec.terms)}"
        )


def overlap_hint(terms: Sequence[TableTerm]) -> str:
    """A hint for errors: overlapping windows share steps, which the plan does not assume. "" if there are none."""
    return "".join(
        f"; the windows of table {term.name!r} overlap: capacity_steps={term.shared_steps}, and one an episode, holds "
        "all"
        for term in terms
        if term.shared_steps is not None
    )


def chunk_bytes(row_bytes: Sequence[int], chunk_steps: int) -> int:
    """Returns the bytes of a chunk of columns whose rows take `row_bytes` bytes each.

    Each column has `chunk_steps` rows in a row, rounded up to 128 bytes. In addition there is a bit for each row and
    column, in words of 8 bytes, that says whether the row has that column.
    """
    words = ceil_div(len(row_bytes), _PRESENCE_COLUMNS)
    blocks = [size * chunk_steps for size in row_bytes]
    return sum(ceil_div(size, _ALIGNMENT) * _ALIGNMENT for size in [*blocks, words * _PRESENCE_BYTES * chunk_steps])


def ceil_div(a: int, b: int) -> int:
    """Returns a / b, rounded up."""
    return -(-a // b)


def harmonic(n: int) -> float:
    """Returns 1 + 1/2 + ... + 1/n."""
    return math.fsum(1 / i for i in range(1, n + 1))


def _check_together(tables: Sequence[Table]) -> None:
    if not tables:
        raise ValueError("plan: no tables; expected at least one")
    if len(tables) > MAX_TABLES:
        raise ValueError(
            f"arena {tables[0].arena_name!r}: {len(tables)} tables share it; expected at most {MAX_TABLES}: give some "
            "another arena="
        )
    first, names = tables[0], set[str]()
    for table in tables:
        where = f"arena {first.arena_name!r}"
        if table.name in names:
            raise ValueError(f"{where}: two tables {table.name!r}; expected different names")
        names.add(table.name)
        if table.arena_name != first.arena_name:
            raise ValueError(
                f"{where}: table {table.name!r} names arena {table.arena_name!r}; plan one arena at a time"
            )
        # The order of columns matters, because it is their order in memory.
        if table.sig != first.sig:
            different = "; ".join(first.sig.difference(table.sig)) or "the columns come in another order"
            raise ValueError(
                f"{where}: tables {first.name!r} and {table.name!r} share their steps and so need one signature: "
                f"{different}"
            )
    sizes = sorted({table.chunk_steps for table in tables if table.chunk_steps is not None})
    if len(sizes) > 1:
        raise ValueError(f"arena {first.arena_name!r}: chunk_steps is {sizes[0]} and {sizes[1]}; expected one size")


def _default_chunk_steps(tables: Sequence[Table]) -> int:
    unrolls = {_unroll_steps(table) for table in tables} - {None}
    if len(unrolls) == 1 and (steps := unrolls.pop()) is not None:
        return steps
    if all(table.item_steps == 1 for table in tables) and any(_fragments(table) for table in tables):
        return 1
    columns, in_heap = _columns(tables), step_bytes(tables[0].sig.leaves)
    steps = 1
    while chunk_bytes(columns, 2 * steps) + in_heap * 2 * steps <= _CHUNK_BYTES:
        steps *= 2
    streams = max(table.max_streams for table in tables)
    allowance = max(sum(_capacity_steps(table) for table in tables) // 2, 3 * streams)
    while 3 * streams * steps > allowance:
        steps //= 2
    return steps


def _reserve(terms: Sequence[TableTerm], size: int) -> int:
    """Chunks for reads in flight, of `size` bytes each."""
    low, high = _LEAST_RESERVE
    least = min(max(_LEAST_RESERVE_BYTES // size, low), high)
    return min(max(sum(term.chunks for term in terms) // 8, least), 1024)


def _term(table: Table, chunk_steps: int) -> TableTerm:
    steps = _capacity_steps(table)
    is_alone = _unroll_steps(table) == chunk_steps
    factor = harmonic(chunk_steps) if _fragments(table) and not is_alone and table.capacity_steps is None else 1.0
    chunks = ceil_div(steps, chunk_steps) if factor == 1.0 else math.ceil(steps * factor / chunk_steps)
    return TableTerm(
        table.name, table.max_size, table.item_steps, factor, steps, chunks, None if is_alone else _shared_steps(table)
    )


def _unroll_steps(table: Table) -> int | None:
    """Steps of an item if each can get its own chunk; otherwise None."""
    if not isinstance(table.item, Window) or not table.item.fills_chunks(table.sig):
        return None
    steps = table.item.num_steps(table.sig)
    return steps if steps <= MAX_CHUNK_STEPS else None


def _shared_steps(table: Table) -> int | None:
    """Steps of `max_size` windows that begin every `period` steps, if these are fewer than planned; else None."""
    if not isinstance(table.item, Window) or table.item.is_whole_episode or table.capacity_steps is not None:
        return None
    steps = table.max_size * table.item.period + table.item_steps
    return steps if steps < _capacity_steps(table) and not _fragments(table) else None


def _capacity_steps(table: Table) -> int:
    return table.max_size * table.item_steps if table.capacity_steps is None else table.capacity_steps


def _fragments(table: Table) -> bool:
    """Whether items may be deleted in another order than they were inserted."""
    fifo_sampler = isinstance(table.sampler, selectors.Fifo)
    return not isinstance(table.remover, selectors.Fifo) or (table.consuming and not fifo_sampler)


def _columns(tables: Sequence[Table]) -> tuple[int, ...]:
    return tuple(leaf.stride for leaf in tables[0].sig.leaves)


def _native_table(table: Table) -> dict[str, Any]:
    on_full = {
        None: _ON_FULL_WAIT if table.consuming else _ON_FULL_EVICT,
        "wait": _ON_FULL_WAIT,
        "error": _ON_FULL_ERROR,
    }
    return {
        "name": table.name,
        "max_size": table.max_size,
        "sampler": table.sampler.kind,
        "sampler_exponent": table.sampler.exponent,
        "remover": table.remover.kind,
        "remover_exponent": table.remover.exponent,
        "max_times_sampled": table.max_times_sampled,
        **table.rate_limiter.numbers(),
        "on_full": on_full[table.on_full],
        "item_steps": table.item_steps,
        "shard": table.shard,
    }

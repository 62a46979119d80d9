"""extend: puts whole arrays into a table, as one stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shmreplay import _core
from shmreplay.clients.handles.handle import EXPECTED_PRIORITY, Handle
from shmreplay.clients.writers.stream_handle import native_ends
from shmreplay.clients.writers.writer_rules import check_history, read_rules, room_for, steps_needed
from shmreplay.errors import RateLimitTimeout
from shmreplay.rules.windows import REACH_STRETCH, REACH_WHOLE_EPISODE
from shmreplay.tables.table import check_brings_no_values

ITEMS_AT_ONCE = 32  # the stream holds this many more steps, so that items of many rows go in under one hold of the lock
PRIORITIES_OF_COLUMNS = (2, 3)  # the kinds of priorities that a rule reads from a column

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Stream:
    """The arrays of a call, checked, and how items are made of them.

    Attributes:
        num_rows: N.
        columns: an array `[N, *shape]` for each column, in the signature's order. For a column in the heap a list of
            the N values' bytes, None for a missing value. None for a column that is per item.
        ends: bool `[N]`, True on an episode's last row; None if no row ends an episode.
        rules: the rules that make the items, as the core reads them. Without rules, every row is an item.
        native_ends: see the function of that name.
        history: how many steps the stream holds.
    """

    num_rows: int
    columns: list[Any]
    ends: Flags | None
    rules: list[dict[str, Any]]
    native_ends: tuple[list[int], int, bool]
    history: int


def extend(
    table: Handle, columns: Any, episode_ends: ArrayLike | None, count: bool, timeout_s: float | None
) -> NDArray[np.int64]:
    """Does what `TableHandle.extend` says."""
    if not count and table._native.info()["count_deletes"]:
        raise ValueError(
            f"{table._where}: count is False, but its rate limiter lets only counted items out (Queue, Stack); leave "
            "count out"
        )
    stream = _read(table, columns, episode_ends)
    went_in: list[tuple[NDArray[np.int64], int]] = []
    try:
        return _extend_into(went_in, table, stream, bool(count), timeout_s)
    except BaseException as error:
        if went_in:  # no call: see ARCHITECTURE.md, "Ctrl-C"
            error.keys, error.num_rows = went_in[0]  # type: ignore[attr-defined]
        raise


def _extend_into(
    went_in: list[tuple[NDArray[np.int64], int]], table: Handle, stream: Stream, count: bool, timeout_s: float | None
) -> NDArray[np.int64]:
    """Puts the stream in. The list gets the keys, and how many rows are in, also if it raises."""
    status, raised = table._native.extend(
        stream.columns,
        stream.ends,
        stream.history,
        stream.native_ends,
        stream.rules,
        not stream.native_ends[2],
        count,
        timeout_s,
        went_in,
    )
    if raised is not None:
        raise raised
    if status != 0:
        try:
            table._raise_status(status, "extend", timeout_s)
        except RateLimitTimeout as error:
            num_rows = went_in[0][1]
            done = f"{num_rows} of {stream.num_rows} rows are in: see the error's .num_rows and .keys"
            error.args = (f"{error}. {done}",)
            raise
    return went_in[0][0]


def _read(table: Handle, columns: Any, episode_ends: ArrayLike | None) -> Stream:
    sig = table._sig
    num = sig.batch_size(columns)
    check_brings_no_values(sig, f"{table._where}: extend makes items")
    arrays = table._conversion.checked_batch(sig.canonical(columns, batch=num))
    rules = [] if table.spec.item is None else read_rules([table.spec.item], table._where)
    compiled = [rule.native(sig, table._index, table._where) for rule in rules]
    native = native_ends(sig, rules)
    ends = _read_ends(table, num, arrays, episode_ends, native)
    for rule in compiled:
        _check_next_observations(table, arrays, ends, rule, native)
        _check_priorities(table, arrays, rule)
    stats = table._arena.stats()
    room = room_for(stats["num_chunks"] - 1, stats["chunk_steps"], rules, sig)
    needed = steps_needed(rules, sig)
    if any(rule["reach"] == REACH_WHOLE_EPISODE for rule in compiled):
        needed = _longest_episode(num, ends)
        if needed > table.spec.item_steps:
            raise ValueError(
                f"{table._where}: an episode has {needed} rows, but the table was declared with "
                f"item_steps={table.spec.item_steps} for its items, which are whole episodes"
            )
    check_history(needed, rules, sig, room, table._where)
    history = min(needed + ITEMS_AT_ONCE, room) if compiled else 0
    return Stream(num, arrays, ends if ends.any() else None, compiled, native, history)


def _read_ends(
    table: Handle,
    num: int,
    arrays: list[Any],
    episode_ends: ArrayLike | None,
    native: tuple[list[int], int, bool],
) -> Flags:
    """Where episodes end: as the caller says, else as the columns say. The caller must not contradict the columns."""
    columns, _, goes_across = native
    over = _any_of(num, arrays, columns)
    if episode_ends is None:
        return over
    given = np.asarray(episode_ends)
    if given.dtype != np.bool_ or given.shape != (num,):
        kind = TypeError if given.dtype != np.bool_ else ValueError
        raise kind(
            f"{table._where}: episode_ends has dtype {given.dtype} and shape {given.shape}; expected bool ({num},), "
            "True on each episode's last row"
        )
    for row in np.flatnonzero(over & ~given)[: 0 if goes_across else 1]:
        raise ValueError(
            f"{table._where}: row {row} was terminated or truncated, but episode_ends[{row}] is False; an episode ends "
            "there"
        )
    return _as_flags(given)


def _as_flags(array: NDArray[np.bool_]) -> Flags:
    """The flags as bytes of 0 and 1: a view of other memory may contain any byte, and the core looks for 1."""
    return np.asarray(np.ascontiguousarray(array).view(np.uint8) != 0)


def _any_of(num: int, arrays: list[Any], columns: list[int]) -> Flags:
    """Rows in which at least one of these bool columns is True."""
    found = np.zeros(num, np.bool_)
    for column in columns:
        found |= _as_flags(arrays[column])
    return found


def _check_next_observations(
    table: Handle,
    arrays: list[Any],
    ends: Flags,
    rule: dict[str, Any],
    native: tuple[list[int], int, bool],
) -> None:
    """Refuses an episode that did not terminate, if a window needs its final step: arrays have no row for it."""
    columns, truncated, _ = native
    moves = any(moves for _, _, moves, _ in rule["outputs"])
    looks_ahead = moves and rule["hi"] > 1 and rule["reach"] != REACH_STRETCH
    if not columns or not looks_ahead:
        return
    terminated = _any_of(len(ends), arrays, [column for column in columns if column != truncated])
    for row in np.flatnonzero(ends & ~terminated)[:1]:
        raise ValueError(
            f"{table._where}: row {row} ends an episode and was not terminated, and the table's items look at its next "
            "observation, for which arrays have no row; write such episodes with a writer and "
            "end_episode(final_step={...})"
        )


def _longest_episode(num: int, ends: Flags) -> int:
    borders = [-1, *np.flatnonzero(ends), num - 1]
    return max(int(np.diff(borders).max()), 1)


def _check_priorities(table: Handle, arrays: list[Any], rule: dict[str, Any]) -> None:
    """Checks the priorities that a rule reads from a column, in every row, so that the call does not fail half-way."""
    kind, _, column, _ = rule["priority"]
    if kind not in PRIORITIES_OF_COLUMNS:
        return
    values = np.asarray(arrays[column], np.float64)
    values = np.abs(values) if kind == PRIORITIES_OF_COLUMNS[1] else values
    for row in np.flatnonzero(~((values >= 0) & (values <= _core.MAX_PRIORITY)))[:1]:
        raise ValueError(
            f"{table._where}: row {row} of column {table._sig.leaves[column].path!r}, which priorities are read from, "
            f"is {arrays[column][row]}; {EXPECTED_PRIORITY}"
        )

"""extend: puts whole arrays into a table, as one stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shmreplay import _core
from shmreplay.clients.batches.arguments import read_array
from shmreplay.clients.handles.handle import EXPECTED_PRIORITY, Handle
from shmreplay.clients.writers.stream_handle import native_ends
from shmreplay.clients.writers.writer_rules import check_history, read_rules, room_for, steps_needed
from shmreplay.errors import RateLimitTimeout, SignatureMismatch
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
        finals: like `columns`, with the final step of each episode that ends; None for columns that final steps lack.
            None if there are no final steps.
        rules: the rules that make the items, as the core reads them. Without rules, every row is an item.
        native_ends: see the function of that name.
        history: how many steps the stream holds.
    """

    num_rows: int
    columns: list[Any]
    ends: Flags | None
    finals: list[Any] | None
    rules: list[dict[str, Any]]
    native_ends: tuple[list[int], int, bool]
    history: int


def extend(
    table: Handle,
    columns: Any,
    episode_ends: ArrayLike | None,
    final_steps: Any,
    count: bool,
    timeout_s: float | None,
) -> NDArray[np.int64]:
    """Does what `TableHandle.extend` says."""
    if not count and table._native.info()["count_deletes"]:
        raise ValueError(
            f"{table._where}: count is False, but its rate limiter lets only counted items out (Queue, Stack); leave "
            "count out"
        )
    stream = _read(table, columns, episode_ends, final_steps)
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
        stream.finals,
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


def _read(table: Handle, columns: Any, episode_ends: ArrayLike | None, final_steps: Any) -> Stream:
    sig = table._sig
    num = sig.batch_size(columns)
    check_brings_no_values(sig, f"{table._where}: extend makes items")
    arrays = table._conversion.checked_batch(sig.canonical(columns, batch=num))
    rules = [] if table.spec.item is None else read_rules([table.spec.item], table._where)
    compiled = [rule.native(sig, table._index, table._where) for rule in rules]
    native = native_ends(table.spec, rules)
    ends = _read_ends(table, num, arrays, episode_ends, native)
    finals = None if final_steps is None else _read_finals(table, final_steps, int(ends.sum()), compiled, native)
    for rule in compiled:
        _check_next_observations(table, arrays, ends, finals, rule, native)
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
    return Stream(num, arrays, ends if ends.any() else None, finals, compiled, native, history)


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
    given = read_array(table._where, "episode_ends", episode_ends, "bools, one a row")
    if given.dtype != np.bool_ or given.shape != (num,):
        kind = TypeError if given.dtype != np.bool_ else ValueError
        raise kind(
            f"{table._where}: episode_ends has dtype {given.dtype} and shape {given.shape}; expected bool ({num},), "
            "True on each episode's last row"
        )
    for row in np.flatnonzero(over & ~given)[: 0 if goes_across else 1]:
        names = " or ".join(repr(table._sig.leaves[column].path) for column in columns)
        raise ValueError(
            f"{table._where}: row {row} was terminated or truncated, but episode_ends[{row}] is False; an episode ends "
            f"there, as its column {names} says"
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


def _read_finals(
    table: Handle,
    final_steps: Any,
    num_ends: int,
    rules: list[dict[str, Any]],
    native: tuple[list[int], int, bool],
) -> list[Any]:
    """The columns of the final steps, None for those that they lack."""
    where = f"{table._where}: final_steps"
    if not rules:
        raise ValueError(
            f"{where} are given, but the table declares no item, so every row is one and none looks at a final step; "
            "leave final_steps out, or create the table with item=, such as sr.Transition()"
        )
    if native[2]:
        raise ValueError(
            f"{where} are given, but the table's item goes across episodes, so that final steps would be rows in the "
            "middle of items; leave final_steps out"
        )
    try:
        arrays = table._sig.canonical(final_steps, batch=num_ends, present=set())
    except SignatureMismatch as error:
        expected = f"expected one row for each of the {num_ends} ends of episodes, in order"
        raise SignatureMismatch(f"{error} (in final_steps; {expected})") from error
    arrays = table._conversion.checked_batch(arrays)
    if all(array is None for array in arrays):
        raise SignatureMismatch(
            f'{where} have no column; expected at least the observation, such as final_steps={{"observation": '
            f"observations}}, an array of {num_ends} rows"
        )
    for leaf in table._sig.leaves:
        if arrays[leaf.index] is None and leaf.spec.optional and not leaf.spec.is_per_item:
            arrays[leaf.index] = [_core.NO_VALUE] * num_ends
    return arrays


def _lacks_of_finals(finals: list[Any], rule: dict[str, Any]) -> int | None:
    """A column that final steps must have for a window that shows a next step, and lack."""
    shown = {column for column, _, moves, _ in rule["outputs"] if not moves}
    for column, is_squeezed, moves, _ in rule["outputs"]:
        if moves and (is_squeezed or column in shown) and finals[column] is None:
            return int(column)
    return None


def _check_next_observations(
    table: Handle,
    arrays: list[Any],
    ends: Flags,
    finals: list[Any] | None,
    rule: dict[str, Any],
    native: tuple[list[int], int, bool],
) -> None:
    """Refuses an episode that did not terminate, if a window needs its final step and there is none."""
    columns, truncated, _ = native
    moves = any(moves for _, _, moves, _ in rule["outputs"])
    looks_ahead = moves and rule["hi"] > 1 and rule["reach"] != REACH_STRETCH
    lacking = None if finals is None else _lacks_of_finals(finals, rule)
    if not columns or not looks_ahead or (finals is not None and lacking is None):
        return
    terminated = _any_of(len(ends), arrays, [column for column in columns if column != truncated])
    for row in np.flatnonzero(ends & ~terminated)[:1]:
        ended = (
            f"{table._where}: row {row} ends an episode and was not terminated, and the table's items look at its next"
        )
        if lacking is not None:
            path = table._sig.leaves[lacking].path
            raise ValueError(f"{ended} {path!r}, which final_steps lack; give it in final_steps, too")
        raise ValueError(
            f"{ended} observation, for which arrays have no row; give the final observations, one for each end: "
            'final_steps={"observation": ...}'
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
    if (row := table._native.first_bad_priority(np.ascontiguousarray(values))) >= 0:
        raise ValueError(
            f"{table._where}: row {row} of column {table._sig.leaves[column].path!r}, which priorities are read from, "
            f"is {arrays[column][row]}; {EXPECTED_PRIORITY}"
        )

"""extend: whole arrays into a table, as one stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shmreplay import _core
from shmreplay.clients.handle import EXPECTED_PRIORITY, raise_with
from shmreplay.clients.rules import check_history, read_rules, steps_needed
from shmreplay.clients.stream_handle import end_columns, native_ends
from shmreplay.errors import RateLimitTimeout, ShmReplayError
from shmreplay.windows import REACH_EPISODE, REACH_STRETCH, REACH_WHOLE_EPISODE

if TYPE_CHECKING:
    from shmreplay.clients.table import TableHandle

ITEMS_AT_ONCE = 32  # of a hold: so many steps more are held, that the items of many rows go in by one
PRIORITIES_OF_COLUMNS = (2, 3)  # kinds of priorities that a rule reads in the data

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Stream:
    """The arrays of a call, checked, and what is made of them.

    Attributes:
        columns: `[N, *shape]` each, in the signature's order.
        ends: bool `[N]`, True on an episode's last row; None if no row ends one.
        rule: what makes the items, as the core reads it.
        native_ends: of a stream with that rule; see there.
        history: steps that the stream holds.
    """

    columns: list[NDArray[Any]]
    ends: Flags | None
    rule: dict[str, Any]
    native_ends: tuple[list[int], int, bool]
    history: int


def extend(
    table: TableHandle, columns: Any, episode_ends: ArrayLike | None, count: bool, timeout_s: float | None
) -> NDArray[np.int64]:
    """Does what `TableHandle.extend` says."""
    if not count and table._native.info()["count_deletes"]:
        raise ValueError(
            f"{table._where}: count is False, but its rate limiter lets only counted items out (Queue, Stack); leave "
            "count out"
        )
    stream = _read(table, columns, episode_ends)
    status, found, num_rows, raised = table._native.extend(
        stream.columns,
        stream.ends,
        stream.history,
        stream.native_ends,
        [stream.rule],
        stream.rule["reach"] != REACH_STRETCH,
        count,
        timeout_s,
    )
    keys: NDArray[np.int64] = found
    if raised is not None:
        raise_with(raised, keys=keys, num_rows=num_rows)
    if status != 0:
        try:
            table._raise_status(status, "extend", timeout_s)
        except RateLimitTimeout as error:
            done = f"{num_rows} of {len(stream.columns[0])} rows are in: see the error's .num_rows and .keys"
            error.args = (f"{error}. {done}",)
            raise_with(error, keys=keys, num_rows=num_rows)
        except (ShmReplayError, ValueError) as error:
            raise_with(error, keys=keys, num_rows=num_rows)
    return keys


def _read(table: TableHandle, columns: Any, episode_ends: ArrayLike | None) -> Stream:
    sig = table._sig
    num = sig.batch_size(columns)
    arrays: list[NDArray[Any]] = [array for array in sig.canonical(columns, batch=num) if array is not None]
    rules = [] if table.spec.item is None else read_rules([table.spec.item], table._where)
    rule = rules[0].native(sig, table._index, table._where) if rules else _single_steps(len(arrays), table._index)
    native = native_ends(sig, rules)
    ends = _read_ends(table, arrays, episode_ends, rule, native)
    _check_priorities(table, arrays, rule)
    stats = table._arena.stats()
    room = (stats["num_chunks"] - 2) * stats["chunk_steps"]
    needed = steps_needed(rules, sig)
    if rule["reach"] == REACH_WHOLE_EPISODE:
        needed = _longest_episode(num, ends)
        if needed > table.spec.item_steps:
            raise ValueError(
                f"{table._where}: an episode has {needed} rows, but the table was declared with "
                f"item_steps={table.spec.item_steps} for its items, which are whole episodes"
            )
    check_history(needed, rules, sig, room, table._where)
    check_history(needed, rules, sig, room, table._where)
    return Stream(arrays, ends, rule, native, min(needed + ITEMS_AT_ONCE, room))


def _single_steps(num_columns: int, table: int) -> dict[str, Any]:
    """The rule by which every step is an item, squeezed, as `insert` makes it."""
    return {
        "table": table,
        "lo": 0,
        "hi": 1,
        "period": 1,
        "at_start": 0,
        "at_end": 0,
        "reach": REACH_EPISODE,
        "is_strict": True,
        "names": b"",
        "outputs": [(column, True, False, ((0, 1, 1),)) for column in range(num_columns)],
        "conditions": [],
        "priority": (0, 0.0, 0),
    }


def _read_ends(
    table: TableHandle,
    arrays: list[NDArray[Any]],
    episode_ends: ArrayLike | None,
    rule: dict[str, Any],
    native: tuple[list[int], int, bool],
) -> Flags | None:
    """Where episodes end: as given, else where the columns say so; checked against these."""
    num = len(arrays[0])
    over = np.zeros(num, np.bool_)
    for column, _ in end_columns(table._sig):
        over |= arrays[column]
    ends: Flags = over
    if episode_ends is not None:
        given = np.asarray(episode_ends)
        if given.dtype != np.bool_ or given.shape != (num,):
            kind = TypeError if given.dtype != np.bool_ else ValueError
            raise kind(
                f"{table._where}: episode_ends has dtype {given.dtype} and shape {given.shape}; expected bool "
                f"({num},), True on each episode's last row"
            )
        ends = np.ascontiguousarray(given)
        across = native[2]
        for row in np.flatnonzero(over & ~ends)[: 0 if across else 1]:
            raise ValueError(
                f"{table._where}: row {row} was terminated or truncated, but episode_ends[{row}] is False; an episode "
                "ends there"
            )
    truncated = native[1]
    looks_ahead = any(moves for _, _, moves, _ in rule["outputs"]) and rule["reach"] != REACH_STRETCH
    if truncated >= 0 and looks_ahead:
        terminated = [arrays[column] for column in native[0] if column != truncated]
        only = arrays[truncated] & ~np.logical_or.reduce([np.zeros(num, np.bool_), *terminated])
        for row in np.flatnonzero(only & ends)[:1]:
            raise ValueError(
                f"{table._where}: row {row} was truncated, and the table's items look at its next observation, for "
                "which arrays have no row; write such episodes with a writer and end_episode(final_step={...})"
            )
    return ends if ends.any() else None


def _longest_episode(num: int, ends: Flags | None) -> int:
    borders = [-1, *(np.flatnonzero(ends) if ends is not None else []), num - 1]
    return max(int(np.diff(borders).max()), 1)


def _check_priorities(table: TableHandle, arrays: list[NDArray[Any]], rule: dict[str, Any]) -> None:
    """What a rule reads priorities from must be fit for it in every row, so that none fails half-way."""
    kind, _, column = rule["priority"]
    if kind not in PRIORITIES_OF_COLUMNS:
        return
    values = np.asarray(arrays[column], np.float64)
    values = np.abs(values) if kind == PRIORITIES_OF_COLUMNS[1] else values
    for row in np.flatnonzero(~((values >= 0) & (values <= _core.MAX_PRIORITY)))[:1]:
        raise ValueError(
            f"{table._where}: row {row} of column {table._sig.leaves[column].path!r}, which priorities are read from, "
            f"is {arrays[column][row]}; {EXPECTED_PRIORITY}"
        )

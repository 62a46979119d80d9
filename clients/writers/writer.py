"""Writer: appends one stream of steps, and makes items of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from shmreplay import _core
from shmreplay.clients.handles.handle import EXPECTED_PRIORITY, Handle
from shmreplay.clients.writers.history import Selection, cell_value, expired, history_of, missing
from shmreplay.clients.writers.last_items import LastItems
from shmreplay.clients.writers.selection_rule import selection_rule
from shmreplay.clients.writers.stream_handle import CLOSE_TIMEOUT_S, StreamHandle, native_ends
from shmreplay.columns.codecs import Bytes
from shmreplay.errors import RateLimitTimeout, ShmReplayError, SignatureMismatch
from shmreplay.rules.item_rules import Rule

NO_KEYS = np.empty(0, np.int64)
NO_KEYS.flags.writeable = False


class Writer(StreamHandle):
    """Steps of one environment, in order. Made by `table.writer()`; a context manager; for one thread at a time.

    Row t holds observation t, any state before action t, action t, and its outcome: reward, terminated, truncated. The
    final observation of an episode is one more row, which has only some of the columns: append it with `partial=True`,
    make the items that end with it, and call `end_episode`.
    """

    _native: _core.Writer
    _made_by = "table.writer"
    _item_call = "create_item"
    _end_call = "end_episode"
    _end_call_with_final = "end_episode(final_step={...})"
    _final_row_first = "; items by hand that reach it come between append(final_step, partial=True) and end_episode()"

    def __init__(self, table: Handle, history: int, rules: Sequence[Rule] = (), commit_every: int = 1) -> None:
        super().__init__(table, history, rules)
        ends = native_ends(table.spec, rules)
        self._native = _core.Writer(table._native, history, ends, self._native_rules(), commit_every)
        self._client = table._client
        self._last_items = LastItems(self._native, self._where)
        if commit_every > 1:
            self._last_items.keep(self, self._client)
        self._longest_plain = _longest_plain(table, history)

    def append(
        self, step: Any, partial: bool = False, priority: float | None = None, timeout_s: float | None = None
    ) -> NDArray[np.int64]:
        """Appends a step; its values are copied.

        Args:
            step: values in the table's structure. Optional columns may be left out; with `partial`, or while a row is
                open, any column may be. Columns that are per item are not part of a step.
            partial: leave the row open: a later append adds columns to it, `create_item` sees it as the newest step,
                and `end_episode` makes it the final one.
            priority: of the items that windows and patterns make, unless these have a priority of their own. None: as
                in `TableHandle.insert`.
            timeout_s: seconds to wait for room, and for the rate limiters of the items' tables.

        Returns:
            int64: the keys of the items that windows and patterns made, in their order. With `commit_every` above 1:
            the keys of all items that went in since keys were last returned.

        Raises:
            SignatureMismatch: a value does not fit, or a column is missing or was given twice; the row is unchanged.
            ShmReplayError: the last step ended its episode and `end_episode` was not called; or the writer is closed.
            RateLimitTimeout: not admitted in time: neither the row nor its items went in; the call may be repeated.
                Items of several tables go in together. Only if they are more than a rate limiter can admit at once,
                such as more than the size of a queue, they go in one after the other, and the repeated call goes on
                with the rest. Items of earlier calls that were held back went in as far as they were admitted; the
                others are still held back.
        """
        answer: Any = _core.ROW_IS_OPEN
        if not (partial or self._client._closed.is_set):
            # The core tries first. Only if it returns no keys, the reason is looked for here.
            answer = self._native.append(step, priority, timeout_s)
            if type(answer) is np.ndarray:
                return answer
        self._check_open()
        if answer == _core.ROW_IS_OPEN:
            return self._append_open(step, partial, priority, timeout_s)
        return self._keys(answer, "append", timeout_s)

    def _append_open(
        self, step: Any, partial: bool, priority: float | None, timeout_s: float | None
    ) -> NDArray[np.int64]:
        answer: Any = self._native.append_part(step, not partial, priority, timeout_s)
        if type(answer) is np.ndarray or answer != _core.NEEDS_PYTHON:
            return self._keys(answer, "append", timeout_s)
        if self._native.forked:
            self._raise_status(_core.STATUS_FORKED, "append", timeout_s)
        if self._native.is_unfinished:
            return self._keys(self._native.go_on(timeout_s), "append", timeout_s)
        # After the end of an episode only the final row may follow, which stays open until end_episode.
        if not partial and self._native.needs_end_episode:
            self._raise_status(_core.NEEDS_END_EPISODE, "append", timeout_s)
        present = set(self._native.present())
        arrays = self._table._conversion.checked(self._sig.canonical(step, present=present))
        if not partial:
            self._leave_out(arrays, present)
        if not partial and (missing := [leaf.path for leaf in self._sig.leaves if leaf.index not in present]):
            raise SignatureMismatch(
                f"{self._where}, column {missing[0]!r}: missing, and this append would finish the row; give "
                f"{', '.join(map(repr, missing))} too, or append with partial=True"
            )
        return self._keys(self._native.write_open(arrays, not partial, priority, timeout_s), "append", timeout_s)

    def _leave_out(self, columns: list[Any], present: set[int]) -> None:
        """Completes a row: gives optional columns that it lacks no value, and counts columns per item as present."""
        for leaf in self._sig.leaves:
            if leaf.index in present:
                continue
            if leaf.spec.is_per_item:
                present.add(leaf.index)
            elif leaf.spec.optional:
                columns[leaf.index] = _core.NO_VALUE
                present.add(leaf.index)

    def _finish_final_row(self, priority: float | None, timeout_s: float | None) -> None:
        """Gives optional columns that the open row lacks at the end of an episode no value."""
        if not self._native.row_is_open or self._native.is_ending:
            return
        columns: list[Any] = [None] * len(self._sig.leaves)
        self._leave_out(columns, set(self._native.present()))
        if any(column is not None for column in columns):
            self._keys(self._native.write_open(columns, False, priority, timeout_s), "end_episode", timeout_s)

    def _keys(self, answer: Any, call: str, timeout_s: float | None) -> NDArray[np.int64]:
        """The keys that a native call returned; raises the error that a status stands for."""
        if isinstance(answer, np.ndarray):
            return answer
        if isinstance(answer, tuple):
            if answer[0] == _core.NEEDS_FINAL_STEP:
                self._raise_needs_final(answer[2])
            self._raise_missing(call, *answer[1:])
        if answer != 0:
            self._raise_status(answer, call, timeout_s, self._native.blocking_table)
        return NO_KEYS

    def create_item(
        self,
        priority: float | None = None,
        length: int | None = None,
        trajectory: Any = None,
        values: Any = None,
        table: str | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """Makes an item of the newest `length` steps, an open row included.

        In batches it is `[length, ...]` in every column. For a column that the open row lacks, `.mask` is False in the
        last row.

        Args:
            priority: finite, >= 0. None: as in `TableHandle.insert`.
            length: number of steps, from 1 to as many as the writer holds of this episode, which is at most `history`.
            trajectory: instead of `length`: a nested dict, list or tuple of selections, such as
                `{"stack": writer.history["observation"][-4:], "action": writer.history["action"][-1]}`. A selection by
                an int has no step axis. Every selected step must have its column.
            values: the values of columns that are per item, such as `{"goal": goal}`, in the structure of the signature
                without the other columns. In batches they are under their own names, without a step axis.
            table: the name of the table that gets the item, in the writer's arena. None: the writer's own table.
            timeout_s: seconds to wait for the rate limiter, and for room for `values`.

        Returns:
            The item's key; 0 if the item is held back (`commit_every`). Then a later `append`, `end_episode` or `flush`
            returns its key. An item with `values` is never held back.

        Raises:
            RateLimitTimeout: not admitted in time; no item was made, the steps are still there.
            ValueError: fewer than `length` steps are held, or `length` is more than the table's `item_steps` if those
                are more than 1; the priority is negative or not finite; a leaf of the trajectory selects no step, or
                steps of another writer.
            TypeError: neither `length` nor `trajectory` is given, or a leaf of the trajectory is not a selection.
            ShmReplayError: a selected step has left the history.
            SignatureMismatch: the table's items have another structure; a selected step lacks the column; or the item
                would contain the final step of an earlier episode (`end_episode(clear_history=False)`), which lacks a
                column.
        """
        self._makes_items = True
        is_plain = trajectory is None and values is None and table is None and not self._client._closed.is_set
        if is_plain and type(length) is int and 0 < length <= self._longest_plain:
            # As in append: the core tries first, and if it makes no item, the reason is looked for.
            if (key := self._native.create_item(length, priority, timeout_s)) >= 0:
                return key
            self._check_open()
            self._check_held(length)
            self._raise_not_made(key, length, priority, timeout_s, self._table.name)
        if trajectory is not None:
            if length is not None:
                raise ValueError(f"{self._where}: length= and trajectory= are both given; expected one of them")
            return self._create_selected(trajectory, values, table, priority, timeout_s)
        self._check_open()
        index = self._table_index(table)
        spec = self._specs[index]
        self._check_no_item_declared(spec)
        if length is None:
            raise TypeError(
                f"{self._where}: create_item has no length; pass length=..., or trajectory=... (its first argument is "
                "the priority)"
            )
        length = self._check_length(length, spec)
        self._check_held(length)
        key = self._native.create_item(length, priority, timeout_s, self._item_values(values), index)
        if key < 0:
            self._raise_not_made(key, length, priority, timeout_s, spec.name)
        return key

    def _check_held(self, length: int) -> None:
        if length > self._native.num_steps:
            raise ValueError(
                f"{self._where}: length is {length}, but the writer holds {self._native.num_steps} steps of this "
                f"episode (history={self._history}); wait for more steps, or make the writer with a longer history"
            )

    def _raise_not_made(
        self, key: int, length: int, priority: float | None, timeout_s: float | None, table: str
    ) -> NoReturn:
        """Raises the error for an item of `length` steps that the core did not make in that table."""
        if key == _core.BAD_PRIORITY:
            raise ValueError(f"table {table!r}: priority is {priority!r}; {EXPECTED_PRIORITY}")
        if key == _core.LACKS_COLUMN:
            allowed = self._native.num_whole + (1 if self._native.row_is_open else 0)
            raise SignatureMismatch(
                f"{self._where}: length is {length}, but one of these steps has no column for a part of the signature: "
                "the final step of an episode that end_episode(clear_history=False) kept. Only the newest step of an "
                f"item may lack columns, and only before end_episode(); expected a length of at most {allowed}"
            )
        if key == _core.UNFINISHED:
            self._raise_status(key, "create_item", timeout_s)
        if key == -_core.STATUS_STRUCTURE:
            raise SignatureMismatch(
                f"table {table!r}: its items are others, single steps (made by insert) or trajectories; items of "
                "length= show every column with a step axis, and belong in another table"
            )
        self._raise_status(-key, "create_item", timeout_s, self._native.blocking_table)

    def _item_values(self, values: Any) -> Bytes | None:
        if values is None and not self._sig.item_leaves:
            return None
        return self._table._conversion.checked_values(self._sig.item_values(values))

    def _held(self) -> tuple[int, int]:
        oldest = self._native.oldest_step
        return oldest, oldest + self._native.num_steps - 1

    def _create_selected(
        self, trajectory: Any, values: Any, table: str | None, priority: float | None, timeout_s: float | None
    ) -> int:
        self._check_open()
        brought = self._item_values(values)
        selection = self._selected(trajectory, table, Selection)
        key = self._native.create_selected(selection, priority, timeout_s, brought)
        if isinstance(key, int) and key >= 0:
            return key
        if key == _core.BAD_PRIORITY:
            target = self._specs[self._table_index(table)].name
            raise ValueError(f"table {target!r}: priority is {priority!r}; {EXPECTED_PRIORITY}")
        if key == -_core.STATUS_STRUCTURE:
            rule = selection_rule(*self._read_selection(trajectory, Selection), self._table_index(table))
            self._raise_structure(f"{self._where}: create_item", [("trajectory", rule)])
        self._keys(-key if isinstance(key, int) and key != _core.UNFINISHED else key, "create_item", timeout_s)
        raise AssertionError("unreachable")

    def end_episode(
        self,
        final_step: Any = None,
        clear_history: bool = True,
        priority: float | None = None,
        timeout_s: float | None = None,
    ) -> NDArray[np.int64]:
        """Ends the episode: the next step begins another one.

        Args:
            final_step: the final observation, and what else is known of it. It is appended with `partial=True`.
            clear_history: False lets later items reach back into this episode.
            priority, timeout_s: as in `append`. To go on after a timeout, repeat the call without `final_step`.

        Returns:
            int64: the keys of the items that windows and patterns made, and of those that were held back.

        Raises:
            ShmReplayError: the episode did not terminate, a window needs the step after the last one, and there is no
                final step, or it lacks a column that the window shows. This is checked in tables that have `terminated`
                or `truncated`. The row is unchanged: repeat the call with the final step.
            RateLimitTimeout, SignatureMismatch: as in `append`.
        """
        self._check_open()
        before = self._native.present()
        if final_step is not None:
            self._check_final(final_step, "final_step")
        if final_step is not None and not self._native.is_ending:
            self.append(final_step, partial=True, priority=priority, timeout_s=timeout_s)
        try:
            self._finish_final_row(priority, timeout_s)
            answer = self._native.end_episode(bool(clear_history), priority, timeout_s)
            return self._keys(answer, "end_episode", timeout_s)
        except BaseException:
            if not self._native.is_ending:
                self._native.restore_row(before)  # so that the call can be repeated as it was
            raise

    def flush(self, timeout_s: float | None = None) -> NDArray[np.int64]:
        """Puts in the items that `commit_every` holds back.

        Args:
            timeout_s: seconds to wait for the rate limiters of the items' tables.

        Returns:
            int64: the keys of all items that went in since keys were last returned.

        Raises:
            RateLimitTimeout: not all were admitted in time; the others are still held back.
        """
        self._check_open()
        return self._keys(self._native.flush(timeout_s), "flush", timeout_s)

    def _flush_before_close(self, failed: bool) -> None:
        """Puts in the last items. If they are not admitted: raises, or only logs it if there is another error."""
        if self._native.num_held_back == 0:
            return
        try:
            self.flush(0 if failed else CLOSE_TIMEOUT_S)
        except (ShmReplayError, ValueError) as error:
            if isinstance(error, RateLimitTimeout) and not failed:
                raise  # the writer stays open: flush() and close() may be called again
            self._warn_of_lost(error)

    def _warn_of_lost(self, why: object) -> None:
        self._last_items.warn(why)

    def _has_appended(self) -> bool:
        return self._native.oldest_step + self._native.num_steps > 0

    @property
    def history(self) -> Any:
        """The steps that the writer holds, in the signature's structure: `writer.history["observation"][-4:]`."""
        self._check_open()
        return history_of(self)

    def _cell(self, step: int, column: int) -> Any:
        self._check_open()
        if self._native.forked:
            self._raise_status(_core.STATUS_FORKED, "history", None)
        leaf = self._sig.leaves[column]
        if step < self._native.oldest_step:
            raise expired(self._where, leaf.path, step, self._native.oldest_step)
        value = self._native.read_cell(step, column)
        if value is None:
            raise missing(self._where, leaf.path, step)
        return cell_value(value, leaf)

    @property
    def episode_steps(self) -> int:
        """Finished steps of the current episode."""
        return int(self._native.episode_steps)


def _longest_plain(table: Handle, history: int) -> int:
    """The longest item that the core may make from its length alone, without further checks here; 0: none."""
    if table.spec.item is not None or table._sig.item_leaves:
        return 0
    return table.spec.item_steps if table.spec.item_steps > 1 else history + 1  # an open row counts, too

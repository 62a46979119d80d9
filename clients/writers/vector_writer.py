"""VectorWriter: appends to the streams of N environments, all with one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shmreplay import _core
from shmreplay.clients.batches.arguments import float_array, read_array
from shmreplay.clients.handles.handle import EXPECTED_PRIORITY, Handle
from shmreplay.clients.writers.history import cell_value, expired, missing
from shmreplay.clients.writers.stream_handle import StreamHandle, native_ends
from shmreplay.clients.writers.vector_history import VectorSelection, vector_history_of
from shmreplay.clients.writers.writer import NO_KEYS
from shmreplay.errors import RateLimitTimeout, ShmReplayError, SignatureMismatch
from shmreplay.rules.item_rules import Rule
from shmreplay.tables.table import check_brings_no_values

Keys = NDArray[np.int64]
K = TypeVar("K")  # keys, in the shape that a call returns them
# What a native call returns: a status, the number of rows done, the row, step and column that the status is about,
# keys, and an exception.
Answer = tuple[int, int, int, int, int, Any, BaseException | None]


@dataclass(frozen=True)
class Rows:
    """Which rows of the caller's arrays a call uses, and which stream each belongs to.

    Attributes:
        num: how many rows the arrays have.
        numbers: int64, the numbers of the rows to be used, ascending.
        streams: int64, the stream of each of these rows.
    """

    num: int
    numbers: NDArray[np.int64]
    streams: NDArray[np.int64]


class VectorWriter(StreamHandle):
    """Steps of N environments. Made by `table.vector_writer()`; a context manager; for one thread at a time.

    It works as N `Writer`s and makes the same items, each of the steps of one stream, with one native call for all.
    Row i of the arguments belongs to stream i, or to stream `streams[i]`; rows where `mask` is False are skipped. A
    call works on one row after the other; a row and its items go in together or not at all.

    An error that ends a call half-way (RateLimitTimeout, KeyboardInterrupt or any other) has `.done`, a bool for each
    row: True if nothing is left to do for it, which includes skipped rows. Its `.keys` are those of the rows that are
    done. The same call with `mask=~error.done` does the rest. Wrong arguments are found before anything is written.
    """

    _native: _core.VectorWriter
    _made_by = "table.vector_writer"
    _item_call = "create_items"
    _end_call = "end_episodes"
    _end_call_with_final = "end_episodes(mask, final_steps={...})"

    def __init__(self, table: Handle, num_streams: int, history: int, rules: Sequence[Rule] = ()) -> None:
        super().__init__(table, history, rules)
        self._client = table._client
        self._num_streams = num_streams
        self._all_rows = Rows(num_streams, np.arange(num_streams), np.arange(num_streams))
        self._native = _core.VectorWriter(
            table._native, num_streams, history, native_ends(table.spec, rules), self._native_rules()
        )

    @property
    def num_streams(self) -> int:
        """N, the number of streams."""
        return self._num_streams

    def append(
        self,
        steps: Any,
        mask: ArrayLike | None = None,
        streams: ArrayLike | None = None,
        partial: bool = False,
        priority: float | None = None,
        timeout_s: float | None = None,
    ) -> Keys:
        """Appends a step to each stream; the values are copied.

        Args:
            steps: the table's structure with arrays `[N, *shape]`, or `[len(streams), *shape]`. With `partial`, or
                while a row is open, columns may be left out.
            mask: bool, one a row. False: the row is not a step and its values are ignored, such as the row that an
                environment with next-step autoreset returns from its reset. None: all rows are steps.
            streams: distinct integers from 0 to N - 1: the stream of each row, if not all environments stepped, as in
                EnvPool.
            partial: leave the rows open, as in `Writer.append`.
            priority: of the items that windows and patterns make, unless these have a priority of their own.
            timeout_s: seconds to wait for room, and for the rate limiters of the items' tables.

        Returns:
            int64 `[rows, patterns]`: keys of the items that windows and patterns made; 0 where none was made.

        Raises:
            SignatureMismatch: a value does not fit, or a column is missing or was given twice.
            TypeError, ValueError: `mask` or `streams` has a wrong dtype, shape or value.
            ShmReplayError: a stream's last step ended its episode and `end_episodes` was not called for it; or the
                writer is closed.
            RateLimitTimeout: not admitted in time: see `.done` and `.keys`. Rows that are not done did not go in at
                all.
        """
        if self._is_closed or self._client._closed.is_set:
            self._check_open()
        if priority is not None:
            self._check_priority(priority)
        rows = self._all_rows if mask is None and streams is None else self._rows(mask, streams)
        steps = self._without_others(steps, rows)
        leaves_open = bool(partial)
        is_whole = not leaves_open and not self._native.any_open

        def work(answers: list[Answer]) -> Answer:
            of = rows.numbers, rows.streams, priority, timeout_s, answers
            if is_whole:
                return self._native.append(steps, rows.num, *of)
            if (answer := self._native.append_part(steps, rows.num, not leaves_open, *of)) is not None:
                return answer
            arrays = self._columns(steps, rows)
            if not leaves_open:
                self._leave_out(arrays)
            return self._native.write_open(arrays, not leaves_open, *of)

        def keys_of(answer: Answer) -> Keys:
            return self._spread(answer[5], rows, len(self._rules))

        return self._all(work, keys_of, rows, "append", timeout_s)

    def create_items(
        self,
        length: int | None = None,
        trajectory: Any = None,
        priorities: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        timeout_s: float | None = None,
    ) -> Keys:
        """Makes an item of each stream's newest steps, an open row included; see `Writer.create_item`.

        Args:
            length: steps of each item; every stream must hold so many.
            trajectory: instead of `length`: a nested dict, list or tuple of selections, such as
                `{"stack": writer.history["observation"][-4:]}`. A selection means the same steps in every stream,
                counted from its newest step.
            priorities: `[N]`, finite, >= 0. None: as in `TableHandle.insert`.
            mask: bool `[N]`. False: make no item of this stream.
            timeout_s: seconds to wait for the rate limiter.

        Returns:
            int64 `[N]`: the keys; 0 where the mask is False.

        Raises:
            ValueError: a stream holds fewer steps, or a priority is negative or not finite. No item was made.
            TypeError: neither `length` nor `trajectory` is given.
            SignatureMismatch: the table's items have another structure, or a selected step lacks the column.
            RateLimitTimeout: not admitted in time: see `.done` and `.keys`.
        """
        self._check_open()
        if (length is None) == (trajectory is None):
            given = "neither length= nor trajectory= is" if length is None else "length= and trajectory= are both"
            kind = TypeError if length is None else ValueError
            raise kind(f"{self._where}: create_items: {given} given; expected one of them")
        if self._sig.item_leaves:
            check_brings_no_values(self._sig, f"{self._where}: create_items makes an item")
        self._makes_items = True
        rows = self._rows(mask, None)
        values = self._priorities(priorities, rows)
        selection = -1
        if trajectory is not None:
            selection = self._selected(trajectory, None, VectorSelection)
        else:
            self._check_no_item_declared(self._table.spec)
            length = self._check_length(length, self._table.spec)

        def work(answers: list[Answer]) -> Answer:
            of = rows.numbers, rows.streams, timeout_s, answers
            return self._native.create_items(length or 0, selection, values, *of)

        def keys_of(answer: Answer) -> Keys:
            return self._spread(answer[5], rows)

        return self._all(work, keys_of, rows, "create_items", timeout_s, length)

    def end_episodes(
        self,
        mask: ArrayLike,
        final_steps: Any = None,
        clear_history: bool = True,
        priority: float | None = None,
        timeout_s: float | None = None,
    ) -> list[Keys]:
        """Ends the episodes of some streams: the next step of each begins another one.

        Args:
            mask: bool `[N]`. True: end the episode of this stream.
            final_steps: the final observations, and what else is known of these steps: the table's structure with
                arrays `[N, *shape]`. Columns may be left out; rows where the mask is False are ignored.
            clear_history: False lets later items reach back into these episodes.
            priority, timeout_s: as in `append`.

        Returns:
            For each of the N streams an int64 array: the keys of the items that windows and patterns made, perhaps
            several of each. Empty where the mask is False.

        Raises:
            ShmReplayError: an episode needs a final step, or a column of one, that is missing: see
                `Writer.end_episode`. Nothing was ended.
            RateLimitTimeout, SignatureMismatch, TypeError, ValueError: as in `append`.
        """
        if self._native.masks_all(mask) and not self._is_closed:
            return [NO_KEYS] * self._num_streams  # what most calls ask for that come after each step
        self._check_open()
        self._check_priority(priority)
        rows = self._rows(mask, None)
        arrays = None
        if final_steps is not None:
            self._check_final(final_steps, "final_steps")
            arrays = self._columns(self._without_others(final_steps, rows), rows)
        elif self._native.any_open and self._sig.has_optional:
            arrays = [None] * len(self._sig.leaves)
        if arrays is not None:
            self._leave_out(arrays)

        def work(answers: list[Answer]) -> Answer:
            of = rows.numbers, rows.streams, priority, timeout_s, answers
            return self._native.end_episodes(arrays, bool(clear_history), *of)

        def keys_of(answer: Answer) -> list[Keys]:
            keys = [NO_KEYS] * rows.num
            if answer[5] is not None:
                found, counts = answer[5]
                for number, part in zip(rows.numbers, np.split(found, np.cumsum(counts)[:-1]), strict=False):
                    keys[number] = part
            return keys

        return self._all(work, keys_of, rows, "end_episodes", timeout_s)

    def flush(self, timeout_s: float | None = None) -> None:
        """Does nothing but check that the writer is open: items of a VectorWriter are not held back."""
        self._check_open()

    def _has_appended(self) -> bool:
        native = self._native
        return any(native.oldest_step(stream) + native.num_steps(stream) > 0 for stream in range(self._num_streams))

    @property
    def history(self) -> Any:
        """The steps that the streams hold, in the signature's structure, for `create_items(trajectory=)`.

        `writer.history["observation"][-4:]` selects the same steps in every stream, counted from its newest step.
        """
        self._check_open()
        return vector_history_of(self)

    @property
    def num_steps(self) -> NDArray[np.int64]:
        """Steps that each stream holds, an open row included; int64 `[N]`."""
        return np.array([self._native.num_steps(stream) for stream in range(self._num_streams)], np.int64)

    @property
    def episode_steps(self) -> NDArray[np.int64]:
        """Finished steps of each stream's current episode; int64 `[N]`."""
        return np.array([self._native.episode_steps(stream) for stream in range(self._num_streams)], np.int64)

    def _check_priority(self, priority: Any) -> None:
        if priority is not None and np.ndim(priority) > 0:
            raise TypeError(
                f"{self._where}: priority has shape {np.shape(priority)}; expected one number for the items of all "
                "streams, or None. One a stream comes from a column, the window's priority='name', or goes to "
                "create_items(priorities=)"
            )

    def _columns(self, steps: Any, rows: Rows) -> list[Any]:
        """The columns of rows that stay open, or of open rows that are finished."""
        columns = self._sig.canonical(steps, batch=rows.num, present=set(), used=rows.numbers)
        return self._table._conversion.checked_batch(columns)

    def _without_others(self, steps: Any, rows: Rows) -> Any:
        """The steps, with empty values in the rows that the mask leaves out: the caller may have put anything there."""
        if rows is self._all_rows or len(rows.numbers) == rows.num or not self._sig.has_heap:
            return steps
        parts, chosen = self._sig.parts(steps), set(rows.numbers.tolist())
        for i, leaf in enumerate(self._sig.leaves):
            values = parts[i]
            if leaf.spec.in_heap and isinstance(values, (list, tuple)):
                nothing = None if leaf.is_whole_step else np.zeros(leaf.spec.least_shape, leaf.spec.dtype)
                parts[i] = [value if number in chosen else nothing for number, value in enumerate(values)]
        return self._sig.unflatten(parts)

    def _leave_out(self, columns: list[Any]) -> None:
        """Gives optional columns that finished rows lack no value."""
        for leaf in self._sig.leaves:
            if leaf.spec.optional and not leaf.spec.is_per_item and columns[leaf.index] is None:
                columns[leaf.index] = _core.NO_VALUE

    def _spread(self, found: Keys | None, rows: Rows, *shape: int) -> Keys:
        """The keys of all rows of a call: those found for its used rows, 0 for the others."""
        if rows is self._all_rows and found is not None:
            return found.reshape(rows.num, *shape)
        keys = np.zeros((rows.num, *shape), np.int64)
        if found is not None:
            keys[rows.numbers] = found.reshape(len(rows.numbers), *shape)
        return keys

    def _rows(self, mask: ArrayLike | None, streams: ArrayLike | None) -> Rows:
        if mask is None and streams is None:
            return self._all_rows
        owners = np.arange(self._num_streams) if streams is None else self._read_streams(streams)
        num = len(owners)
        if mask is None:
            return Rows(num, np.arange(num), owners)
        chosen = read_array(self._where, "mask", mask, "bools, one a row")
        if chosen.dtype != np.bool_:
            raise TypeError(f"{self._where}: mask has dtype {chosen.dtype}; expected bool, one a row")
        if chosen.shape != (num,):
            raise ValueError(f"{self._where}: mask has shape {chosen.shape}; expected ({num},), one a row")
        numbers = np.flatnonzero(chosen)
        return Rows(num, numbers, owners[numbers])

    def _read_streams(self, streams: ArrayLike) -> NDArray[np.int64]:
        given = read_array(self._where, "streams", streams, "integers, one a row")
        if given.ndim != 1:
            raise ValueError(f"{self._where}: streams have shape {given.shape}; expected one axis, one stream a row")
        if given.dtype.kind not in "iu" and given.size > 0:
            raise TypeError(f"{self._where}: streams have dtype {given.dtype}; expected integers")
        for position in np.flatnonzero((given < 0) | (given >= self._num_streams)):
            raise ValueError(
                f"{self._where}: streams[{position}] is {given[position]}; expected 0 to {self._num_streams - 1}"
            )
        owners = given.astype(np.int64)
        if len(np.unique(owners)) < len(owners):
            twice = int(np.flatnonzero(np.bincount(owners) > 1)[0])
            raise ValueError(f"{self._where}: stream {twice} is in streams twice; a call has one row of each at most")
        return owners

    def _priorities(self, priorities: ArrayLike | None, rows: Rows) -> NDArray[np.float64]:
        """The priority of each row; -1 for the default."""
        if priorities is None:
            return np.full(rows.num, -1.0)
        values = float_array(self._where, "priorities", priorities)
        if len(values) != rows.num:
            raise ValueError(f"{self._where}: {len(values)} priorities for {rows.num} streams; expected one a stream")
        chosen = values[rows.numbers]
        if (at := self._table._native.first_bad_priority(chosen)) >= 0:
            raise ValueError(f"{self._where}: priorities[{rows.numbers[at]}] is {chosen[at]}; {EXPECTED_PRIORITY}")
        return values

    def _all(
        self,
        work: Callable[[list[Answer]], Answer],
        keys_of: Callable[[Answer], K],
        rows: Rows,
        call: str,
        timeout_s: float | None,
        length: int | None = None,
    ) -> K:
        """Makes a native call for all rows, and returns its keys. An error gets what was done, however it comes.

        Args:
            work: makes the call, which puts its answer into the list.
            keys_of: the keys of an answer.
        """
        answers: list[Answer] = []
        done: list[tuple[K, NDArray[np.bool_]]] = []
        make = partial(_done_by, answers, keys_of, rows)
        try:
            try:
                answer = work(answers)
                if answer[0] == 0 and answer[6] is None:
                    return keys_of(answer)
                self._raise_answer(answer, rows, call, timeout_s, length)
            except BaseException:
                _core.make_surely(make, done)
                raise
        except BaseException as error:
            if done:
                error.keys, error.done = done[0]  # type: ignore[attr-defined]  # no call: see ARCHITECTURE.md, "Ctrl-C"
            raise

    def _raise_answer(
        self, answer: Answer, rows: Rows, call: str, timeout_s: float | None, length: int | None
    ) -> NoReturn:
        """Raises the error that a native answer stands for."""
        code, num_done, at, step, column, _, raised = answer
        if raised is not None:
            raise raised
        try:
            self._raise_for(
                code, call, timeout_s, int(rows.streams[at]) if len(rows.streams) else 0, step, column, length
            )
        except RateLimitTimeout as error:
            error.args = (
                f"{error}. {num_done} of {len(rows.numbers)} streams are done: see the error's .done and .keys",
            )
            raise

    def _raise_for(
        self, code: int, call: str, timeout_s: float | None, stream: int, step: int, column: int, length: int | None
    ) -> NoReturn:
        at = f", stream {stream}"
        path = self._sig.leaves[column].path
        if code == _core.STATUS_MISSING_CELL:
            self._raise_missing(call, step, column, at)
        if code == _core.NEEDS_FINAL_STEP:
            self._raise_needs_final(column, at)
        if code == _core.COLUMN_TWICE:
            raise SignatureMismatch(
                f"{self._where}{at}, column {path!r}: the open row has it already; give each column once a row. "
                "If it was the final observation, call end_episodes() first"
            )
        if code == _core.COLUMN_MISSING:
            raise SignatureMismatch(
                f"{self._where}{at}, column {path!r}: missing, and this append would finish the row; give it too, or "
                "append with partial=True"
            )
        if code == _core.STATUS_HISTORY and call == "create_items":
            wanted = "an item selects more steps" if length is None else f"length is {length}"
            raise ValueError(
                f"{self._where}{at}: {wanted}, but the stream holds {self._native.num_steps(stream)} steps of this "
                f"episode (history={self._history}); leave it out with mask=, or make the writer with a longer history"
            )
        if code == _core.LACKS_COLUMN:
            raise SignatureMismatch(
                f"{self._where}{at}: length is {length}, but one of these steps has no column for a part of the "
                "signature. Only the newest step of an item may lack columns, and only before end_episodes()"
            )
        self._raise_status(code, call, timeout_s, self._native.blocking_table(stream), at)

    def _cell(self, stream: int, step: int, column: int) -> Any:
        """A copy of one stream's cell; the step is counted from the newest, which is -1."""
        self._check_open()
        if self._native.forked:
            self._raise_status(_core.STATUS_FORKED, "history", None)
        if not 0 <= stream < self._num_streams:
            raise ShmReplayError(f"{self._where}: no stream {stream}; expected 0 to {self._num_streams - 1}")
        where, path = f"{self._where}, stream {stream}", self._sig.leaves[column].path
        oldest = self._native.oldest_step(stream)
        at = oldest + self._native.num_steps(stream) + step
        if at < oldest:
            raise expired(where, path, at, oldest)
        value = self._native.read_cell(stream, at, column)
        if value is None:
            raise missing(where, path, at)
        return cell_value(value, self._sig.leaves[column])


def _done_by(
    answers: Sequence[Answer], keys_of: Callable[[Answer], K], rows: Rows
) -> tuple[K, NDArray[np.bool_]] | None:
    """The keys of a call, and the rows that are done; None if the call did not come so far."""
    if not answers:
        return None
    done = np.ones(rows.num, np.bool_)
    done[rows.numbers[answers[0][1] :]] = False
    return keys_of(answers[0]), done

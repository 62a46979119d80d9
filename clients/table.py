"""TableHandle: a table as actors and learners use it. Its calls work on shared memory, without the daemon."""

from __future__ import annotations

import math
import time
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shmreplay import _core, errors
from shmreplay.checks import check_float, check_int
from shmreplay.clients.arrays import check_count, float_array, key_array
from shmreplay.clients.attachments import specs_of
from shmreplay.clients.batch import Batch, NativeBatch
from shmreplay.clients.decoding import Ragged, check_ragged
from shmreplay.clients.extend import extend
from shmreplay.clients.handle import EXPECTED_PRIORITY, LOOK, Handle, raise_closed, raise_with
from shmreplay.clients.info import TableInfo
from shmreplay.clients.rules import check_history, read_rules, steps_needed
from shmreplay.clients.sampler import Sampler, table_sampler
from shmreplay.clients.sampling import Columns, PadTo, check_draws, spread, too_few_items
from shmreplay.clients.update_data import mutable_arrays
from shmreplay.clients.vector_writer import VectorWriter
from shmreplay.clients.view import View, open_view
from shmreplay.clients.writer import Writer
from shmreplay.plan import Estimate, estimate
from shmreplay.rate_limiters import RateLimiter, check_limiter
from shmreplay.rules import Rule
from shmreplay.selectors import Prioritized
from shmreplay.tables import warn_if_never_sampled


class TableHandle(Handle):
    """Made by `Client.table`. Safe to use from threads; a forked child attaches anew by itself.

    Every method raises ShmReplayError after `client.close()`, TableClosed once the table was dropped, SegmentFailed if
    its memory was damaged. Where there is a `timeout_s`, None waits for ever, 0 never waits, and Ctrl-C ends the wait.
    """

    # --- inserting -----------------------------------------------------------------------------------------------

    def insert(self, step: Any, priority: float | None = None, timeout_s: float | None = None) -> int:
        """Inserts one step as one item, an episode of its own.

        Args:
            step: values in the table's structure, each of its column's dtype and shape; copied. Columns that are per
                item are among them.
            priority: finite, >= 0. None: the largest live one if that is positive, else 1 (for a Prioritized sampler;
                1 for others).
            timeout_s: seconds to wait for the rate limiter and, in tables that keep their items, for room.

        Returns:
            The item's key.

        Raises:
            RateLimitTimeout: not admitted in time; nothing was inserted.
            SignatureMismatch: the step does not fit; the text names the column. Or the table's items are spans.
            ValueError: the priority is not finite or negative; or the table declares `item` or `item_steps` > 1.
            ArenaFull: no room, and the table says `on_full="error"`.
        """
        if self._has_spans:
            self._refuse_single_steps("insert")
        values = None
        if self._sig.item_leaves:
            step, values = self._conversion.step_with_values(step)
        while True:
            if self._client.is_closed:
                raise_closed(self._name)
            key = self._native.insert(step, priority, timeout_s, values)
            if key > 0:
                return key
            if key == _core.BAD_PRIORITY:
                raise ValueError(f"{self._where}: priority is {priority!r}; {EXPECTED_PRIORITY}")
            self._recover_or_raise(-key, "insert", timeout_s)

    def insert_batch(
        self, steps: Any, priorities: ArrayLike | None = None, timeout_s: float | None = None
    ) -> NDArray[np.int64]:
        """Inserts N steps as N items, in order.

        Args:
            steps: the table's structure with arrays `[N, *shape]`. Columns that are of variable shape, optional or
                compressed may have a list of N values, optional ones None among them; in a table without a signature it
                is a list of N steps.
            priorities: `[N]` finite, >= 0, or None as in `insert`.
            timeout_s: as in `insert`, for all of them together.

        Returns:
            int64 `[N]`: the keys.

        Raises:
            RateLimitTimeout: not all were admitted in time; `.keys` are those of the first ones, which went in. So
                it is with whatever else ends the call half-way, KeyboardInterrupt among it.
            SignatureMismatch, ValueError, ArenaFull: as `insert`; with the first two nothing was inserted.
        """
        if self._has_spans:
            self._refuse_single_steps("insert_batch")
        wanted = None if priorities is None else float_array(self._where, "priorities", priorities)
        values = None
        if self._sig.item_leaves:
            steps, values = self._conversion.batch_with_values(steps)
        while True:
            self._check_open()
            keys: NDArray[np.int64]
            status, done, keys, raised, bad = self._native.insert_batch(steps, wanted, timeout_s, values)
            if bad >= 0 and wanted is not None:
                raise ValueError(f"{self._where}: priorities[{bad}] is {wanted[bad]}; {EXPECTED_PRIORITY}")
            if raised is not None:
                raise_with(raised, keys=keys[:done])
            if status == 0:
                return keys
            if done > 0 or not self._recover(status):
                self._raise_status(status, "insert_batch", timeout_s, keys=keys[:done])

    def extend(
        self,
        columns: Any,
        episode_ends: ArrayLike | None = None,
        count: bool = True,
        timeout_s: float | None = None,
    ) -> NDArray[np.int64]:
        """Puts whole arrays in, as one stream: what a writer would make that appends their rows one by one.

        The items are those of the table's `item`; without it every row is one, with its episode's id and its step in
        it. A window that looks behind the last row is made only if an episode ends there.

        Args:
            columns: the table's structure with arrays `[N, *shape]`, or lists as in `insert_batch`.
            episode_ends: bool `[N]`, True on an episode's last row. None: where the columns `terminated` or `truncated`
                are True, if the table has them. It has to be True there, unless the item goes across episodes.
            count: False neither waits for the rate limiter nor moves it, paused or not: the items are in the table, so
                that `min_size_to_sample` sees them, but the difference stays that of the others.
            timeout_s: seconds to wait for the rate limiter and for room, for all of it together.

        Returns:
            int64: the keys, in the order of the rows.

        Raises:
            RateLimitTimeout: not all were admitted in time; `.keys` are those of the items that went in, `.num_rows`
                how many of the rows are in with all their items. So it is with whatever else ends the call half-way,
                KeyboardInterrupt among it. A call for the rest begins another stream.
            SignatureMismatch: a column does not fit, or has another number of rows. Nothing went in.
            TypeError, ValueError: `episode_ends` is not what it should be; a row was truncated and the item looks at
                its next observation, which arrays do not have; a priority in a column is not finite or negative; the
                table was declared with `item_steps` > 1 and no item; or count=False with a queue or stack. Nothing
                went in.
        """
        if self._spec.item is None and self._spec.item_steps > 1:
            self._refuse_single_steps("extend")
        self._control()
        return extend(self, columns, episode_ends, count, timeout_s)

    def writer(self, history: int | None = None, patterns: list[Any] | None = None, commit_every: int = 1) -> Writer:
        """A writer of one stream of steps, for items of more than one step. Use it as a context manager.

        Args:
            history: steps that an item can reach back, the newest included; None: what the patterns and the table's
                `item_steps` need.
            patterns: windows (`sr.NStep(3)`, `sr.Sequence(80, 40)`, ...) and `sr.Pattern`s that make items by
                themselves. None: the table's `item`, if it has one; []: none.
            commit_every: 1.

        Raises:
            ValueError: the arena has no room for such a history, or a pattern reaches further back.
            TypeError, SignatureMismatch: a pattern is none, names a column that is not there, or makes other items than
                its table's `item` says.
            TableNotFound: a pattern's table is not one over the same steps.
        """
        if commit_every != 1:
            raise ValueError(f"{self._where}: commit_every is {commit_every!r}; other than 1 is not supported yet")
        return Writer(self, *self._plan_writer(1, history, patterns))

    def vector_writer(
        self, num_streams: int, history: int | None = None, patterns: list[Any] | None = None
    ) -> VectorWriter:
        """A writer of N streams whose environments step together: one call for all. Use it as a context manager.

        Args:
            num_streams: N, at most the arena's `max_streams`.
            history, patterns: of each stream, as in `writer`.

        Raises:
            TypeError, ValueError, SignatureMismatch, TableNotFound: as in `writer`.
        """
        self._check_open()
        self._refresh_after_fork()
        most = self._arena.stats()["max_streams"]
        num_streams = check_count(self._where, "num_streams", num_streams, most)
        return VectorWriter(self, num_streams, *self._plan_writer(num_streams, history, patterns))

    def _plan_writer(self, num_streams: int, history: int | None, patterns: list[Any] | None) -> tuple[int, list[Rule]]:
        """Steps that each stream holds, and its rules; checked."""
        self._check_open()
        self._refresh_after_fork()
        declared = [] if self._spec.item is None else [self._spec.item]
        rules = read_rules(declared if patterns is None else patterns, self._where)
        wanted = max(self._spec.item_steps, steps_needed(rules, self._sig))
        steps = wanted if history is None else check_count(self._where, "history", history)
        stats = self._arena.stats()
        # A stream has one chunk more than it holds steps for, the one begun; and one more, before the oldest goes.
        room = ((stats["num_chunks"] - 1) // num_streams - 1) * stats["chunk_steps"]
        check_history(steps, rules, self._sig, room, self._where)
        return steps, rules

    def _table_index(self, name: str | None) -> int:
        """Index in the arena of the table of that name; None: this one's."""
        if name is None or name == self._name:
            return self._index
        for index, table in enumerate(specs_of(self._arena)):
            if table.name == name:
                return index
        raise errors.TableNotFound(
            f"{self._where}: no table {name!r} over the same steps; create both with the same arena= to feed both"
        )

    # --- sampling ------------------------------------------------------------------------------------------------

    def sample(
        self,
        n: int,
        timeout_s: float | None = None,
        at_least: int | None = None,
        pad_to: PadTo = None,
        columns: Columns = None,
        out: Any = None,
        time_major: bool = False,
        count: bool = True,
        replacement: bool = True,
        stratified: bool = False,
        ragged: Ragged = "pad",
    ) -> Batch:
        """Draws n items by the table's sampler, with replacement where it is random.

        What the rate limiter admits is drawn at once; for the rest the call waits.

        Args:
            n: items, >= 1.
            timeout_s: seconds to wait for the rate limiter.
            at_least: return as soon as so many are drawn and no more are admitted; None: n.
            pad_to: rows of every output with a step axis, or a dict of them by the output's name. None: as many as the
                longest item that the table has ever had, so that shapes do not vary from call to call.
            columns: names of the outputs to show, such as "observation", "observation/camera" or a window's
                "next_observation"; nothing else is read. None: all.
            out: what to write into: writable C-contiguous arrays in the structure of `data`, of its dtypes and shapes
                `[n, L, ...]`, or an earlier batch. `batch.data` are views of them; L pads as `pad_to` does. None for
                columns in the heap or per item, which come in new arrays.
            time_major: `[L, B, ...]` where there is a step axis, in data and mask.
            count: False draws without asking the limiter, and moves no counter and deletes nothing: a look.
            replacement: False draws no item twice: each in proportion to its weight among those that are left, or the
                n first of a Fifo or Lifo sampler, the n best of a heap. `.probabilities` are those of a single draw.
            stratified: draws item i from the i-th of n equal parts of the total weight (Uniform and Prioritized).
            ragged: what rows of variable shape become: "pad", padded with 0 to the longest in the batch, or "concat",
                one array of all rows of the batch one behind the other; `Batch.sizes` says how many each has.

        Returns:
            Up to n items, in the order drawn. `.data` has the table's structure with an array a column:
            `[B, *shape]` for one-step items, `[B, L, *shape]` for items of up to L steps, padded with 0 where `.mask`
            is False; items of windows and trajectories have the structure that these give them. `.keys`,
            `.priorities`, `.probabilities` and the rest are `[B]`: see `Batch`.

        Raises:
            RateLimitTimeout: not all were admitted in time. Its `.batch` has those that were drawn, or is None: on a
                table that consumes its items they are nowhere else. Whatever else ends the call half-way,
                KeyboardInterrupt among it, carries them too.
            ValueError: n or at_least is out of range; the table's longest item has more rows than `pad_to` or `out`; an
                array of `out` has another dtype or shape, is read-only or not contiguous, or shares another's memory;
                without replacement, there are fewer items of positive priority, where any is positive; `ragged` is
                unknown, or a column's rows can not be joined.
            SignatureMismatch: `columns`, `pad_to` or `out` name what the items do not have; `out` lacks an output.
            TypeError: n is no integer, or an option is of another type.
        """
        check_ragged(self._where, ragged, self._sig)
        n = check_count(self._where, "n", n)
        enough = n if at_least is None else check_count(self._where, "at_least", at_least, n)
        check_draws(self._where, self._spec.sampler, replacement, stratified)
        call = "sample" if count else LOOK
        arrangement, layout, arrays = None, None, None
        if columns is not None or pad_to is not None or out is not None or time_major:
            begun = time.monotonic()
            arrangement = self._arrange(call, columns, pad_to, time_major, timeout_s)
            layout = arrangement.layout
            arrays = None if out is None else arrangement.arrays(out)
            if timeout_s:
                timeout_s = max(0.0, timeout_s - (time.monotonic() - begun))
        while True:
            self._check_open()
            uniforms = self._random.uniforms(n)
            if stratified:
                uniforms = spread(uniforms)
            status, done, parts, smallest, raised, available = self._native.sample(
                n, enough, bool(count), not replacement, uniforms, timeout_s, layout, arrays
            )
            batch = None
            if parts is not None:
                batch = Batch(NativeBatch(*parts), done, self._sig, smallest, bool(time_major), ragged)
            if status == 0 and batch is not None:
                return batch
            if raised is not None:
                raise_with(raised, batch=batch)
            if arrangement is not None and status == _core.WRONG_ARRAYS:
                arrangement.explain(arrays or [], n)
            if arrangement is not None and status == _core.STATUS_TOO_LONG:
                status, _, longest = self._native.structure(False, bool(count), None)
                if status == 0:
                    raise_with(arrangement.too_long(longest, arrays), batch=batch)
            if status == _core.STATUS_TOO_FEW_ITEMS:
                raise_with(too_few_items(self._where, self._spec.sampler, n, available, done), batch=batch)
            if done > 0 or not self._recover(status):
                self._raise_status(status, call, timeout_s, batch=batch, asked=n)

    def sampler(
        self,
        batch_size: int,
        prefetch: int | None = None,
        seed: Any = None,
        timeout_s: float | None = None,
        **sample_options: Any,
    ) -> Sampler:
        """An endless iterator of batches: `for batch in table.sampler(256): ...`. See `Sampler` for how it ends.

        Arrays of `batch.data` are used again for later batches, but never while anybody refers to the batch, to one of
        its arrays, or to a view or tensor of one; while all are held, new ones are made.

        Args:
            batch_size: items a batch, >= 1.
            prefetch: how many batches a thread samples ahead: their priorities and `ages` are as old. 0: none, and no
                thread: `next()` samples. None: 2, or 0 where items are consumed, since what was sampled ahead would be
                lost with the sampler.
            seed: of the sampler's own random numbers, which no other call moves: equal ones draw alike from equal
                tables. With `prefetch=0` a single-threaded program is repeatable as a whole.
            timeout_s: seconds that `next()` waits for the rate limiter.
            sample_options: of `sample`, other than `out`.

        Raises:
            ValueError, TypeError: an option is out of range or unknown; prefetch > 0 where items are consumed.
            TableClosed: the table was dropped.

        `next()` raises what `sample` raises, after the batches sampled before; the next call of it goes on.
        """
        return table_sampler(self, batch_size, prefetch, seed, timeout_s, sample_options)

    def view(self, n: int, timeout_s: float | None = None) -> View:
        """Draws n items as `sample(n)` does, to be looked at where they lie: their rows are not copied.

        Use it as a context manager: `with table.view(2) as items: train(items[0].data)`. Until it is released, nobody
        reuses the chunks of its items; writers that need room wait for them at most, and for no others. So keep it
        short, and never wait for an insert of your own while you hold one.

        Args:
            n: items, at most as many as a lease can name the chunks of: 832 if each lies in one.
            timeout_s: seconds to wait for the rate limiter.

        Returns:
            n items with `.data` (read-only arrays in the item's structure, on the shared memory itself where
            `.is_view` says so), `.key`, `.priority`, ...: see `ViewedItem`; and `.keys`, int64 `[n]`. Arrays kept after
            the release show whatever is written to the memory next: other steps, perhaps half of them.

        Raises:
            RateLimitTimeout: not all were admitted in time. Its `.batch` has copies of those that were drawn, or is
                None. Whatever else ends the call half-way, KeyboardInterrupt among it, carries them too.
            ValueError: n is out of range; the text has the largest n.
        """
        return open_view(self, n, timeout_s)

    def get(
        self, keys: ArrayLike, timeout_s: float | None = None, columns: Columns = None, ragged: Ragged = "pad"
    ) -> Batch:
        """The live ones of the items, in the order given; moves no counter. An empty batch if none is left.

        Args:
            keys: int64 `[K]`, as `batch.keys`.
            timeout_s: seconds to wait for the arena's lock.
            columns: names of the outputs to show, as in `sample`; None: all.
            ragged: as of `sample`.

        Returns:
            A batch of B <= K items, shaped as by `sample`.

        Raises:
            TypeError: the keys are not int64.
            SignatureMismatch: `columns` names what the items do not have.
            ValueError: as `sample`, for `ragged`.
        """
        check_ragged(self._where, ragged, self._sig)
        wanted = key_array(self._where, keys)
        layout = None
        if columns is not None:
            layout = self._arrange("get", columns, None, False, timeout_s).layout
        while True:
            self._check_open()
            status, done, parts, _, raised = self._native.get(wanted, timeout_s, layout)
            if raised is not None:
                raise raised
            if status == 0 and parts is not None:
                return Batch(NativeBatch(*parts), done, self._sig, 0.0, ragged=ragged)
            if status == 0:
                return self._arrange("get", columns, None, False, timeout_s).empty()
            if not self._recover(status):
                self._raise_status(status, "get", timeout_s)

    def keys(self) -> NDArray[np.int64]:
        """Keys of the live items in insertion order, int64 `[len(table)]`.

        Read without the lock: each was live at some moment of the call.
        """
        self._check_open()
        self._refresh_after_fork()
        return cast(NDArray[np.int64], self._native.keys())

    # --- changing ------------------------------------------------------------------------------------------------

    def update_priorities(self, keys: ArrayLike, priorities: ArrayLike, timeout_s: float | None = None) -> int:
        """Gives items new priorities. Keys of items that are gone are skipped, whatever took their place.

        Args:
            keys: int64 `[B]`, as `batch.keys`.
            priorities: `[B]` or `[B, 1]`, finite, >= 0, of any real dtype.

        Returns:
            How many were still there. A call that hits none warns once.

        Raises:
            ValueError: a priority is not finite or negative (nothing was changed), or there are not as many as keys.
            TypeError: the keys are not int64.
        """
        wanted = key_array(self._where, keys)
        values = float_array(self._where, "priorities", priorities)
        if len(values) != len(wanted):
            raise ValueError(
                f"{self._where}: priorities have shape {tuple(np.shape(priorities))}, which is {len(values)} for "
                f"{len(wanted)} keys; expected one a key, [{len(wanted)}] or [{len(wanted)}, 1]"
            )
        while True:
            self._check_open()
            status, updated, bad = self._native.update_priorities(wanted, values, timeout_s)
            if bad >= 0:
                raise ValueError(f"{self._where}: priorities[{bad}] is {values[bad]}; {EXPECTED_PRIORITY}")
            if status == 0:
                self._warn_if_stale(updated, len(wanted))
                return int(updated)
            if not self._recover(status):
                self._raise_status(status, "update_priorities", timeout_s)

    def update_data(self, keys: ArrayLike, values: Any, at: int = 0, timeout_s: float | None = None) -> int:
        """Changes stored values of mutable columns, for everybody: items share their steps.

        A reader sees a step's old value or the new one, never a mix, whatever becomes of this process. Items that are
        gone are skipped, and so are places that have no real step.

        Args:
            keys: int64 `[K]`, as `batch.keys`.
            values: the table's structure with arrays `[K, k, *shape]` for the mutable columns that are to change, and
                without the others. Row j is for the step at place `at` + j of the item, counted as in a batch, padding
                included; one-step items have place 0 only.
            at: the first place, >= 0.
            timeout_s: seconds to wait for the arena's lock.

        Returns:
            How many items were still there. A call that hits none warns once.

        Raises:
            SignatureMismatch: a value does not fit, or is of a column that is not mutable; nothing was changed.
            TypeError: the keys are not int64.
            ValueError: `at` is out of range.
            RateLimitTimeout: the lock was not to be had in time; some items may have changed.
        """
        wanted = key_array(self._where, keys)
        at = check_int(self._where, "at", at, 0)
        columns = mutable_arrays(self._sig, values, len(wanted))
        while True:
            self._check_open()
            status, updated = self._native.update_data(wanted, columns, at, timeout_s)
            if status == 0:
                self._warn_if_stale(updated, len(wanted), "update_data")
                return int(updated)
            if not self._recover(status):
                self._raise_status(status, "update_data", timeout_s)

    def delete(self, keys: ArrayLike, timeout_s: float | None = None) -> int:
        """Deletes items; keys of items that are gone are skipped.

        Args:
            keys: int64 `[K]`, as `batch.keys`.
            timeout_s: seconds to wait for the arena's lock.

        Returns:
            How many were still there.

        Raises:
            TypeError: the keys are not int64.
        """
        wanted = key_array(self._where, keys)
        while True:
            self._check_open()
            status, deleted = self._native.delete(wanted, timeout_s)
            if status == 0:
                return int(deleted)
            if not self._recover(status):
                self._raise_status(status, "delete", timeout_s)

    def reset(self, timeout_s: float | None = None) -> None:
        """Deletes all items and zeroes the counters. Inserts that wait for the rate limiter go on.

        Raises:
            RateLimitTimeout: the arena's lock was not to be had within `timeout_s`.
        """
        self._control().reset(timeout_s)

    def set_rate_limiter(self, limiter: RateLimiter, rebase: bool = True, timeout_s: float | None = None) -> None:
        """Gives the table another rate limiter, for all its users.

        Args:
            rebase: start the difference anew in the middle of the new bounds. False leaves the counters to speak: a
                change late in a run may then block one side until the other has caught up.

        Warns:
            UserWarning: its `min_size_to_sample` is more than the table's `max_size`.

        Raises:
            TypeError: it is no rate limiter.
            RateLimitTimeout: the arena's lock was not to be had within `timeout_s`.
        """
        check_limiter(self._where, limiter)
        numbers: dict[str, Any] = limiter.numbers()
        self._control().set_rate_limiter(**numbers, rebase=rebase, timeout_s=timeout_s)
        warn_if_never_sampled(self._name, self._spec.max_size, limiter, stacklevel=2)

    def set_priority_exponent(self, exponent: float, timeout_s: float | None = None) -> None:
        """Gives a Prioritized sampler another exponent, for all the table's users, while it is in use.

        Inserts and updates go by it at once; the weights of the items that are there follow slice by slice, with the
        help of whoever uses the table. A draw meanwhile reports the probability that it had, which may be of either
        exponent. `info().sampler` has the exponent now; `spec.sampler` stays as created.

        Args:
            exponent: finite, >= 0.
            timeout_s: seconds to wait for the arena's lock.

        Raises:
            ValueError: the sampler is not Prioritized, or the exponent is out of range.
            TypeError: it is no number.
            RateLimitTimeout: the arena's lock was not to be had in time. As after Ctrl-C, the change goes on if it was
                begun: others finish it.
        """
        exponent = check_float(self._where, "exponent", exponent)
        if not (math.isfinite(exponent) and exponent >= 0):
            raise ValueError(f"{self._where}: exponent is {exponent}; expected a finite number >= 0")
        if not isinstance(self._spec.sampler, Prioritized):
            raise ValueError(
                f"{self._where}: its sampler is {self._spec.sampler!r}, which has no priority exponent; only a "
                "Prioritized one has"
            )
        self._control().set_priority_exponent(exponent, timeout_s)

    def pause(self, inserts: bool = True, samples: bool = True, timeout_s: float | None = None) -> None:
        """Lets inserts, samples or both wait, as if the rate limiter did not admit them, until `resume`.

        Raises:
            RateLimitTimeout: the arena's lock was not to be had within `timeout_s`.
        """
        self._control().pause(inserts, samples, timeout_s)

    def resume(self, timeout_s: float | None = None) -> None:
        """Ends a pause. Does nothing if there is none.

        Raises:
            RateLimitTimeout: the arena's lock was not to be had within `timeout_s`.
        """
        self._control().resume(timeout_s)

    # --- looking -------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return int(self._control().size)

    def info(self) -> TableInfo:
        """Counters, rate limiter, blocked callers, priorities: see `TableInfo`."""
        return TableInfo.read(self._control())

    def can_insert(self, n: int = 1) -> bool:
        """Whether the rate limiter would admit n inserts now."""
        return bool(self._control().can_insert(check_count(self._where, "n", n)))

    def can_sample(self, n: int = 1) -> bool:
        """Whether `sample(n)` would be admitted whole now: by the rate limiter, and by `max_times_sampled`.

        Where items may be sampled more than once and the sampler is neither Fifo nor Lifo, it is not foreseen which go
        on the way: the size may then fall under `min_size_to_sample` after all.
        """
        return bool(self._control().can_sample(check_count(self._where, "n", n)))

    def estimate(self) -> Estimate:
        """Every term of the memory that the table's arena takes, with all tables that share it."""
        return estimate(specs_of(self._arena))

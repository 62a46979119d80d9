"""TableReads: the calls of a table that draw, look up and show its items."""

from __future__ import annotations

import time
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shmreplay import _core
from shmreplay.clients.batches.arguments import check_count, key_array
from shmreplay.clients.batches.batch import Batch, NativeBatch
from shmreplay.clients.batches.decoding import Ragged, check_ragged
from shmreplay.clients.batches.sampling import (
    Arrangement,
    Columns,
    PadTo,
    Part,
    check_draws,
    check_part,
    spread,
    too_few_items,
)
from shmreplay.clients.handles.gather_threads import MAX_THREADS
from shmreplay.clients.handles.handle import LOOK, Handle, raise_with
from shmreplay.clients.samplers.sampler import Sampler, Source, table_source
from shmreplay.clients.samplers.view import View, open_view


class TableReads(Handle):
    """What learners read from a table."""

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
        num_threads: int = 1,
        part: Part = None,
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
            num_threads: how many threads copy the rows of a batch of 1 MiB and more, the caller's among them, 1 to 64.
                The first such call starts them; they end with the client. Values in the heap the caller copies alone.
            part: `(rank, world_size)` draws none but the items that are that learner's: those in every world_size-th
                slot of the table. So batches of several learners have no item in common. With `replacement=False` and
                a random sampler; the draws are in proportion to the weights of what is left of the part.

        Returns:
            Up to n items, in the order drawn. `.data` has the table's structure with an array a column:
            `[B, *shape]` for one-step items, `[B, L, *shape]` for items of up to L steps, padded with 0 where `.mask`
            is False; items of windows and trajectories have the structure that these give them. `.keys`,
            `.priorities`, `.probabilities` and the rest are `[B]`: see `Batch`.

        Raises:
            RateLimitTimeout: not all were admitted in time. Its `.batch` has those that were drawn, or is None: on a
                table that consumes its items they are nowhere else. Whatever else ends the call half-way,
                KeyboardInterrupt among it, carries them too.
            MemoryError: there is none for the next item's values, which then stays in the table; or for decoding what
                was drawn: then the error's `.batch` is decoded when its `.data` is read, once there is memory.
            ValueError: n, at_least or num_threads is out of range; the table's longest item has more rows than `pad_to`
                or `out`; an array of `out` has another dtype or shape, is read-only or not contiguous, or shares
                another's memory; without replacement, there are fewer items of positive priority, where any is
                positive, or in the part; `part` does not go with the other options; `ragged` is unknown, or a column's
                rows can not be joined.
            SignatureMismatch: `columns`, `pad_to` or `out` name what the items do not have; `out` lacks an output.
            TypeError: n or num_threads is no integer, or an option is of another type.
        """
        check_ragged(self._where, ragged, self._sig)
        n = check_count(self._where, "n", n)
        enough = n if at_least is None else check_count(self._where, "at_least", at_least, n)
        check_draws(self._where, self._spec.sampler, replacement, stratified)
        rank, num_ranks = check_part(self._where, self._spec.sampler, replacement, part)
        num_threads = check_count(self._where, "num_threads", num_threads, MAX_THREADS)
        call = "sample" if count else LOOK
        arrangement, arrays, left = None, None, timeout_s
        if columns is not None or pad_to is not None or out is not None or time_major:
            begun = time.monotonic()
            arrangement = self._arrange(call, columns, pad_to, time_major, timeout_s)
            arrays = None if out is None else arrangement.arrays(out)
            left = timeout_s and max(0.0, timeout_s - (time.monotonic() - begun))
        layout = None if arrangement is None else arrangement.layout
        while True:
            self._check_open()
            uniforms = self._random.uniforms(n)
            uniforms = spread(uniforms) if stratified else uniforms
            if num_threads > 1:
                self._own_threads()
            status, done, parts, smallest, raised, available = self._native.sample(
                n, enough, bool(count), not replacement, uniforms, left, layout, arrays, num_threads, rank, num_ranks
            )
            batch = None
            if parts is not None:
                native = NativeBatch(*parts)
                batch = Batch(native, done, self._sig, smallest, bool(time_major), ragged, is_late=True)
            if status == 0 and batch is not None:
                return self._decoded(batch)
            if raised is not None:
                raise_with(raised, batch=batch)
            if status == _core.STATUS_TOO_FEW_ITEMS:
                raise_with(too_few_items(self._where, self._spec.sampler, n, available, done, part), batch=batch)
            if arrangement is not None:
                status = self._explain_arrays(status, arrangement, arrays, n, count, batch)
            if done > 0 or not self._recover(status):
                self._raise_status(status, call, timeout_s, batch=batch, asked=n)

    @staticmethod
    def _decoded(batch: Batch) -> Batch:
        """The batch, once its data is made. Whatever keeps it from that carries it: its items may be nowhere else."""
        try:
            batch.decode()
        except BaseException as error:
            error.batch = batch  # type: ignore[attr-defined]  # as raise_with()
            raise
        return batch

    def _explain_arrays(
        self, status: int, arrangement: Arrangement, arrays: list[Any] | None, n: int, count: bool, batch: Batch | None
    ) -> int:
        """Raises if it is about arrays that do not fit; else returns it, or why the table could not be asked."""
        if status == _core.WRONG_ARRAYS:
            arrangement.explain(arrays or [], n)
        if status == _core.STATUS_TOO_LONG:
            status, _, longest = self._native.structure(False, bool(count), None)
            if status == 0:
                raise_with(arrangement.too_long(longest, arrays), batch=batch)
        return status

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
        return Sampler(self._sampler_source(batch_size, seed, sample_options), prefetch, timeout_s, sample_options)

    def _sampler_source(self, batch_size: int, seed: Any, sample_options: dict[str, Any]) -> Source:
        """What a sampler of this table samples from."""
        return table_source(self, batch_size, seed, sample_options)

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
            `.is_view` says so), `.key`, `.priority`, ...: see `ViewedItem`; and of all together `.keys`, int64 `[n]`,
            `.data`, `[n, ...]`, on the shared memory itself where `.is_contiguous`, ...: see `View`. Arrays kept after
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

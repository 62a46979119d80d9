"""TableReads: the calls of a table that draw, look up and show its items."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shmreplay import _core
from shmreplay.base.cached_property import cached_property
from shmreplay.clients.batches.arguments import key_array
from shmreplay.clients.batches.arrangement import Arrangement
from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.batches.decoding import Ragged, check_ragged
from shmreplay.clients.batches.native import NativeBatch
from shmreplay.clients.batches.sample_options import Columns, DrawnFrom, SampleOptions
from shmreplay.clients.handles.handle import LOOK, Handle, Stop
from shmreplay.clients.samplers.sampled import Sampled
from shmreplay.clients.samplers.view import View, open_view
from shmreplay.columns.signature import Signature


class TableReads(Handle, Sampled):
    """What learners read from a table."""

    @cached_property
    def _drawn_from(self) -> DrawnFrom:
        return DrawnFrom(self._where, self._spec.sampler, self._sig)

    @property
    def _handles(self) -> Sequence[Handle]:
        return (self,)

    def _anew(self, seed: Any, stop: Stop) -> TableReads:
        self._control()  # raises if the table was dropped
        return type(self)(self._client, self._name, self._client._attach(self._name), seed, stop)

    def _draw(self, options: SampleOptions, timeout_s: float | None, out: Any, drawn: list[Batch]) -> Batch:
        call = "sample" if options.count else LOOK
        arrangement, layout, arrays, left = None, None, None, timeout_s
        if options.is_arranged or out is not None:
            begun = time.monotonic()
            arrangement = self._arrange(call, options.columns, options.pad_to, options.time_major, timeout_s)
            layout = arrangement.layout
            arrays = None if out is None else arrangement.arrays(out)
            left = timeout_s and max(0.0, timeout_s - (time.monotonic() - begun))
        while True:
            self._check_open()
            uniforms = options.spread(self._random.uniforms(options.n))
            if options.num_threads > 1:
                self._own_threads()
            make = partial(_made, self._sig, options)
            status, done, raised, available = self._native.sample(
                options.native, uniforms, left, layout, arrays, make, drawn
            )
            if raised is not None:
                raise raised
            if status == 0 and drawn:
                return drawn[0]
            if status == _core.STATUS_TOO_FEW_ITEMS:
                raise options.too_few_items(self._drawn_from, available, done)
            if arrangement is not None:
                status = self._explain_arrays(status, arrangement, arrays, options)
            if done > 0 or not self._recover(status):
                self._raise_status(status, call, timeout_s, batch=drawn[0] if drawn else None, asked=options.n)

    def _explain_arrays(
        self, status: int, arrangement: Arrangement, arrays: list[Any] | None, options: SampleOptions
    ) -> int:
        """Raises the error of arrays that do not fit. Returns any other status, or why the table could not be asked."""
        if status == _core.WRONG_ARRAYS:
            arrangement.explain(arrays or [], options.n)
        if status == _core.STATUS_TOO_LONG:
            status, _, longest = self._native.structure(False, options.count, None)
            if status == 0:
                raise arrangement.too_long(longest, arrays)
        return status

    def view(self, n: int, timeout_s: float | None = None) -> View:
        """Draws n items as `sample(n)` does, to read them directly in shared memory, without copying their rows.

        Use it as a context manager: `with table.view(2) as items: train(items[0].data)`. Until the view is released,
        the chunks of its items are not reused. Writers go on in other chunks, and wait only if none is left. So keep it
        short, and never wait for an insert of your own program while you hold a view.

        Args:
            n: number of items. One lease must be able to name their chunks: at most 832 if each item is in one chunk.
            timeout_s: seconds to wait for the rate limiter.

        Returns:
            A `View` of n `ViewedItem`s. Each item has `.data` (read-only arrays in the item's structure, the shared
            memory itself where `.is_view` is True), `.key`, `.priority` and so on. The view has `.keys`, int64 `[n]`,
            `.data`, `[n, ...]`, the shared memory itself if `.is_contiguous`, and so on. Arrays kept after the release
            show whatever is written to the memory next: other steps, or parts of them.

        Raises:
            RateLimitTimeout: not all were admitted in time. The error's `.batch` is a `View` with copies of the items
                that were drawn, or None. Every other error that ends the call half-way, also KeyboardInterrupt, has
                this `.batch`, too.
            ValueError: n is out of range; the text has the largest n.
        """
        return open_view(self, n, timeout_s)

    def get(
        self, keys: ArrayLike, timeout_s: float | None = None, columns: Columns = None, ragged: Ragged = "pad"
    ) -> Batch:
        """Returns those of the items that still exist, in the order given. Changes no counter.

        Args:
            keys: int64 `[K]`, as `batch.keys`.
            timeout_s: seconds to wait for the arena's lock.
            columns: names of the outputs to show, as in `sample`; None: all.
            ragged: as of `sample`.

        Returns:
            A batch of B <= K items, shaped as by `sample`; an empty one if none of the items exists.

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

        def look_up(native: _core.Table) -> tuple[int, tuple[int, Any]]:
            status, done, parts, _, raised = native.get(wanted, timeout_s, layout)
            if raised is not None:
                raise raised
            return status, (done, parts)

        done, parts = self._repeat("get", timeout_s, look_up)
        if parts is None:
            return self._arrange("get", columns, None, False, timeout_s).empty()
        return Batch(NativeBatch(*parts), done, self._sig, 0.0, ragged=ragged)

    def keys(self) -> NDArray[np.int64]:
        """Keys of the live items in insertion order, int64 `[len(table)]`.

        Read without the lock: each was live at some moment of the call.
        """
        self._check_open()
        self._refresh_after_fork()
        return cast(NDArray[np.int64], self._native.keys())


def _made(signature: Signature, options: SampleOptions, parts: Any, done: int, smallest_probability: float) -> Batch:
    return Batch(NativeBatch(*parts), done, signature, smallest_probability, options.time_major, options.ragged)

"""Reads of a table with shards: batches that are drawn from all of them as from one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shmreplay import _core, errors
from shmreplay.clients.batches.arguments import check_count, check_timeout, key_array
from shmreplay.clients.batches.arrangement import Arrangement
from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.batches.decoding import Ragged, check_ragged
from shmreplay.clients.batches.native import NativeBatch
from shmreplay.clients.batches.sample_options import Columns, DrawnFrom, PadTo, SampleOptions
from shmreplay.clients.handles.blocking import explain_looks, explain_samples
from shmreplay.clients.handles.handle import LOOK
from shmreplay.clients.handles.randomness import Randomness
from shmreplay.clients.shards.shard_calls import by_shard
from shmreplay.clients.tables.table import TableHandle
from shmreplay.protocol import Deadline


class ShardReads:
    """The reads of one table with shards. Safe to use from threads.

    Attributes:
        table: what the checks of options need to know of the table.
        random: the numbers that it draws by.
    """

    def __init__(self, table: DrawnFrom, shards: Sequence[TableHandle], seed: Any) -> None:
        self.table = table
        self._where = table.where
        self._shards = shards
        self.random = Randomness(seed)

    def sample(self, options: SampleOptions, timeout_s: float | None, out: Any, drawn: list[Batch]) -> Batch:
        """See `ShardedTable.sample`. The list gets the batch, also if this raises."""
        deadline = Deadline(check_timeout(timeout_s))
        call = "sample" if options.count else LOOK
        arrangement, layout, arrays = None, None, None
        if options.is_arranged or out is not None:
            arrangement = self._arrange(call, options.columns, options.pad_to, options.time_major, deadline)
            layout = arrangement.layout
            arrays = None if out is None else arrangement.arrays(out)
        while True:
            natives = self._natives()
            for shard in self._shards if options.num_threads > 1 else ():
                shard._own_threads()
            batch = _core.ShardBatch(natives, options.native, layout, arrays, deadline.remaining_s())
            if arrangement is not None and not batch.arrays_are_right:
                arrangement.explain(arrays or [], options.n)
            make = partial(self._made, batch, options)
            try:
                status, raised = self._fill(batch, options.at_least)
            finally:
                _core.make_surely(make, drawn)
            if raised is not None:
                raise raised
            if status == 0 and drawn:
                return drawn[0]
            if status == _core.STATUS_TOO_LONG and arrangement is not None:
                self._raise_too_long(batch.shard, arrangement, arrays)
            if not drawn and self._shards[batch.shard]._recover(status):
                continue
            self._raise(status, batch.shard, call, deadline.timeout_s, options.n, drawn[0] if drawn else None)

    def _natives(self) -> list[_core.Table]:
        for shard in self._shards:
            shard._control()
        return [shard._native for shard in self._shards]

    def _fill(self, batch: _core.ShardBatch, at_least: int) -> tuple[int, BaseException | None]:
        """Draws round by round until the batch is full, or has `at_least` items and no shard admits more.

        Returns:
            Status 0, or that of the shard that ended the draws; and the error that ended them, or None.
        """
        while batch.open > 0:
            before = batch.done
            status, raised = batch.draw(self.random.uniforms(2 * batch.open))
            if status == 0 and batch.done == before:
                if before > 0 and at_least <= before:
                    break
                status, raised = batch.wait()
            if status != 0 or raised is not None:
                return status, raised
        return 0, None

    def _made(self, batch: _core.ShardBatch, options: SampleOptions) -> Batch | None:
        if batch.done == 0:
            return None
        parts, smallest = batch.release(None, options.time_major)
        native = NativeBatch(*parts)
        return Batch(native, batch.done, self.table.signature, smallest, options.time_major, options.ragged)

    def _arrange(self, call: str, columns: Columns, pad_to: PadTo, time_major: bool, deadline: Deadline) -> Arrangement:
        """The arrangement for these options, by the first shard that has ever held an item.

        If no shard has, `get` does not wait for an item; all other calls do.
        """
        while True:
            natives = self._natives()
            for shard in self._shards:
                if shard._arrangements.items is None:
                    status, names, outputs = shard._native.structure(False, call != LOOK, deadline.remaining_s())
                    if status != 0:
                        shard._recover_or_raise(status, call, deadline.timeout_s)
                    elif outputs is not None:
                        shard._arrangements.learn(names, outputs)
                if shard._arrangements.items is not None:
                    return shard._arrangements.of(columns, pad_to, time_major)
            if call == "get":
                return self._shards[0]._arrangements.of(columns, pad_to, time_major)
            one = _core.SampleOptions(1, 1, call != LOOK)
            waiting = _core.ShardBatch(natives, one, None, None, deadline.remaining_s())
            status, _ = waiting.wait()
            if status != 0 and not self._shards[waiting.shard]._recover(status):
                self._raise(status, waiting.shard, call, deadline.timeout_s, 1, None)

    def _raise_too_long(self, number: int, arrangement: Arrangement, arrays: list[Any] | None) -> NoReturn:
        status, _, longest = self._shards[number]._native.structure(False, False, None)
        if status != 0:
            self._shards[number]._raise_status(status, "sample", None)
        raise arrangement.too_long(longest, arrays)

    def _raise(
        self, status: int, number: int, call: str, timeout_s: float | None, n: int, batch: Batch | None
    ) -> NoReturn:
        """Raises the error of a status; for a timeout, with the reason why no shard admits a draw."""
        if status != _core.STATUS_TIMEOUT:
            self._shards[number]._raise_status(status, call, timeout_s, batch=batch, asked=n)
        explain = explain_looks if call == LOOK else explain_samples
        reasons = []
        for shard in self._shards:
            info = {**shard._native.info(), "can_insert": shard._native.can_insert(1)}
            reasons.append(f"{shard.name!r}: {explain(shard._arena, info)}")
        done = "" if batch is None else f" after {len(batch)} of {n} items, which are in the error's .batch"
        text = f"{self._where}: {call} not admitted within {timeout_s} s{done}, by none of its shards"
        raise errors.RateLimitTimeout(f"{text}: {'; '.join(reasons)}")

    def get(self, keys: ArrayLike, timeout_s: float | None, columns: Columns, ragged: Ragged) -> Batch:
        """See `ShardedTable.get`."""
        check_ragged(self._where, ragged, self.table.signature)
        wanted = key_array(self._where, keys)
        deadline = Deadline(check_timeout(timeout_s))
        layout = None
        if columns is not None:
            layout = self._arrange("get", columns, None, False, deadline).layout
        all_of_them = _core.SampleOptions(len(wanted), len(wanted))
        while True:
            batch = _core.ShardBatch(self._natives(), all_of_them, layout, None, deadline.remaining_s())
            status, positions = self._look_up(batch, wanted)
            if status == 0:
                break
            self._shards[batch.shard]._recover_or_raise(status, "get", timeout_s)
        if batch.done == 0:
            return self._arrange("get", columns, None, False, deadline).empty()
        native = NativeBatch(*batch.release(np.argsort(positions, kind="stable"), False)[0])
        return Batch(native, batch.done, self.table.signature, 0.0, ragged=ragged)

    def _look_up(self, batch: _core.ShardBatch, keys: NDArray[np.int64]) -> tuple[int, NDArray[np.intp]]:
        """Looks keys up shard by shard.

        Returns:
            A status, and the positions in `keys` of those found, in the batch's order.
        """
        positions = [np.empty(0, np.intp)]
        for number, mine in by_shard(keys, len(self._shards)):
            status, found, indices, raised = batch.get(number, keys[mine])
            if raised is not None:
                raise raised
            if status != 0:
                return status, positions[0]
            positions.append(mine[indices[:found]])
        return 0, np.concatenate(positions)

    def can_sample(self, n: int) -> bool:
        """Whether the shards together would admit n samples now."""
        n = check_count(self._where, "n", n)
        natives, admitted = self._natives(), 0
        for native in natives:
            low, high = 0, n - admitted
            while low < high:  # binary search: a shard that admits m samples admits fewer, too
                middle = (low + high + 1) // 2
                low, high = (middle, high) if native.can_sample(middle) else (low, middle - 1)
            admitted += low
            if admitted == n:
                return True
        return False

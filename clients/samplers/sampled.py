"""Sampled: what batches are drawn from, a table or the shards of one, with one signature of `sample` for both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

from shmreplay.clients.batches.arguments import check_count
from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.batches.decoding import Ragged
from shmreplay.clients.batches.sample_options import Columns, DrawnFrom, PadTo, Part, SampleOptions
from shmreplay.clients.handles.handle import Handle, Stop
from shmreplay.clients.ranks import options_of_rank, rank_of, seed_of_rank
from shmreplay.clients.samplers.sampler import Sampler, Source, check_names
from shmreplay.tables.table import Table


class Sampled(ABC):
    """The base of `TableHandle` and `ShardedTable`."""

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
                one array with all rows of the batch, one after the other; `Batch.sizes` says how many each has.
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
            MemoryError: there is none for the next item's values, which then stays in the table.
            ValueError: n, at_least or num_threads is out of range; the table's longest item has more rows than `pad_to`
                or `out`; an array of `out` has another dtype or shape, is read-only or not contiguous, or shares
                another's memory; without replacement, there are fewer items of positive priority, where any is
                positive, or in the part; `part` does not go with the other options; `ragged` is unknown, or a column's
                rows can not be joined.
            SignatureMismatch: `columns`, `pad_to` or `out` name what the items do not have; `out` lacks an output.
            TypeError: n or num_threads is no integer, or an option is of another type.
        """
        options = SampleOptions.of(
            self._drawn_from,
            n,
            at_least,
            pad_to,
            columns,
            time_major,
            count,
            replacement,
            stratified,
            ragged,
            num_threads,
            part,
        )
        return self._draw(options, timeout_s, out)

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
        return Sampler(self._source(self._options(batch_size, sample_options), seed), prefetch, timeout_s)

    def _options(self, batch_size: int, sample_options: dict[str, Any]) -> SampleOptions:
        """The options of a sampler's batches, checked."""
        where = self._drawn_from.where
        batch_size = check_count(where, "batch_size", batch_size)
        check_names(where, self.sample, sample_options)
        return SampleOptions.of(self._drawn_from, batch_size, **sample_options)

    def _source(self, options: SampleOptions, seed: Any) -> Source:
        """What a sampler samples from: this table, by handles of its own."""
        stop = Stop()
        own = self._anew(seed, stop)
        consumes = self.spec.consuming and options.count
        return Source(self._drawn_from.where, partial(own._draw, options), own._handles, stop, consumes)

    @property
    @abstractmethod
    def name(self) -> str:
        """The table's name."""

    @property
    @abstractmethod
    def spec(self) -> Table:
        """The table as it was created."""

    @property
    @abstractmethod
    def _drawn_from(self) -> DrawnFrom:
        """What options are checked against."""

    @property
    @abstractmethod
    def _handles(self) -> Sequence[Handle]:
        """Those it samples with."""

    @abstractmethod
    def _anew(self, seed: Any, stop: Stop) -> Sampled:
        """The same table by other handles, which `stop` ends. Raises TableClosed if the table was dropped."""

    @abstractmethod
    def _draw(self, options: SampleOptions, timeout_s: float | None, out: Any = None) -> Batch:
        """One batch: see `sample`."""


def rank_source(
    table: Sampled,
    batch_size: int,
    seed: Any,
    rank: int | None,
    world_size: int,
    disjoint: bool,
    sample_options: dict[str, Any],
) -> tuple[Source, SampleOptions]:
    """What the sampler of one of several learners samples from, and the options that it draws by.

    Raises ValueError or TypeError for an option that is out of range or unknown, or contradicts another one.
    """
    where = f"table {table.name!r}"
    rank = rank_of(where, rank, world_size)
    options = table._options(batch_size, options_of_rank(where, rank, world_size, disjoint, sample_options))
    return table._source(options, seed_of_rank(seed, rank) if world_size > 1 else seed), options

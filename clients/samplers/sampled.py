"""Sampled: the base of tables with and without shards, so that `sample` has one signature for both."""

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
        """Draws n items by the table's sampler, with replacement if the sampler is random.

        The call draws at once what the rate limiter admits, and waits for the rest.

        Args:
            n: number of items, >= 1.
            timeout_s: seconds to wait for the rate limiter.
            at_least: return as soon as this many are drawn and no more are admitted; None: n.
            pad_to: rows of every output with a step axis, or a dict from output names to rows. None: as many as the
                longest item that the table has ever had, so that shapes do not vary from call to call.
            columns: names of the outputs to show, such as "observation", "observation/camera" or a window's
                "next_observation"; nothing else is read. None: all.
            out: where to write: writable C-contiguous arrays in the structure of `data`, of its dtypes and shapes
                `[n, L, ...]`, or an earlier batch. `batch.data` are views of them. L rows are padded as by `pad_to`.
                Give None for columns in the heap or per item, which come in new arrays.
            time_major: puts the step axis first, `[L, B, ...]`, in data and mask.
            count: False draws without asking the rate limiter, changes no counter and deletes nothing.
            replacement: False draws no item twice. A random sampler draws each in proportion to its weight among the
                items left; others draw the first n by Fifo or Lifo order, or the best n of a heap. `.probabilities`
                are those of a single draw.
            stratified: draws item i from the i-th of n equal parts of the total weight (Uniform and Prioritized).
            ragged: what rows of variable shape become: "pad" pads them with 0 to the longest in the batch; "concat"
                joins all rows of the batch to one array. `Batch.sizes` has the sizes of each row.
            num_threads: how many threads, 1 to 64, the caller's included, copy the rows of a batch of 1 MiB or more.
                The first such call starts them; they end with the client. The caller alone copies values in the heap.
            part: `(rank, world_size)` draws only items in every world_size-th slot of the table, so that batches of
                several learners have no item in common. Needs `replacement=False` and a random sampler. Draws are in
                proportion to the weights of what is left of the part.

        Returns:
            Up to n items, in the order drawn. `.data` has the table's structure with one array for each column:
            `[B, *shape]` for one-step items, `[B, L, *shape]` for items of up to L steps, padded with 0 where `.mask`
            is False. Items of windows and trajectories have the structure that these define. `.keys`, `.priorities`,
            `.probabilities` and the rest are `[B]`: see `Batch`.

        Raises:
            RateLimitTimeout: not all were admitted in time. The error's `.batch` has the items that were drawn, or is
                None. If the table consumes its items, this is the only copy. Every other error that ends the call
                half-way, also KeyboardInterrupt, has this `.batch`, too.
            MemoryError: memory ran out for the values of the next item, which stays in the table.
            ValueError: n, at_least or num_threads is out of range; the table's longest item has more rows than `pad_to`
                or `out`; an array of `out` has another dtype or shape, is read-only or not contiguous, or shares
                another's memory; without replacement, there are fewer than n items (of positive priority, if any is
                positive; in the part, if one is given); `part` conflicts with the other options; `ragged` is unknown,
                or a column's rows cannot be joined.
            SignatureMismatch: `columns`, `pad_to` or `out` name an output that the items do not have, or `out` lacks
                one.
            TypeError: n or num_threads is not an integer, or an option has the wrong type.
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
        drawn: list[Batch] = []
        try:
            return self._draw(options, timeout_s, out, drawn)
        except BaseException as error:
            if drawn:
                error.batch = drawn[0]  # type: ignore[attr-defined]  # no call: see ARCHITECTURE.md, "Ctrl-C"
            raise

    def sampler(
        self,
        batch_size: int,
        prefetch: int | None = None,
        seed: Any = None,
        timeout_s: float | None = None,
        **sample_options: Any,
    ) -> Sampler:
        """An endless iterator of batches: `for batch in table.sampler(256): ...`. See `Sampler` for how it ends.

        Later batches are written into the arrays of earlier ones, but never while anything refers to the earlier batch,
        to one of its arrays, or to a view or tensor of one. If all arrays are in use, new ones are made.

        Args:
            batch_size: items per batch, >= 1.
            prefetch: how many batches a thread samples ahead; their priorities and `ages` are from when they were
                sampled. 0: no thread, `next()` samples. None: 2, or 0 if sampling consumes items, because batches
                sampled ahead would be lost with the sampler.
            seed: seeds the sampler's own random numbers, which no other call uses. Equal seeds draw equally from equal
                tables. With `prefetch=0`, a single-threaded program is repeatable as a whole.
            timeout_s: seconds that `next()` waits for the rate limiter.
            sample_options: options of `sample`, except `out`.

        Raises:
            ValueError, TypeError: an option is out of range or unknown, or prefetch > 0 and sampling consumes items.
            TableClosed: the table was dropped.

        If `sample` raises an error, `next()` first returns the batches sampled before it, then raises it. Later calls
        of `next()` sample again.
        """
        return Sampler(self._source(self._options(batch_size, sample_options), seed), prefetch, timeout_s)

    def _options(self, batch_size: int, sample_options: dict[str, Any]) -> SampleOptions:
        """The checked options of a sampler's batches."""
        where = self._drawn_from.where
        batch_size = check_count(where, "batch_size", batch_size)
        check_names(where, self.sample, sample_options)
        return SampleOptions.of(self._drawn_from, batch_size, **sample_options)

    def _source(self, options: SampleOptions, seed: Any) -> Source:
        """The source of a sampler: this table, with handles that only the sampler uses."""
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
        """What the checks of options need to know of the table."""

    @property
    @abstractmethod
    def _handles(self) -> Sequence[Handle]:
        """The handles that it samples with."""

    @abstractmethod
    def _anew(self, seed: Any, stop: Stop) -> Sampled:
        """The same table with new handles, which `stop` ends. Raises TableClosed if the table was dropped."""

    @abstractmethod
    def _draw(self, options: SampleOptions, timeout_s: float | None, out: Any, drawn: list[Batch]) -> Batch:
        """Draws one batch: see `sample`. The list gets the batch, also if this raises."""


def rank_source(
    table: Sampled,
    batch_size: int,
    seed: Any,
    rank: int | None,
    world_size: int,
    disjoint: bool,
    sample_options: dict[str, Any],
) -> tuple[Source, SampleOptions]:
    """Returns the source of the sampler of one of several learners, and the options that it draws with.

    Raises ValueError or TypeError for an option that is out of range or unknown, or contradicts another one.
    """
    where = f"table {table.name!r}"
    rank = rank_of(where, rank, world_size)
    options = table._options(batch_size, options_of_rank(where, rank, world_size, disjoint, sample_options))
    return table._source(options, seed_of_rank(seed, rank) if world_size > 1 else seed), options

"""ReplayDataset: a table's batches for torch.utils.data.DataLoader. Each worker attaches to the table itself."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from itertools import islice
from typing import Any, cast

from torch.utils.data import IterableDataset, get_worker_info

from shmreplay.base.checks import check_int
from shmreplay.clients.batches.arguments import check_count
from shmreplay.clients.client import Client
from shmreplay.clients.ranks import options_of_rank, rank_of, seed_of_rank
from shmreplay.clients.shards.sharded_table import ShardedTable
from shmreplay.clients.tables.table import TableHandle
from shmreplay.clients.torch.batch import TorchBatch
from shmreplay.clients.torch.epochs import MAX_EPOCH, Epochs
from shmreplay.clients.torch.sampler import TorchSampler


class ReplayDataset(IterableDataset[TorchBatch]):
    """Yields whole batches, so turn off the loader's own: `DataLoader(ReplayDataset(table, 256), batch_size=None)`.

    Each worker process, forked or spawned, attaches to the table by the server's address and the table's name, and has
    its own random numbers. Its batches are pickled and sent to the learner through a pipe. `TorchSampler` copies less;
    use it if the learner does not need a DataLoader. A data set can be pickled. Its options are fixed; only its epoch
    changes, by `set_epoch`.

    If sampling consumes items and an error ends a worker's sampling half-way, such as a timeout, the worker first
    yields what it has drawn, as a batch of fewer items, and then raises the error. Batches that workers have made, but
    that the learner does not take, are lost with the loader: its `prefetch_factor` is 2 a worker.
    """

    def __init__(
        self,
        table: TableHandle | ShardedTable,
        batch_size: int,
        num_batches: int | None = None,
        prefetch: int | None = None,
        rank: int | None = None,
        world_size: int = 1,
        disjoint: bool = False,
        seed: Any = None,
        timeout_s: float | None = None,
        **sample_options: Any,
    ) -> None:
        """Attaches to nothing yet.

        Args:
            table: the table to sample from.
            batch_size: items per batch, >= 1.
            num_batches: an iteration ends after this many batches of all workers together; None: it never ends.
            prefetch: as in `TorchSampler`. None: 0 in a worker process, which works ahead of the learner anyway.
            rank, world_size, disjoint: as in `TorchSampler`; with `disjoint`, workers share no items either.
            seed: seeds all random numbers. Each worker of each rank derives its own seed from it, another one for each
                iteration: see `set_epoch`.
            timeout_s: seconds that a worker waits for the rate limiter.
            sample_options: options of `table.sample`, except `out`.

        Raises:
            ValueError, TypeError: an option is out of range. Options of `sample` are checked in the workers.
        """
        where = f"table {table.name!r}"
        rank = rank_of(where, rank, world_size)
        options_of_rank(where, rank, world_size, disjoint, sample_options)
        self._client, self._table_name = cast(Client, table._client).__reduce__(), table.name
        self._batch_size = check_count(where, "batch_size", batch_size)
        self._num_batches = None if num_batches is None else check_int(where, "num_batches", num_batches, 0)
        self._prefetch = prefetch
        self._rank, self._world_size, self._disjoint = rank, world_size, disjoint
        self._seed = seed
        self._epochs = Epochs()
        self._timeout_s = timeout_s
        self._options = sample_options

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OPTIONS:
            raise AttributeError(
                f"{name} of a ReplayDataset is fixed, workers that run would not hear of it; make another one. "
                "An epoch is set by set_epoch()"
            )
        super().__setattr__(name, value)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration, 0 at first; each iteration then adds 1.

        With a seed, equal epochs draw equally from equal tables, and different epochs differently. All workers of a
        loader have the same epoch, also those that are persistent and those of a loader that was made before this call.
        Call it while no iteration is under way. Of iterations that overlap, each needs a data set of its own.

        Raises:
            ValueError, TypeError: the epoch is no integer from 0 to 2**30 - 1.
        """
        self._epochs.set(check_int(f"table {self._table_name!r}", "epoch", epoch, 0, MAX_EPOCH))

    def __iter__(self) -> Iterator[TorchBatch]:
        info = get_worker_info()
        worker, num_workers = (0, 1) if info is None else (info.id, info.num_workers)
        rank, world_size = self._rank * num_workers + worker, self._world_size * num_workers
        seed = seed_of_rank(seed_of_rank(self._seed, rank), self._epochs.begin())
        prefetch = 0 if self._prefetch is None and info is not None else self._prefetch
        options = options_of_rank(f"table {self._table_name!r}", rank, world_size, self._disjoint, self._options)
        return self._batches(seed, prefetch, options, self._share(worker, num_workers))

    def _share(self, worker: int, num_workers: int) -> int | None:
        """How many batches this worker makes, so that all workers together make as many as were asked for."""
        return None if self._num_batches is None else (self._num_batches + num_workers - 1 - worker) // num_workers

    def _batches(
        self, seed: Any, prefetch: int | None, options: dict[str, Any], num_batches: int | None
    ) -> Iterator[TorchBatch]:
        make, arguments = self._client
        with make(*arguments) as client:
            table = client.table(self._table_name)
            with TorchSampler(
                table, self._batch_size, prefetch=prefetch, seed=seed, timeout_s=self._timeout_s, **options
            ) as sampler:
                try:
                    yield from islice(sampler, num_batches)
                except Exception as error:
                    batch = getattr(error, "batch", None)
                    # The loader makes the error anew in the learner's process, from its text alone.
                    if get_worker_info() is not None and sampler._consumes and isinstance(batch, TorchBatch):
                        yield batch
                    raise


_OPTIONS = {"epoch", *inspect.signature(ReplayDataset).parameters, *inspect.signature(TableHandle.sample).parameters}

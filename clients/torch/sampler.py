"""TorchSampler: an iterator of batches of tensors on the learner's device, made ahead of time."""

from __future__ import annotations

import logging
from functools import partial
from types import TracebackType
from typing import Any, NoReturn

import torch

from shmreplay import _core
from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.samplers.sampled import rank_source
from shmreplay.clients.samplers.sampler import BatchStream, check_prefetch, refuse_sampler
from shmreplay.clients.shards.sharded_table import ShardedTable
from shmreplay.clients.tables.table import TableHandle
from shmreplay.clients.torch.batch import TorchBatch
from shmreplay.clients.torch.choice import Transfer, open_transport
from shmreplay.clients.torch.info import TransferInfo
from shmreplay.clients.torch.tensors import to_host
from shmreplay.clients.torch.transport import Delivery, Transport

logger = logging.getLogger("shmreplay")


class TorchSampler:
    """An endless iterator of `TorchBatch`es, and a context manager.

    On the CPU, the tensors share the memory of arrays that are used again for later batches, but never while anything
    refers to the batch, to one of its tensors, or to a view of one. On a GPU, each batch has its own memory.

    It ends as a `shmreplay.Sampler` does: with `close`, at the end of a `with`, when it is collected as garbage, with
    its client, and when Python exits. Safe to use from threads: each batch goes to one of them. In a forked child, a
    sampler for the CPU goes on with its own arrays and random numbers; one for a GPU raises CudaUnavailable.
    """

    def __init__(
        self,
        table: TableHandle | ShardedTable,
        batch_size: int,
        device: torch.device | str = "cpu",
        prefetch: int | None = None,
        transfer: Transfer = "auto",
        rank: int | None = None,
        world_size: int = 1,
        disjoint: bool = False,
        seed: Any = None,
        timeout_s: float | None = None,
        **sample_options: Any,
    ) -> None:
        """Starts to use CUDA if the device is a GPU. Draws nothing yet.

        Args:
            table: the table to sample from.
            batch_size: items per batch, >= 1.
            device: device of the tensors, such as "cuda:0".
            prefetch: how many batches a thread makes ahead and sends to the device; their priorities and `ages` are
                from when they were drawn. 0: no thread. None: 2, or 0 if sampling consumes items, because batches drawn
                ahead would be lost with the sampler.
            transfer: the way to a GPU. "gather": the GPU reads rows directly from the shared memory, which is
                page-locked for it. "staging": the processor copies them into page-locked memory, and the GPU fetches
                them from there. "pageable": torch copies them as any tensor. "auto": the first of these that is
                possible and pays; see `info().why` and docs/gpu.md.
            rank, world_size: number of this learner, from 0, and number of all learners. With equal seeds, each rank
                has its own random numbers. A single learner needs no rank.
            disjoint: draws without replacement, and no item that another rank could draw: see docs/sampling.md.
            seed: seeds the sampler's own random numbers, as in `table.sampler`.
            timeout_s: seconds that `next()` waits for the rate limiter.
            sample_options: options of `table.sample`, except `out`.

        Raises:
            ValueError, TypeError: an option is out of range or unknown, or contradicts another one.
            CudaUnavailable: the device is a GPU that torch does not see, or the transfer asked for is not possible
                there.
            TableClosed: the table was dropped.
        """
        source, options = rank_source(table, batch_size, seed, rank, world_size, disjoint, sample_options)
        prefetch = check_prefetch(source, prefetch)
        self._table = table
        self._transport: Transport = open_transport(source, options, prefetch, torch.device(device), transfer)
        self._device = torch.device(device)
        self._stream = BatchStream[Delivery](source, prefetch, timeout_s, self._transport)
        self._logged = ""  # the way that was logged last

    @property
    def prefetch(self) -> int:
        """How many batches are made ahead."""
        return self._stream.prefetch

    @property
    def is_closed(self) -> bool:
        """Whether the sampler or its client was closed."""
        return self._stream.is_closed

    @property
    def _consumes(self) -> bool:
        """Whether sampling uses items up."""
        return self._stream._source.consumes

    def __iter__(self) -> TorchSampler:
        return self

    def __next__(self) -> TorchBatch:
        """The next batch.

        If `table.sample` raises an error, this first returns the batches made before it, then raises it; later calls
        draw again. The error's `.batch` is in host memory. Raises CudaError if the GPU fails. Raises TypeError if torch
        has no dtype for a column; the error's `.batch` then has numpy arrays.
        """
        drawn: list[Any] = []
        try:
            return self._next(drawn)
        except BaseException as error:
            if drawn:
                error.batch = drawn[-1]  # type: ignore[attr-defined]  # no call: see ARCHITECTURE.md, "Ctrl-C"
            raise

    def _next(self, drawn: list[Any]) -> TorchBatch:
        """The next batch. The list gets what this call itself draws, also if it raises."""
        convert = partial(_in_host_memory, drawn)
        try:
            batch = self._stream._next(drawn).take()
            self._log()
        except TypeError:
            raise
        except BaseException as error:
            if not drawn and isinstance(carried := getattr(error, "batch", None), Batch):
                drawn.append(carried)  # of the thread that made it
            _core.make_surely(convert, drawn)
            raise
        return batch

    def _log(self) -> None:
        if self._logged != (way := self._transport.name):
            self._logged = way
            how = "stay on the CPU" if way == "none" else f"go to {self._device} by {way!r}"
            logger.info("table %r: batches %s: %s", self._table.name, how, self._transport.why)

    def update_priorities(self, keys: Any, priorities: Any, timeout_s: float | None = None) -> int:
        """Gives items new priorities, as `table.update_priorities` does.

        Args:
            keys: int64 `[B]`: `batch.keys_host`, `batch.keys`, or a part of them.
            priorities: `[B]` or `[B, 1]`, a tensor on any device, or anything that the table takes. If one or both are
                tensors on a GPU, the caller waits once for its stream.
            timeout_s: seconds to wait for the arena's lock.

        Returns:
            How many of the items still exist.

        Raises:
            ValueError, TypeError: as by `table.update_priorities`; nothing was changed.
        """
        keys, priorities = to_host(keys, priorities)
        return self._table.update_priorities(keys, priorities, timeout_s)

    def info(self) -> TransferInfo:
        """Which way batches take to the device, why, and how much was moved so far."""
        transport, tally, pin = self._transport, self._transport.tally, self._transport.pin
        return TransferInfo(
            device=str(self._device),
            transfer=transport.name,
            why=transport.why,
            batches=tally.batches,
            gathered_bytes=tally.gathered_bytes,
            sent_bytes=tally.sent_bytes,
            read_bytes=tally.read_bytes,
            pin_state=pin.state,
            pin_reason=pin.reason,
        )

    def close(self) -> None:
        """Ends the thread and blocked calls of `next` at once, and frees page-locked memory. Idempotent.

        Batches already returned stay valid.
        """
        self._stream.close()

    def __enter__(self) -> TorchSampler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        refuse_sampler(self)

    def __repr__(self) -> str:
        return f"<shmreplay torch sampler of table {self._table.name!r}{' closed' if self.is_closed else ''}>"


def _in_host_memory(drawn: list[Any]) -> TorchBatch | None:
    """The last batch drawn, as tensors; None if it has tensors already, or nothing was drawn."""
    return TorchBatch.of(drawn[-1]) if drawn and isinstance(drawn[-1], Batch) else None

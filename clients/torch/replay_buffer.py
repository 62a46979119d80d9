"""TorchReplayBuffer: a table with the calls of TorchRL's replay buffers."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, NoReturn

import torch
from torch import Tensor

from shmreplay.base.checks import check_float
from shmreplay.clients.link.connection import fork_count
from shmreplay.clients.samplers.sampler import refuse_sampler
from shmreplay.clients.shards.sharded_table import ShardedTable
from shmreplay.clients.tables.table import TableHandle
from shmreplay.clients.torch.batch import TorchBatch
from shmreplay.clients.torch.sampler import TorchSampler
from shmreplay.clients.torch.tensors import on_host, to_host
from shmreplay.errors import SignatureMismatch

INDEX, WEIGHT = "index", "priority_weight"
MAX_SAMPLERS = 8  # kept, one for each batch size; learners use one or two sizes


class TorchReplayBuffer:
    """`sample`, `update_priority`, `add`, `extend` and `len`, for learners written for a replay buffer of TorchRL.

    The table's items must be dicts. A batch is a dict of tensors with two more entries: "index", the keys of the items,
    and "priority_weight", their importance weights. The table is an ordinary one: other processes can write to it and
    sample from it, and its rate limiter can make `sample` and `extend` wait. Safe to use from threads. A context
    manager; `close` ends its samplers, not the table.
    """

    def __init__(
        self,
        table: TableHandle | ShardedTable,
        batch_size: int | None = None,
        beta: float = 0.4,
        device: torch.device | str = "cpu",
        prefetch: int = 0,
        **options: Any,
    ) -> None:
        """Draws nothing yet.

        Args:
            table: a table whose items are dicts.
            batch_size: items per batch; `sample` can give another number.
            beta: exponent of the importance weights: 0 gives ones, 1 corrects fully.
            device, prefetch, options: as in `TorchSampler`. With `prefetch=0`, `sample` itself draws the batch, by the
                priorities of that moment, as TorchRL's buffers do.

        Raises:
            ValueError, TypeError: beta is not a number >= 0. The first `sample` checks everything else.
        """
        self._table = table
        self.batch_size = batch_size
        self.beta = check_float(f"table {table.name!r}", "beta", beta)
        self._options = {"device": device, "prefetch": prefetch, **options}
        self._samplers: dict[int, TorchSampler] = {}
        self._locks = {fork_count(): threading.Lock()}  # a forked child has one of its own

    def __len__(self) -> int:
        return len(self._table)

    def sample(self, batch_size: int | None = None) -> dict[str, Any]:
        """Returns the next batch: see the class.

        Raises:
            ValueError: neither the call nor the buffer gives a `batch_size`.
            SignatureMismatch: the table's items are not dicts, or already have an "index" or "priority_weight".
            RateLimitTimeout, and others: as by `TorchSampler`.
        """
        n = self.batch_size if batch_size is None else batch_size
        if n is None:
            raise ValueError(f"table {self._table.name!r}: sample() needs a batch_size, from the call or the buffer")
        drawn: list[Any] = []
        try:
            return self._as_dict(self._sampler(n)._next(drawn))
        except BaseException as error:
            if drawn:
                error.batch = drawn[-1]  # type: ignore[attr-defined]  # no call: see ARCHITECTURE.md, "Ctrl-C"
            raise

    def _sampler(self, n: int) -> TorchSampler:
        with self._locks.setdefault(fork_count(), threading.Lock()):
            if (sampler := self._samplers.get(n)) is None:
                if len(self._samplers) >= MAX_SAMPLERS:
                    self._samplers.pop(next(iter(self._samplers))).close()
                sampler = self._samplers[n] = TorchSampler(self._table, n, **self._options)
            return sampler

    def _as_dict(self, batch: TorchBatch) -> dict[str, Any]:
        data = batch.data
        if not isinstance(data, dict) or not data.keys().isdisjoint((INDEX, WEIGHT)):
            raise SignatureMismatch(
                f"table {self._table.name!r}: a batch with TorchRL's entries is a dict without {INDEX!r} and "
                f"{WEIGHT!r} of its own, and the items are {_described(data)}; use TorchSampler, whose batches have "
                ".keys and .weights()"
            )
        return {**data, INDEX: batch.keys, WEIGHT: batch.weights(self.beta)}

    def update_priority(self, index: Any, priority: Any) -> int:
        """Gives items new priorities: see `TorchSampler.update_priorities`. Returns how many of them still exist.

        Args:
            index: int64 `[B]`, a batch's "index", or a part of it.
            priority: `[B]` or `[B, 1]`, finite, >= 0.
        """
        return self._table.update_priorities(*to_host(index, priority))

    def add(self, data: Any, priority: float | None = None) -> int:
        """Inserts one step as one item, and returns its key. Tensors of any device are copied."""
        return self._table.insert(on_host(data), priority)

    def extend(self, data: Any, priorities: Any = None) -> Tensor:
        """Inserts N steps as N items, and returns their keys, int64 `[N]`.

        Args:
            data: the table's structure with tensors or arrays `[N, *shape]`, of any device; they are copied.
            priorities: `[N]`, or None as in `table.insert_batch`.
        """
        return torch.from_numpy(self._table.insert_batch(on_host(data), on_host(priorities)))

    def close(self) -> None:
        """Ends its samplers. Idempotent; the table stays open."""
        while self._samplers:
            self._samplers.popitem()[1].close()

    def __enter__(self) -> TorchReplayBuffer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        refuse_sampler(self)

    def __repr__(self) -> str:
        return f"<shmreplay replay buffer over table {self._table.name!r}>"


def _described(data: Any) -> str:
    return f"a dict of {', '.join(map(repr, data))}" if isinstance(data, dict) else f"a {type(data).__name__}"

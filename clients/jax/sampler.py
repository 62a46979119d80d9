"""JaxSampler: a table's batches as JAX arrays."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from numpy.typing import ArrayLike

from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.batches.sample_options import SampleOptions
from shmreplay.clients.jax.batch import JaxBatch
from shmreplay.clients.jax.placement import Placement, placement_of
from shmreplay.clients.samplers.sampled import rank_source
from shmreplay.clients.samplers.sampler import BatchStream, Draw, check_prefetch
from shmreplay.clients.shards.sharded_table import ShardedTable
from shmreplay.clients.tables.table import TableHandle


class JaxSampler(BatchStream[JaxBatch]):
    """An endless iterator of `JaxBatch`es, and a context manager: `for batch in JaxSampler(table, 256): ...`.

    On the host, a batch is gathered into its own memory, which JAX then uses without another copy. For an accelerator
    or a mesh, the thread that samples ahead also starts the transfer: while the learner works on one batch, the next
    ones are on their way. Arrays never change when later batches are sampled. Their memory is used again only when
    neither Python nor a running computation refers to them.

    It ends as a `shmreplay.Sampler` does: with `close`, at the end of a `with`, when it is collected as garbage, with
    its client, and when Python exits. Safe to use from threads: each batch goes to one of them. Do not fork while it
    exists: a child lacks the threads of JAX.
    """

    def __init__(
        self,
        table: TableHandle | ShardedTable,
        batch_size: int,
        device: jax.Device | str | None = None,
        prefetch: int | None = None,
        *,
        mesh: Mesh | None = None,
        axis: str | None = None,
        rank: int | None = None,
        world_size: int = 1,
        disjoint: bool = False,
        seed: Any = None,
        timeout_s: float | None = None,
        **sample_options: Any,
    ) -> None:
        """Asks JAX for its devices, and draws nothing yet.

        Args:
            table: the table to sample from; it must have a signature.
            batch_size: items per batch, >= 1.
            device: a `jax.Device`, or a name such as "cpu" or "gpu:1"; None: JAX's default device.
            prefetch: how many batches a thread makes ahead and starts to transfer, as in `table.sampler`.
            mesh: divides the items evenly over this process's devices of a mesh; given instead of `device`.
            axis: the mesh's axis to divide them over; the parts are repeated along the other axes. None: the only axis.
            rank, world_size: number of this learner, from 0, and number of all learners. With equal seeds, each rank
                has its own random numbers. A single learner needs no rank.
            disjoint: draws without replacement, and no item that another rank could draw: see docs/sampling.md.
            seed: seeds the sampler's own random numbers, as in `table.sampler`.
            timeout_s: seconds that `next()` waits for the rate limiter.
            sample_options: options of `table.sample`, except `out`.

        Raises:
            ValueError: an option is out of range or contradicts another one; there is no such device; `batch_size` is
                not a multiple of the mesh's axis, or batches may have other sizes (`at_least`, `ragged="concat"`).
            TypeError: an option is unknown or has the wrong type; or the table has no signature.
            TableClosed: the table was dropped.

        `next()` raises what `table.sample` raises. The error's `.batch` has NumPy arrays; `place` makes JAX arrays of
        it. If the table consumes its items, this is the only copy of the items drawn.
        """
        if any(leaf.is_whole_step for leaf in table.spec.sig.leaves):
            raise TypeError(f"table {table.name!r} has no signature: its batches are lists, of which JAX has no arrays")
        source, options = rank_source(table, batch_size, seed, rank, world_size, disjoint, sample_options)
        prefetch = check_prefetch(source, prefetch)
        if mesh is not None:
            _check_even(source.where, options)
        self._table = table
        self._placement = placement_of(source.where, batch_size, device, mesh, axis)
        draw = JaxDraw(Draw(source, prefetch, at_borders=True), self._placement)
        super().__init__(source, prefetch, timeout_s, draw)

    @property
    def transfer(self) -> str:
        """How batches get to their place: "dlpack" (without a copy) or "device_put"."""
        return self._placement.transfer

    def place(self, batch: Batch) -> JaxBatch:
        """Makes JAX arrays of another batch, such as that of `table.get(keys)` or of a timeout.

        Nobody may write to the batch's arrays afterwards.
        """
        return JaxBatch(batch, self._placement)

    def update_priorities(self, keys: ArrayLike, priorities: ArrayLike, timeout_s: float | None = None) -> int:
        """As `table.update_priorities`. Priorities may be a JAX array; the call waits until it is computed."""
        return self._table.update_priorities(keys, np.asarray(priorities), timeout_s)


class JaxDraw:
    """Draws a table's batches, and places each as soon as it is drawn."""

    def __init__(self, draw: Draw, placement: Placement) -> None:
        self._draw = draw
        self._placement = placement

    def anew(self) -> JaxDraw:
        """Returns the same with its own arrays."""
        return JaxDraw(self._draw.anew(), self._placement)

    def close(self) -> None:
        """Frees the arrays that nobody else refers to."""
        self._draw.close()

    def __call__(self, timeout_s: float | None, drawn: list[Any]) -> JaxBatch:
        """The next batch: see `Draws`. The list gets it as it was drawn."""
        return JaxBatch(self._draw(timeout_s, drawn), self._placement)


def _check_even(where: str, options: SampleOptions) -> None:
    """Raises ValueError for options with which batches cannot be divided evenly over a mesh."""
    if options.at_least < options.n:
        raise ValueError(f"{where}: no mesh with at_least=: a batch that is not full cannot be divided evenly")
    if options.ragged != "pad":
        raise ValueError(f"{where}: no mesh with ragged='concat': joined rows cannot be divided by items")

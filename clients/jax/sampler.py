"""JaxSampler: a table's batches as JAX arrays."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from numpy.typing import ArrayLike

from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.batches.sample_options import SampleOptions
from shmreplay.clients.handles.handle import raise_with
from shmreplay.clients.jax.batch import JaxBatch
from shmreplay.clients.jax.placement import Placement, placement_of
from shmreplay.clients.samplers.sampled import rank_source
from shmreplay.clients.samplers.sampler import BatchStream, Draw, check_prefetch
from shmreplay.clients.shards.sharded_table import ShardedTable
from shmreplay.clients.tables.table import TableHandle


class JaxSampler(BatchStream[JaxBatch]):
    """An endless iterator of `JaxBatch`es, and a context manager: `for batch in JaxSampler(table, 256): ...`.

    On the host a batch is gathered into memory of its own, which JAX then has without another copy. For an accelerator
    or a mesh the thread that samples ahead begins the transfer too: while the learner is at one batch, the next ones
    are on their way. Arrays never change, whatever is sampled later: their memory is used again once neither Python
    nor a computation under way refers to them.

    It ends as a `shmreplay.Sampler` does: with `close`, at the end of a `with`, when it is garbage, with its client,
    and with Python. Safe to use from threads, each of which gets other batches. Do not fork with it: JAX has threads
    that a child lacks.
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
            table: what to sample from; not a table without a signature.
            batch_size: items a batch, >= 1.
            device: a `jax.Device`, or a name such as "cpu" or "gpu:1"; None: where JAX puts what is not told where.
            prefetch: how many batches a thread makes ahead, and sends off: as in `table.sampler`.
            mesh: divide the items evenly over this process's devices of a mesh, instead of `device`.
            axis: the mesh's axis to divide them over; along the others the parts are repeated. None: the only one.
            rank, world_size: which of how many learners this is, from 0 on: equal seeds then give each random numbers
                of its own. One alone needs no rank.
            disjoint: draws without replacement, and no item that another rank could draw: see docs/sampling.md.
            seed: of the sampler's own random numbers, as in `table.sampler`.
            timeout_s: seconds that `next()` waits for the rate limiter.
            sample_options: of `table.sample`, other than `out`.

        Raises:
            ValueError: an option is out of range or contradicts another one; there is no such device; `batch_size` is
                no multiple of the mesh's axis, or batches may have other sizes (`at_least`, `ragged="concat"`).
            TypeError: an option is unknown or of another type; or the table has no signature.
            TableClosed: the table was dropped.

        `next()` raises what `table.sample` raises. An error's `.batch`, items that were drawn and are perhaps nowhere
        else, is of NumPy arrays: `place` makes JAX arrays of it.
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
        """How batches reach their place: "dlpack", without a copy, or "device_put"."""
        return self._placement.transfer

    def place(self, batch: Batch) -> JaxBatch:
        """A batch that came otherwise, such as a timeout's or `table.get(keys)`; nobody may write to its arrays."""
        return JaxBatch(batch, self._placement)

    def update_priorities(self, keys: ArrayLike, priorities: ArrayLike, timeout_s: float | None = None) -> int:
        """As `table.update_priorities`; priorities may be JAX arrays, whose computation it waits for."""
        return self._table.update_priorities(keys, np.asarray(priorities), timeout_s)


class JaxDraw:
    """A table's batches, each placed as soon as it is drawn."""

    def __init__(self, draw: Draw, placement: Placement) -> None:
        self._draw = draw
        self._placement = placement

    def anew(self) -> JaxDraw:
        """The same, with arrays of its own."""
        return JaxDraw(self._draw.anew(), self._placement)

    def close(self) -> None:
        """Lets go of the arrays that nobody else has."""
        self._draw.close()

    def __call__(self, timeout_s: float | None) -> JaxBatch:
        """Raises whatever keeps a batch from its place with that batch: its items may be nowhere else."""
        batch = self._draw(timeout_s)
        try:
            return JaxBatch(batch, self._placement)
        except BaseException as error:  # noqa: BLE001  # raised again
            raise_with(error, batch=batch)


def _check_even(where: str, options: SampleOptions) -> None:
    """Raises ValueError for options by which batches can not be divided evenly."""
    if options.at_least < options.n:
        raise ValueError(f"{where}: at_least= goes with no mesh: a batch that is not full can not be divided evenly")
    if options.ragged != "pad":
        raise ValueError(f"{where}: ragged='concat' goes with no mesh: joined rows can not be divided by items")

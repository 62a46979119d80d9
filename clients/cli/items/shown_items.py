"""Items as commands show them. They are looked up by key, which does not count as a sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shmreplay import _core
from shmreplay.base.dtypes import as_float64, is_real, plain_number
from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.shards.sharded_table import ShardedTable
from shmreplay.clients.tables.table import TableHandle
from shmreplay.columns import structure
from shmreplay.columns.item_structure import node_of
from shmreplay.columns.leaves import Leaf
from shmreplay.tables.shards import KEY_SHIFT

SHOWN_VALUES = 8  # at the terminal
JSON_VALUES = 4096  # of an array with more values, JSON gets the first and the last ones
NUMBERS = ("key", "priority", "times_sampled", "age", "episode", "step")


@dataclass(frozen=True)
class Output:
    """One output of an item.

    Attributes:
        path: its name, such as `observation/camera`; "" if the item is a single array.
        leaf: the column that it shows.
        has_steps: whether its first axis is the step axis.
        data: the array; in a table without a signature the object that was inserted.
        mask: bool, True for rows that are real: `[rows]`, or `[]` without a step axis.
    """

    path: str
    leaf: Leaf
    has_steps: bool
    data: Any
    mask: NDArray[np.bool_]

    @property
    def is_array(self) -> bool:
        """Whether the data is an array."""
        return isinstance(self.data, np.ndarray)


def shards_of(table: TableHandle | ShardedTable) -> tuple[TableHandle, ...]:
    """The handles of a table's shards. A table without shards counts as one shard."""
    return table._shards if isinstance(table, ShardedTable) else (table,)


def native_of(table: TableHandle | ShardedTable, key: int) -> _core.Table | None:
    """The native table that a key belongs to; None if it belongs to no shard."""
    shards = shards_of(table)
    number = key >> KEY_SHIFT if len(shards) > 1 else 0
    return shards[number]._control() if 0 <= number < len(shards) else None


def numbers_of(batch: Batch) -> list[dict[str, Any]]:
    """The numbers of each item of a batch, by the names in `NUMBERS`."""
    columns = (batch.keys, batch.priorities, batch.times_sampled, batch.ages, batch.episodes, batch.steps)
    return [
        dict(zip(NUMBERS, values, strict=True)) for values in zip(*(column.tolist() for column in columns), strict=True)
    ]


def outputs_of(batch: Batch, item: int = 0) -> list[Output]:
    """The outputs of one item of a batch, without the rows after its last one, which are padding."""
    native = batch._native
    node = node_of(native.names) if native.names else batch._signature.root
    found = []
    for number, path in enumerate(structure.leaf_paths(node)):
        squeezed = native.squeezed[number]
        data, mask = batch._shown[number].data[item], batch._masks[number][item]
        leaf = batch._signature.leaves[native.columns[number]]
        if not leaf.is_whole_step:
            data = np.asarray(data)  # also if it is a NumPy scalar
        if not squeezed and isinstance(data, np.ndarray):
            rows = int(np.flatnonzero(mask)[-1]) + 1 if mask.any() else 0
            data, mask = data[:rows], mask[:rows]
        found.append(Output(path, leaf, not squeezed, data, mask))
    return found


def describe_values(data: Any) -> str:
    """A few of the values in one line; for many numbers also the smallest, largest and mean."""
    if not isinstance(data, np.ndarray):
        text = repr(data)
        return text if len(text) <= 60 else f"{text[:57]}..."
    flat = data.reshape(-1)
    if flat.dtype == np.bool_:
        flat = flat.astype(np.int64) if flat.size > SHOWN_VALUES else flat
    few = flat if flat.size <= SHOWN_VALUES else np.concatenate([flat[:3], flat[-2:]])
    texts = [short(plain_number(value)) for value in few]
    if flat.size <= SHOWN_VALUES:
        return texts[0] if data.ndim == 0 else f"[{' '.join(texts)}]"
    listed = f"[{' '.join(texts[:3])} … {' '.join(texts[3:])}]"
    if not is_real(flat.dtype):
        return listed
    low, high, mean = figures(data)
    return f"{listed} {short(low)} to {short(high)}, mean {short(mean)}"


def figures(data: NDArray[Any]) -> tuple[float, float, float]:
    """The smallest, largest and mean of a non-empty array of real numbers."""
    numbers = as_float64(data)
    return float(numbers.min()), float(numbers.max()), float(numbers.mean())


def short(value: object) -> str:
    """A float with at most six digits, anything else as `str` shows it."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)

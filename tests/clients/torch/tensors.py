"""Batches of tensors looked at as batches of arrays are, byte by byte."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shmreplay.clients.torch import TorchBatch
from tests.support.tables import PATHS, Pair, by_path, columns_of


class Arrays:
    """A batch on any device as numpy arrays, for the checks in `tests.support.tables`."""

    def __init__(self, batch: TorchBatch) -> None:
        self.data, self.mask, self.lengths = (
            tree_map(lambda tensor: tensor.cpu().numpy(), tree) for tree in (batch.data, batch.mask, batch.lengths)
        )
        self._size = len(batch)

    def __len__(self) -> int:
        return self._size


def arrays(batch: TorchBatch) -> Any:
    """The batch as `Arrays`, typed as a `Batch`."""
    return Arrays(batch)


def tree_map(convert: Callable[[Any], Any], tree: Any) -> Any:
    """The structure of a table's steps with each leaf converted."""
    if isinstance(tree, dict):
        return {name: tree_map(convert, value) for name, value in tree.items()}
    if isinstance(tree, Pair):
        return Pair(*(tree_map(convert, value) for value in tree))
    return convert(tree)


def pointers(batch: TorchBatch) -> list[int]:
    """Where the tensors of its data begin."""
    found: Any = by_path(batch.data)
    return [tensor.data_ptr() for tensor in found.values()]


def numbers_of(batch: TorchBatch) -> NDArray[np.int64]:
    """The number of each one-step item, after a look at every byte of its data."""
    data = by_path(arrays(batch).data)
    expected = columns_of(data["n"])
    for path in PATHS:
        assert data[path].dtype == expected[path].dtype
        np.testing.assert_array_equal(data[path], expected[path])
    return data["n"]

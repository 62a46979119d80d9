"""ParamsLayout: how a tree of arrays is stored in a step; one step is one version of the tree."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shmreplay.columns import structure
from shmreplay.columns.leaves import Leaf
from shmreplay.columns.signature import MAX_COLUMNS, Signature
from shmreplay.columns.specs import ArraySpec

PARAMS, PUBLISHED = "params", "published_ns"  # the two parts of a version: the tree, and when it was published
MAX_ARRAYS = MAX_COLUMNS - 1  # with a column each; one column is PUBLISHED
_ALIGNMENT = 64  # in bytes, of arrays that share a column
_JOINED = "joined_"


class ParamsLayout:
    """The layout of one tree: one column for each array.

    If the tree has more arrays than a table has columns, the arrays of each dtype are joined, one after the other, in
    one column. Then the table's signature does not describe the tree; it only has a checksum, by which a given tree is
    recognised.

    Attributes:
        node: the tree's structure.
        leaves: the tree's arrays, in order.
    """

    def __init__(self, node: structure.Node, leaves: Sequence[Leaf]) -> None:
        self.node = node
        self.leaves = tuple(leaves)
        self._places: list[slice] = []  # of each array, in the column of its dtype
        self._sizes: dict[str, int] = {}
        self._name = PARAMS
        if len(self.leaves) > MAX_ARRAYS:
            for leaf in self.leaves:
                self._join(leaf)
            arrays = "\n".join(f"{leaf.path} {leaf.spec.dtype} {leaf.spec.shape}" for leaf in self.leaves)
            self._name = f"{_JOINED}{zlib.crc32(arrays.encode()):08x}"

    @classmethod
    def of_tree(cls, tree: Any, table_name: str) -> ParamsLayout:
        """Reads a tree of arrays. Raises TypeError, ValueError as `Table` does."""
        sig = Signature.from_tree({PARAMS: tree}, table_name, is_table=False)  # joined below if there are too many
        (node,) = _children(sig.root)
        return cls(node, sig.leaves)

    @classmethod
    def of_table(cls, sig: Signature, like: Any) -> ParamsLayout | None:
        """The layout of a table's versions; None if the table has none. `like`: the tree, if its arrays are joined.

        Raises:
            ValueError: `like` is missing but needed, or is another tree.
        """
        names = sig.root.names if isinstance(sig.root, structure.DictNode) else ()
        if names == (PARAMS, PUBLISHED):
            return cls(_children(sig.root)[0], sig.leaves[:-1])
        if len(names) != 2 or not names[0].startswith(_JOINED) or names[1] != PUBLISHED:
            return None
        where = f"Params: table {sig.table_name!r}"
        if like is None:
            raise ValueError(f"{where} has more arrays than columns, so it does not know the tree; give it: like=tree")
        layout = cls.of_tree(like, sig.table_name)
        if Signature.from_tree(layout.signature(), sig.table_name) != sig:
            raise ValueError(f"{where}: like is another tree than the table was made for")
        return layout

    @property
    def like(self) -> Any:
        """The tree of specs that `of_table` needs besides the table; None: the table alone says all."""
        return structure.unflatten(self.node, [leaf.spec for leaf in self.leaves]) if self._places else None

    def signature(self) -> dict[str, Any]:
        """The signature of the table."""
        columns: Any = {dtype: ArraySpec((size,), dtype) for dtype, size in self._sizes.items()}
        if not self._places:
            columns = structure.unflatten(self.node, [leaf.spec for leaf in self.leaves])
        return {self._name: columns, PUBLISHED: ArraySpec((), "int64")}

    def steps(self, arrays: Sequence[NDArray[Any]], published_ns: int) -> dict[str, Any]:
        """A version as a batch of one step. `arrays`: the tree's, in order."""
        columns: Any = {dtype: np.zeros((1, size), dtype) for dtype, size in self._sizes.items()}
        if not self._places:
            columns = structure.unflatten(self.node, [array[np.newaxis] for array in arrays])
        for place, array in zip(self._places, arrays if self._places else (), strict=True):
            columns[array.dtype.name][0, place] = array.reshape(-1)
        return {self._name: columns, PUBLISHED: np.array([published_ns])}

    def tree(self, step: Any) -> Any:
        """The tree in a step. Its arrays are views of the step's."""
        columns = step[self._name]
        if not self._places:
            return columns
        arrays = [
            columns[leaf.spec.dtype.name][place].reshape(leaf.spec.shape)
            for place, leaf in zip(self._places, self.leaves, strict=True)
        ]
        return structure.unflatten(self.node, arrays)

    def _join(self, leaf: Leaf) -> None:
        dtype, shape = leaf.spec.dtype, leaf.spec.shape
        if leaf.spec.in_heap:
            raise ValueError(f"params: {leaf.path!r} is {leaf.spec}; expected a plain array of a fixed shape")
        step = max(_ALIGNMENT // dtype.itemsize, 1)
        begin = -(-self._sizes.get(dtype.name, 0) // step) * step
        end = begin + math.prod(size for size in shape if size is not None)
        self._places.append(slice(begin, end))
        self._sizes[dtype.name] = end


def _children(node: structure.Node) -> tuple[structure.Node, ...]:
    assert isinstance(node, structure.DictNode)
    return node.children

"""Signature: the nested structure of a table's steps, one column a leaf."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shmreplay import conversion, structure
from shmreplay.checks import wire_field
from shmreplay.conversion import Array, Missing
from shmreplay.errors import SignatureMismatch
from shmreplay.leaves import Leaf, as_spec
from shmreplay.specs import ArraySpec

__all__ = ["Leaf", "Signature"]


@dataclass(frozen=True)
class Signature:
    """Structure and columns of a table's steps. Made by `from_tree` or `from_wire`.

    Two are equal when structure, columns and their order are. The table's name, there for error texts, does not count.

    Attributes:
        leaves: the columns, depth first, dicts in the order in which they were written.
        table_name: name of the table, for error texts.
    """

    leaves: tuple[Leaf, ...]
    table_name: str
    _root: structure.Node

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Signature):
            return NotImplemented
        # By the wire form: a named tuple is known by its name and fields, whatever class stands for it here.
        return self.to_wire() == other.to_wire()

    def __hash__(self) -> int:
        return hash(self.leaves)

    @classmethod
    def from_tree(cls, tree: object, table_name: str) -> Signature:
        """Reads a nested dict, list, tuple or named tuple of leaves; see `shmreplay.leaves.as_spec` for what is a leaf.

        Raises:
            TypeError: a dict key is not a str; a leaf is not a column, or of a dtype that shared memory cannot hold.
            ValueError: a part of the tree is empty, two columns have the same path, or a column asks for what is not
                supported yet.
        """
        where = f"table {table_name!r}"
        leaves: list[Leaf] = []
        paths: set[str] = set()

        def add_leaf(leaf: object, path: str) -> int:
            path = path or "step"
            if path in paths:
                raise ValueError(f"{where}: the signature has two columns {path!r}; rename a key")
            paths.add(path)
            leaves.append(Leaf(path, as_spec(leaf, f"{where}, column {path!r}"), len(leaves)))
            return len(leaves) - 1

        root = structure.parse(tree, add_leaf, where)
        return cls(tuple(leaves), table_name, root)

    @property
    def tree(self) -> Any:
        """The nested structure with each column's number as its leaf."""
        return self.unflatten(range(len(self.leaves)))

    @property
    def specs(self) -> Any:
        """The nested structure with each column's ArraySpec as its leaf."""
        return self.unflatten([leaf.spec for leaf in self.leaves])

    @property
    def root(self) -> structure.Node:
        """The outermost node of the structure."""
        return self._root

    def part(self, path: str) -> structure.Node | None:
        """Returns the part at a path of keys and field names, a column or several; None if there is none."""
        return structure.find(self._root, path)

    def top_names(self) -> tuple[str, ...]:
        """Keys or field names of the outermost level; empty if that has none."""
        return () if isinstance(self._root, structure.LeafNode) else self._root.names

    def native_plan(self) -> structure.NativePlan:
        """Returns the structure as the native code walks it.

        `("leaf", i)`, `("dict", (key, ...), (child, ...))` or `("seq", kind, (child, ...))`, where kind is "list",
        "tuple" or the class of a named tuple.
        """
        return structure.native_plan(self._root)

    def unflatten(self, values: Sequence[object]) -> Any:
        """Returns the nested structure with `values[i]` in the place of column i.

        Raises:
            ValueError: there are not as many values as columns.
        """
        if len(values) != len(self.leaves):
            raise ValueError(
                f"{self._where}: got {len(values)} values for {len(self.leaves)} columns; expected as many"
            )
        return structure.unflatten(self._root, values)

    def flatten(self, tree: object) -> list[object]:
        """Returns the leaf values of a nested structure in column order, unchecked; the inverse of `unflatten`.

        Raises:
            SignatureMismatch: it is built otherwise than the signature, or lacks a column.
        """
        values = conversion.flatten(self._root, tree, self._where)
        for leaf, value in zip(self.leaves, values, strict=True):
            if isinstance(value, Missing):
                raise SignatureMismatch(f"{self._where}, column {leaf.path!r}: missing; every column is needed here")
        return values

    def canonical(
        self, step: object, *, batch: int | None = None, present: set[int] | None = None
    ) -> list[Array | None]:
        """Returns one C-contiguous array a column, of exactly its dtype and shape; it may share the caller's memory.

        This is the slow path that explains. Taken are numpy arrays and scalars, whatever `__array__` makes one (tensors
        in host memory), all within the column's `cast` rule; for scalar columns also Python numbers in the dtype's
        range.

        Args:
            step: values in the structure of the signature.
            batch: number of steps, if the values have a leading axis: shapes are then `(batch, *shape)`.
            present: None, if every column must be there. Else the step may be partial: a column that is left out, or
                None, comes back as None. The set holds the numbers of the columns that the open row has already, which
                may not come again; those of this step are added to it on success.

        Raises:
            SignatureMismatch: something does not fit; the text names the column, what was expected, what came and what
                to do.
        """
        arrays: list[Array | None] = []
        values = conversion.flatten(self._root, step, self._where)
        for leaf, value in zip(self.leaves, values, strict=True):
            if isinstance(value, Missing) and present is not None:
                arrays.append(None)
            elif present is not None and leaf.index in present:
                raise SignatureMismatch(
                    f"{self._where}, column {leaf.path!r}: the open row has it already; give each column once a row. "
                    "If it was the final observation, call end_episode() first"
                )
            else:
                arrays.append(conversion.column_array(value, leaf, self._where, batch))
        if present is not None:
            present.update(index for index, array in enumerate(arrays) if array is not None)
        return arrays

    def batch_size(self, steps: object) -> int:
        """Returns the size N of the leading axis of a batch of steps, which all columns share; 0 is possible.

        Raises:
            SignatureMismatch: a column has no leading axis, or another one than the first column.
        """
        values = conversion.flatten(self._root, steps, self._where)
        sizes = [
            conversion.leading_axis(value, leaf, self._where) for leaf, value in zip(self.leaves, values, strict=True)
        ]
        for leaf, size in zip(self.leaves, sizes, strict=True):
            if size != sizes[0]:
                raise SignatureMismatch(
                    f"{self._where}: column {self.leaves[0].path!r} has {sizes[0]} rows and column {leaf.path!r} has "
                    f"{size}; every column of a batch has the same leading axis"
                )
        return sizes[0]

    def difference(self, other: Signature) -> list[str]:
        """Says by path where `other`, which is asked for, is not this signature, which is there; [] if nowhere.

        The order of a dict's keys is no difference.
        """
        mine, theirs = self._outline(), other._outline()
        paths = [*mine, *(path for path in theirs if path not in mine)]
        return [
            f"{path}: is {mine.get(path, 'not there')}, asked for {theirs.get(path, 'without it')}"
            for path in paths
            if mine.get(path) != theirs.get(path)
        ]

    def to_wire(self) -> dict[str, object]:
        """Returns a dict of plain values for msgpack; `from_wire` is its inverse."""
        return {
            "structure": structure.to_wire(self._root),
            "columns": [leaf.spec.to_wire() for leaf in self.leaves],
        }

    @classmethod
    def from_wire(cls, wire: object, table_name: str) -> Signature:
        """Remakes a signature from what `to_wire` returned.

        A named tuple comes back in the class that a signature of this process used, if name and fields are the same,
        else in a `collections.namedtuple` made for it.

        Raises:
            TypeError, ValueError: malformed, or not a signature that `from_tree` would take.
        """
        columns = wire_field("signature", wire, "columns")
        if not isinstance(columns, (list, tuple)):
            raise ValueError(f"signature: malformed, columns is {columns!r:.100}; expected a list")
        counter = itertools.count()
        root = structure.from_wire(wire_field("signature", wire, "structure"), counter)
        if (count := next(counter)) != len(columns):
            raise ValueError(f"signature: malformed, {count} leaves but {len(columns)} columns")
        return cls.from_tree(structure.unflatten(root, [ArraySpec.from_wire(column) for column in columns]), table_name)

    def __reduce__(self) -> tuple[Any, ...]:
        # A class of named tuples made here could not be pickled by its name.
        return Signature.from_wire, (self.to_wire(), self.table_name)

    @property
    def _where(self) -> str:
        return f"table {self.table_name!r}"

    def _outline(self) -> dict[str, str]:
        inner = {
            f"structure at {path!r}" if path else "structure": kind for path, kind in structure.outline(self._root)
        }
        return {**inner, **{f"column {leaf.path!r}": str(leaf.spec) for leaf in self.leaves}}

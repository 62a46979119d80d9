"""Signature: the nested structure of a table's steps, one column a leaf."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from shmreplay.base.checks import wire_field
from shmreplay.columns import conversion, heap_values, structure
from shmreplay.columns.codecs import Bytes
from shmreplay.columns.conversion import Missing
from shmreplay.columns.leaves import Leaf, as_spec
from shmreplay.columns.specs import ArraySpec
from shmreplay.errors import SignatureMismatch

__all__ = ["Leaf", "Signature"]

FREE_STEP_BYTES = 1024


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
        """Reads a nested dict, list, tuple or named tuple of leaves.

        `shmreplay.columns.leaves.as_spec` says what is a leaf.

        Raises:
            TypeError: a dict key is not a str; a leaf is not a column, or of a dtype that shared memory cannot hold.
            ValueError: a part of the tree is empty, two columns have the same path, or all columns are per item.
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
        if all(leaf.spec.is_per_item for leaf in leaves):
            raise ValueError(f"{where}: every column is per item; expected one at least that steps have")
        return cls(tuple(leaves), table_name, root)

    @classmethod
    def free(cls, table_name: str, mean_bytes: int | None = None) -> Signature:
        """That of a table without a signature: one column, of steps of any structure that describe themselves.

        Args:
            mean_bytes: stored bytes of a step on average, to plan the heap by; None: 1024.

        Raises:
            TypeError, ValueError: `mean_bytes` is no int, or below 1.
        """
        spec = ArraySpec((None,), "uint8", mean_bytes=FREE_STEP_BYTES if mean_bytes is None else mean_bytes)
        return cls((Leaf("step", spec, 0, is_whole_step=True),), table_name, structure.LeafNode(0))

    @property
    def is_free(self) -> bool:
        """Whether steps may have any structure."""
        return self.leaves[0].is_whole_step

    @cached_property
    def item_leaves(self) -> tuple[Leaf, ...]:
        """The columns that are per item."""
        return tuple(leaf for leaf in self.leaves if leaf.spec.is_per_item)

    @cached_property
    def has_optional(self) -> bool:
        """Whether it has a column that steps may leave out."""
        return any(leaf.spec.optional and not leaf.spec.is_per_item for leaf in self.leaves)

    @cached_property
    def needs_decoding(self) -> bool:
        """Whether it has columns whose values are stored as bytes that a codec of Python's makes."""
        return any(leaf.spec.is_coded for leaf in self.leaves)

    @cached_property
    def has_heap(self) -> bool:
        """Whether it has columns whose values are stored in the heap."""
        return any(leaf.spec.in_heap for leaf in self.leaves)

    @property
    def tree(self) -> Any:
        """The nested structure with each column's number as its leaf."""
        return self.unflatten(range(len(self.leaves)))

    @property
    def specs(self) -> Any:
        """The nested structure with each column's ArraySpec as its leaf; None where steps may have any structure."""
        return None if self.is_free else self.unflatten([leaf.spec for leaf in self.leaves])

    @property
    def root(self) -> structure.Node:
        """The outermost node of the structure."""
        return self._root

    def part(self, path: str) -> structure.Node | None:
        """Returns the part at a path of keys and field names, a column or several; None if there is none."""
        return structure.find(self._root, path)

    def item_parts(self) -> dict[str, structure.Node]:
        """The outermost parts that are per item as a whole, by name; of others the columns that are, by path."""
        if isinstance(self._root, structure.LeafNode):
            return {}
        children = self._root.children
        parts: dict[str, structure.Node] = {}
        for name, node in zip(structure.child_paths(self._root.names, len(children), ""), children, strict=True):
            leaves = [self.leaves[i] for i in structure.leaf_indices(node)]
            if all(leaf.spec.is_per_item for leaf in leaves):
                parts[name] = node
            else:
                parts.update({leaf.path: structure.LeafNode(leaf.index) for leaf in leaves if leaf.spec.is_per_item})
        return parts

    def parts(self, tree: object) -> list[object]:
        """The leaf values of a nested structure in column order, unchecked; a `Missing` for those that it lacks.

        Raises:
            SignatureMismatch: it is built otherwise than the signature.
        """
        return conversion.flatten(self._root, tree, self._where)

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
        values = self.parts(tree)
        for leaf, value in zip(self.leaves, values, strict=True):
            if isinstance(value, Missing):
                raise SignatureMismatch(f"{self._where}, column {leaf.path!r}: missing; every column is needed here")
        return values

    def canonical(
        self, step: object, *, batch: int | None = None, present: set[int] | None = None, with_items: bool = False
    ) -> list[Any]:
        """Returns one C-contiguous array a column, of exactly its dtype and shape; it may share the caller's memory.

        For columns of a codec it is the bytes to store, uint8 `[num_bytes]`, or None for an optional one that is not
        there; in a batch a list of these, one a step. For columns that are per item it is None. Rows that the core
        compresses are arrays like others.

        This is the slow path that explains. Taken are numpy arrays and scalars, whatever `__array__` makes one (tensors
        in host memory), all within the column's `cast` rule; for scalar columns also Python numbers in the dtype's
        range.

        Args:
            step: values in the structure of the signature.
            batch: number of steps, if the values have a leading axis: shapes are then `(batch, *shape)`.
            present: None, if every column must be there. Else the step may be partial: a column that is left out, or
                None, comes back as None. The set holds the numbers of the columns that the open row has already, which
                may not come again; those of this step are added to it on success.
            with_items: whether the step may bring the values of columns that are per item; they are left to
                `item_values`.

        Raises:
            SignatureMismatch: something does not fit; the text names the column, what was expected, what came and what
                to do.
        """
        arrays: list[Any] = []
        for leaf, value in zip(self.leaves, self.parts(step), strict=True):
            if leaf.spec.is_per_item:
                if not (with_items or isinstance(value, Missing)):
                    raise SignatureMismatch(
                        f"{self._where}, column {leaf.path!r}: is per item, no step has it; give it to create_item, "
                        "in values={...}"
                    )
                arrays.append(None)
            elif isinstance(value, Missing) and present is not None:
                arrays.append(None)
            elif present is not None and leaf.index in present:
                raise SignatureMismatch(
                    f"{self._where}, column {leaf.path!r}: the open row has it already; give each column once a row. "
                    "If it was the final observation, call end_episode() first"
                )
            else:
                arrays.append(self._column(value, leaf, batch))
        if present is not None:
            present.update(index for index, array in enumerate(arrays) if array is not None)
        return arrays

    def _column(self, value: object, leaf: Leaf, batch: int | None) -> Any:
        if not leaf.spec.is_coded:
            if leaf.spec.is_packed and batch is not None and isinstance(value, (list, tuple)):
                return heap_values.stacked(value, leaf, self._where, batch)
            return conversion.column_array(value, leaf, self._where, batch)
        if batch is None:
            return heap_values.stored_value(value, leaf, self._where)
        return heap_values.stored_values(value, leaf, self._where, batch)

    def item_values(self, values: object, *, with_steps: bool = False) -> Bytes | None:
        """Returns the bytes of what an item brings with it: its values of all columns that are per item.

        Args:
            values: in the structure of the signature, without the columns that steps have. None: it brings nothing.
            with_steps: whether `values` may have these as well; they are left to `canonical`.

        Returns:
            uint8 `[num_bytes]`; None in a table without such columns.

        Raises:
            SignatureMismatch: a value does not fit, or is of a column that steps have; or one that is not optional is
                missing.
        """
        if not self.item_leaves and values is None:
            return None
        parts = self.parts(values)
        if not with_steps:
            self._check_no_step_columns(parts)
        if not self.item_leaves:
            return None
        for leaf in self.item_leaves:
            if isinstance(parts[leaf.index], Missing) and not leaf.spec.optional:
                raise SignatureMismatch(
                    f"{self._where}, column {leaf.path!r}: missing, an item brings one {leaf}; give it in "
                    "values={...}, or declare the column with optional=True"
                )
        return heap_values.join_item_values(
            [heap_values.stored_value(parts[leaf.index], leaf, self._where) for leaf in self.item_leaves]
        )

    def _check_no_step_columns(self, parts: list[object]) -> None:
        for leaf, part in zip(self.leaves, parts, strict=True):
            if leaf.spec.is_per_item or isinstance(part, Missing):
                continue
            names = ", ".join(repr(item.path) for item in self.item_leaves)
            expected = f"expected those that are per item: {names}" if names else "the table has none that are per item"
            raise SignatureMismatch(f"{self._where}: values= has column {leaf.path!r}, which steps have; {expected}")

    def batch_item_values(self, steps: object, batch: int) -> list[Bytes] | None:
        """The same for a batch of steps that bring the values of columns that are per item: one a step."""
        if not self.item_leaves:
            return None
        parts = self.parts(steps)
        columns = [heap_values.stored_values(parts[leaf.index], leaf, self._where, batch) for leaf in self.item_leaves]
        return [heap_values.join_item_values(values) for values in zip(*columns, strict=True)]

    def batch_size(self, steps: object, *, with_items: bool = False) -> int:
        """Returns the size N of the leading axis of a batch of steps, which all columns share; 0 is possible.

        Args:
            with_items: whether the columns that are per item count as well.

        Raises:
            SignatureMismatch: a column has no leading axis, or another one than the first column; or there is none but
                optional ones that are not there.
        """
        values = self.parts(steps)
        found = [
            (leaf, size)
            for leaf, value in zip(self.leaves, values, strict=True)
            if with_items or not leaf.spec.is_per_item
            if (size := conversion.leading_axis(value, leaf, self._where)) is not None
        ]
        if not found:
            raise SignatureMismatch(f"{self._where}: no column says how many steps there are; give one at least")
        first, expected = found[0]
        for leaf, size in found:
            if size != expected:
                raise SignatureMismatch(
                    f"{self._where}: column {first.path!r} has {expected} rows and column {leaf.path!r} has "
                    f"{size}; every column of a batch has the same leading axis"
                )
        return expected

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
            "structure": None if self.is_free else structure.to_wire(self._root),
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
        if wire_field("signature", wire, "structure") is None:
            return cls.free(table_name, *(ArraySpec.from_wire(column).mean_bytes for column in columns))
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
        return {**inner, **{f"column {leaf.path!r}": str(leaf) for leaf in self.leaves}}

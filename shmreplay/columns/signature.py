"""Signature: the nested structure of a table's steps; each leaf is a column."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shmreplay.base.cached_property import cached_property
from shmreplay.base.checks import wire_field
from shmreplay.columns import conversion, heap_values, structure
from shmreplay.columns.codecs import Bytes
from shmreplay.columns.conversion import Missing
from shmreplay.columns.leaves import Leaf, as_spec
from shmreplay.columns.specs import ArraySpec
from shmreplay.errors import SignatureMismatch

__all__ = ["Leaf", "Signature"]

FREE_STEP_BYTES = 1024
MAX_COLUMNS = 125  # of an arena


@dataclass(frozen=True)
class Signature:
    """Structure and columns of a table's steps. Made by `from_tree` or `from_wire`.

    Two signatures are equal if their structure, columns and order of columns are equal, whatever the table's name.

    Attributes:
        leaves: the columns, depth first; dicts in their own order.
        table_name: name of the table, for error texts.
    """

    leaves: tuple[Leaf, ...]
    table_name: str
    _root: structure.Node

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Signature):
            return NotImplemented
        # By the wire form, in which a named tuple has a name and fields but no class.
        return self.to_wire() == other.to_wire()

    def __hash__(self) -> int:
        return hash(self.leaves)

    @classmethod
    def from_tree(cls, tree: object, table_name: str, *, is_table: bool = True) -> Signature:
        """Reads a nested dict, list, tuple or named tuple of leaves.

        `shmreplay.columns.leaves.as_spec` says what is a leaf.

        Raises:
            TypeError: a dict key is not a str; a leaf is not a column, or its dtype cannot be in shared memory.
            ValueError: a part of the tree is empty, two columns have the same path, all columns are per item, or there
                are more than a table has. Of a tree that is no table's (`is_table`) there may be.
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
        if is_table and len(leaves) > MAX_COLUMNS:
            raise ValueError(
                f"{where}: the signature has {len(leaves)} columns; expected at most {MAX_COLUMNS}: join columns of "
                "one dtype into an array, ArraySpec((k,), dtype)"
            )
        if all(leaf.spec.is_per_item for leaf in leaves):
            raise ValueError(f"{where}: every column is per item; expected at least one column that steps have")
        return cls(tuple(leaves), table_name, root)

    @classmethod
    def free(cls, table_name: str, mean_bytes: int | None = None) -> Signature:
        """Makes the signature of a table without one: a single column, whose values are whole encoded steps.

        Args:
            mean_bytes: average stored bytes of a step, to plan the heap; None: 1024.

        Raises:
            TypeError, ValueError: `mean_bytes` is not an int, or below 1.
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
        """Whether it has columns whose values are bytes that a Python codec makes."""
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
        """The nested structure with each column's ArraySpec as its leaf; None if steps may have any structure."""
        return None if self.is_free else self.unflatten([leaf.spec for leaf in self.leaves])

    @property
    def root(self) -> structure.Node:
        """The outermost node of the structure."""
        return self._root

    def part(self, path: str) -> structure.Node | None:
        """Returns the part at a path of keys and field names, a column or several; None if there is none."""
        return structure.find(self._root, path)

    def item_parts(self) -> dict[str, structure.Node]:
        """All columns that are per item: outermost parts of only such columns by name, the other columns by path."""
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
        """The leaf values of a nested structure in column order, unchecked; `Missing` for those it lacks.

        Raises:
            SignatureMismatch: it has another structure than the signature.
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
            SignatureMismatch: it has another structure than the signature, or lacks a column.
        """
        values = self.parts(tree)
        for leaf, value in zip(self.leaves, values, strict=True):
            if isinstance(value, Missing):
                raise SignatureMismatch(f"{self._where}, column {leaf.path!r}: missing; every column is needed here")
        return values

    def canonical(
        self,
        step: object,
        *,
        batch: int | None = None,
        present: set[int] | None = None,
        with_items: bool = False,
        used: conversion.Rows | None = None,
    ) -> list[Any]:
        """Returns one C-contiguous array a column, of exactly its dtype and shape; it may share the caller's memory.

        For columns with a codec it is the bytes to store, uint8 `[num_bytes]`, or None for an optional one that is
        missing; in a batch it is a list of these, one a step. For columns that are per item it is None. Rows that the
        core compresses are arrays like others.

        This is the slow path, which explains errors. It accepts numpy arrays and scalars, and whatever has `__array__`
        (tensors in host memory), within the column's `cast` rule; for scalar columns also Python numbers in the dtype's
        range.

        Args:
            step: values in the structure of the signature.
            batch: number of steps, if the values have a leading axis: shapes are then `(batch, *shape)`.
            present: None, if every column is needed. Otherwise the step may be partial: a column that is missing, or
                None, is None in the result. The set has the numbers of the columns that the open row already has, which
                must not come again; on success those of this step are added.
            with_items: whether the step may have values of columns that are per item; `item_values` handles those.
            used: numbers of the steps that must be in their dtype's range; None: all.

        Raises:
            SignatureMismatch: something does not fit; the text names the column, what was expected, what it got and
                what to do.
        """
        arrays: list[Any] = []
        for leaf, value in zip(self.leaves, self.parts(step), strict=True):
            if leaf.spec.is_per_item:
                if not (with_items or isinstance(value, Missing)):
                    raise SignatureMismatch(
                        f"{self._where}, column {leaf.path!r}: is per item, so steps do not have it; pass it to "
                        "create_item, in values={...}"
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
                arrays.append(self._column(value, leaf, batch, used))
        if present is not None:
            present.update(index for index, array in enumerate(arrays) if array is not None)
        return arrays

    def _column(self, value: object, leaf: Leaf, batch: int | None, used: conversion.Rows | None) -> Any:
        if not leaf.spec.is_coded:
            if leaf.spec.is_packed and batch is not None and isinstance(value, (list, tuple)):
                return heap_values.stacked(value, leaf, self._where, batch)
            return conversion.column_array(value, leaf, self._where, batch, used)
        if batch is None:
            return heap_values.stored_value(value, leaf, self._where)
        return heap_values.stored_values(value, leaf, self._where, batch)

    def item_values(self, values: object, *, with_steps: bool = False) -> Bytes | None:
        """Returns the bytes of an item's values: those of all columns that are per item.

        Args:
            values: in the structure of the signature, without the columns of steps. None: the item has no values.
            with_steps: whether `values` may have columns of steps as well; `canonical` handles those.

        Returns:
            uint8 `[num_bytes]`; None in a table without such columns.

        Raises:
            SignatureMismatch: a value does not fit or belongs to a column of steps, or one that is not optional is
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
                    f"{self._where}, column {leaf.path!r}: missing; each item needs one {leaf}; pass it in "
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
        """Returns the bytes of each item's values, for a batch of steps that are an item each; see `item_values`.

        Args:
            steps: in the structure of the signature, with a leading axis or list of `batch` values in each column.
            batch: number of steps.

        Returns:
            One uint8 `[num_bytes]` for each step; None in a table without columns that are per item.

        Raises:
            SignatureMismatch: a value does not fit, or one that is not optional is missing.
        """
        if not self.item_leaves:
            return None
        parts = self.parts(steps)
        columns = [heap_values.stored_values(parts[leaf.index], leaf, self._where, batch) for leaf in self.item_leaves]
        return [heap_values.join_item_values(values) for values in zip(*columns, strict=True)]

    def batch_size(self, steps: object, *, with_items: bool = False) -> int:
        """Returns the size N of the leading axis of a batch of steps, which all columns share; 0 is possible.

        Args:
            with_items: whether columns that are per item count as well.

        Raises:
            SignatureMismatch: a column has no leading axis, or another size than the first column; or all columns are
                optional and missing.
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
        """Lists the differences, by path, between this signature, which exists, and `other`, which is asked for.

        The order of a dict's keys does not matter.
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

        A named tuple gets the class that a signature of this process used, if name and fields are the same, otherwise a
        new `collections.namedtuple`.

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
        # By the wire form, because a named tuple class made here cannot be pickled by name.
        return Signature.from_wire, (self.to_wire(), self.table_name)

    @property
    def _where(self) -> str:
        return f"table {self.table_name!r}"

    def _outline(self) -> dict[str, str]:
        inner = {
            f"structure at {path!r}" if path else "structure": kind for path, kind in structure.outline(self._root)
        }
        return {**inner, **{f"column {leaf.path!r}": str(leaf) for leaf in self.leaves}}

"""Arrangement: which outputs a batch shows, how they are padded and ordered, and what they are written into."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from shmreplay import _core
from shmreplay.clients.batches.arguments import MAX_BATCH
from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.batches.native import NativeOutput
from shmreplay.clients.batches.sample_options import Columns, PadTo
from shmreplay.columns import structure
from shmreplay.columns.item_structure import node_of, pack_node
from shmreplay.columns.leaves import Leaf
from shmreplay.columns.signature import Signature
from shmreplay.columns.specs import ArraySpec
from shmreplay.errors import InternalError, SignatureMismatch

MAX_KEPT = 64  # arrangements of one handle; a caller has two or three


class ShownOutput(NamedTuple):
    """One output of a batch: its path in `data`, and the column that it shows."""

    path: str
    column: int
    is_squeezed: bool
    spec: ArraySpec
    number: int  # of the output in the items' structure
    rows: int | None  # None: as many as the table's longest item


class Items:
    """The structure and the outputs of a table's items. The table's first item fixes them."""

    def __init__(self, signature: Signature, names: bytes, outputs: Sequence[NativeOutput]) -> None:
        self.signature = signature
        self.names = names
        self.root = node_of(names) if names else signature.root
        self.paths = tuple(path or "step" for path in structure.leaf_paths(self.root))
        self.outputs = tuple(outputs)

    @classmethod
    def of_steps(cls, signature: Signature) -> Items:
        """Items of one step each: assumed for a table that has never had an item."""
        return cls(signature, b"", [(leaf.index, True, 1) for leaf in signature.leaves])

    def differences(self, other: Items) -> list[str]:
        """Lists the differences from `other` by path; [] if there are none. Orders of dict keys do not matter."""
        mine, theirs = self._outline(), other._outline()
        paths = [*mine, *(path for path in theirs if path not in mine)]
        return [
            f"{path}: {mine.get(path, 'not there')} and {theirs.get(path, 'not there')}"
            for path in paths
            if mine.get(path) != theirs.get(path)
        ]

    def _outline(self) -> dict[str, str]:
        inner = {f"structure at {path!r}" if path else "structure": kind for path, kind in structure.outline(self.root)}
        leaves = {}
        for path, (column, squeezed, _) in zip(self.paths, self.outputs, strict=True):
            spec = self.signature.leaves[column].spec
            shape = list(spec.shape) if squeezed else ["steps", *spec.shape]
            leaves[repr(path)] = f"{spec.dtype} [{', '.join(map(str, shape))}]"
        return {**inner, **leaves}

    def matching(self, name: str) -> list[int]:
        """Numbers of the outputs at a path or below it."""
        return [i for i, path in enumerate(self.paths) if path == name or path.startswith((f"{name}/", f"{name}["))]


class Arrangement:
    """How a caller wants batches of a table: which outputs, padded to how many rows, in which order of axes.

    Attributes:
        layout: the arrangement as the core takes it.
        time_major: whether the step axis comes first.
    """

    def __init__(self, items: Items, columns: tuple[str, ...] | None, pad_to: PadTo, time_major: bool) -> None:
        self._where = f"table {items.signature.table_name!r}"
        self._items = items
        self._numbers = self._shown(columns)
        self._rows = self._padded(pad_to)
        self.time_major = time_major
        self._root = items.root
        names = items.names
        if len(self._numbers) < len(items.paths):
            kept = {number: i for i, number in enumerate(self._numbers)}
            pruned = structure.prune(items.root, kept)
            assert pruned is not None  # _shown() found at least one
            self._root = pruned
            names = pack_node(pruned)
        self._names = names
        outputs = [(number, *items.outputs[number][:2], self._rows.get(number, 0)) for number in self._numbers]
        self.layout = _core.BatchLayout(len(items.paths), outputs, names, time_major)

    # --- what is asked for ---------------------------------------------------------------------------------------

    def _shown(self, columns: tuple[str, ...] | None) -> list[int]:
        if columns is None:
            return list(range(len(self._items.paths)))
        shown: set[int] = set()
        for name in columns:
            shown.update(self._find(name, "columns"))
        if not shown:
            raise ValueError(f"{self._where}: columns is empty; expected at least one of {self._list()}")
        return sorted(shown)

    def _padded(self, pad_to: PadTo) -> dict[int, int]:
        """The rows that outputs are padded to, by number of output."""
        if pad_to is None:
            return {}
        stepped = [number for number in self._numbers if not self._items.outputs[number][1]]
        if not isinstance(pad_to, Mapping):
            if not stepped:
                raise ValueError(f"{self._where}: pad_to is {pad_to!r}, but no output of the batch has a step axis")
            rows = self._check_rows("pad_to", pad_to)
            return dict.fromkeys(stepped, rows)
        padded: dict[int, int] = {}
        for name, value in pad_to.items():
            found = [number for number in self._find(name, "pad_to") if number in stepped]
            if not found:
                raise ValueError(f"{self._where}: pad_to has {name!r}, which has no step axis in this batch")
            padded.update(dict.fromkeys(found, self._check_rows(f"pad_to[{name!r}]", value)))
        return padded

    def _check_rows(self, name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise TypeError(f"{self._where}: {name} is {value!r}; expected a number of rows")
        if not 1 <= value <= MAX_BATCH:
            raise ValueError(f"{self._where}: {name} is {value}; expected 1 to {MAX_BATCH} rows")
        return int(value)

    def _find(self, name: str, option: str) -> list[int]:
        if not (found := self._items.matching(name)):
            raise SignatureMismatch(f"{self._where}: {option} has {name!r}; its items have {self._list()}")
        return found

    def _list(self) -> str:
        return ", ".join(self._items.paths)

    @property
    def names(self) -> bytes:
        """The nesting of the outputs, as in `NativeBatch.names`."""
        return self._names

    @property
    def root(self) -> structure.Node:
        """The nesting of the outputs, as a structure."""
        return self._root

    @property
    def items(self) -> Items:
        """The structure of the table's items."""
        return self._items

    @property
    def outputs(self) -> list[ShownOutput]:
        """The outputs that are shown, in the order of the batch's arrays."""
        items = self._items
        specs = [items.signature.leaves[column].spec for column, _, _ in items.outputs]
        return [
            ShownOutput(items.paths[n], *items.outputs[n][:2], specs[n], n, self._rows.get(n)) for n in self._numbers
        ]

    def unflatten(self, values: Sequence[object]) -> Any:
        """Returns the structure of the batch's data with `values[i]` for output i."""
        return structure.unflatten(self._root, values)

    # --- what it is written into ---------------------------------------------------------------------------------

    def arrays(self, out: Any) -> list[Any]:
        """Returns the arrays of `out`, one for each output shown. The core checks each; `explain` says what is wrong.

        The entry is None for columns that have a codec or are per item, since these come in new arrays. For a column
        whose rows the core compresses it may be an array or None.

        Raises:
            SignatureMismatch: `out` has another structure than the batch's data, or an array where None is expected.
        """
        if isinstance(out, Batch):
            self._check_batch(out)
            return [array if isinstance(array, np.ndarray) else None for array in out._native.data]
        arrays: list[Any] = []
        self._collect(self._root, out, "", arrays)
        for number, array in zip(self._numbers, arrays, strict=True):
            if array is not None and self._leaf(number).spec.is_coded:
                raise SignatureMismatch(
                    f"{self._at(number)} is {type(array).__name__}; expected None: the column is {self._leaf(number)}, "
                    "whose values come in new arrays"
                )
        return arrays

    def _check_batch(self, out: Batch) -> None:
        if out._native.names != self._names or out.time_major != self.time_major:
            raise SignatureMismatch(
                f"{self._where}: out is a batch with other columns or another order of axes; pass one that was "
                "sampled with the same columns= and time_major="
            )

    def _collect(self, node: structure.Node, out: Any, path: str, arrays: list[Any]) -> None:
        if isinstance(node, structure.LeafNode):
            arrays.append(np.asarray(out) if type(out) is np.memmap else out)
            return
        names = node.names
        if isinstance(node, structure.DictNode):
            fits = isinstance(out, Mapping) and out.keys() == set(names)
            parts = [out[name] for name in names] if fits else []
        else:
            fits = isinstance(out, (list, tuple)) and len(out) == len(node.children)
            parts = list(out) if fits else []
        if not fits:
            got = f"one with the keys {', '.join(map(repr, out))}" if isinstance(out, Mapping) else type(out).__name__
            raise SignatureMismatch(
                f"{self._where}: out{f' at {path!r}' if path else ''} must be {structure.kind_text(node)}, like the "
                f"batch's data; got {got}"
            )
        for child, part, at in zip(
            node.children, parts, structure.child_paths(names, len(node.children), path), strict=True
        ):
            self._collect(child, part, at, arrays)

    def explain(self, arrays: Sequence[Any], n: int) -> NoReturn:
        """Raises the error for the first of the arrays that the core cannot write a batch of n items into.

        Raises:
            TypeError: it is not a numpy array.
            ValueError: it has another dtype or shape, is not contiguous, is read-only, or shares another's memory.
            InternalError: all arrays are right.
        """
        taken: list[tuple[int, NDArray[Any]]] = []
        for number, array in zip(self._numbers, arrays, strict=True):
            spec = self._leaf(number).spec
            if spec.is_coded or (spec.is_packed and array is None):
                continue
            expected = f"expected a writable C-contiguous array {self._shape_text(number, n)}"
            if type(array) is not np.ndarray:
                raise TypeError(f"{self._at(number)} is {type(array).__name__}; {expected}; a tensor has .numpy()")
            if array.dtype != spec.dtype or not self._has_shape(number, array, n):
                raise ValueError(f"{self._at(number)} is {array.dtype} {list(array.shape)}; {expected}")
            if not array.flags.c_contiguous:
                raise ValueError(f"{self._at(number)} is not contiguous; {expected}")
            if not array.flags.writeable:
                raise ValueError(f"{self._at(number)} is read-only; {expected}")
            for other, before in taken:
                if np.may_share_memory(before, array):
                    raise ValueError(
                        f"{self._at(number)} lies in the same memory as {self._items.paths[other]!r}; expected an "
                        "array of its own for each output"
                    )
            taken.append((number, array))
        raise InternalError(f"{self._where}: the core refused arrays that are right; please report")

    def _leaf(self, number: int) -> Leaf:
        return self._items.signature.leaves[self._items.outputs[number][0]]

    def _at(self, number: int) -> str:
        return f"{self._where}: out, {self._items.paths[number]!r}"

    def _shape_of(self, number: int, n: int) -> list[int | str]:
        _, squeezed, _ = self._items.outputs[number]
        shape = list(self._leaf(number).spec.least_shape)
        rows: int | str = self._rows.get(number, "L")
        axes = [n] if squeezed else [rows, n] if self.time_major else [n, rows]
        return [*axes, *shape]

    def _shape_text(self, number: int, n: int) -> str:
        return f"{self._leaf(number).spec.dtype} [{', '.join(map(str, self._shape_of(number, n)))}]"

    def _has_shape(self, number: int, array: NDArray[Any], n: int) -> bool:
        expected = self._shape_of(number, n)
        return array.ndim == len(expected) and all(
            have == want or (want == "L" and have > 0) for have, want in zip(array.shape, expected, strict=True)
        )

    # --- what came ------------------------------------------------------------------------------------------------

    def too_long(self, longest: Sequence[NativeOutput], arrays: Sequence[Any] | None) -> ValueError:
        """Returns the error for a batch that has too little room for the table's longest item."""
        for i, number in enumerate(self._numbers):
            _, squeezed, needed = longest[number]
            path = self._items.paths[number]
            if squeezed:
                continue
            array = None if arrays is None else arrays[i]
            if array is not None and (have := array.shape[0 if self.time_major else 1]) < needed:
                return ValueError(
                    f"{self._where}: out, {path!r} has room for {have} rows an item, but the table's longest item has "
                    f"{needed} there; expected at least as many"
                )
            if (rows := self._rows.get(number, needed)) < needed:
                return ValueError(
                    f"{self._where}: pad_to is {rows} for {path!r}, but the table's longest item has {needed} rows "
                    "there; expected at least as many"
                )
        raise InternalError(f"{self._where}: the core found an item too long that is not; please report")

    def empty(self) -> Batch:
        """A batch of no items."""
        outputs = [self._items.outputs[number] for number in self._numbers]
        return Batch.empty(self._items.signature, self._names, outputs)


class Arrangements:
    """The arrangements that callers have asked for of one table's batches. Each is made once and kept."""

    def __init__(self, signature: Signature) -> None:
        self._signature = signature
        self._items: Items | None = None
        self._made: dict[object, Arrangement] = {}

    @property
    def items(self) -> Items | None:
        """The structure of the table's items; None: not known yet."""
        return self._items

    def learn(self, names: bytes, outputs: Sequence[NativeOutput]) -> None:
        """Takes the structure of the table's items from the core. It does not change afterwards."""
        self._items = Items(self._signature, names, outputs)

    def of(self, columns: Columns, pad_to: PadTo, time_major: bool) -> Arrangement:
        """Returns the arrangement for these options.

        Raises:
            SignatureMismatch: an option names an output that the items do not have.
            ValueError: `columns` is empty, `pad_to` is out of range, or its outputs have no step axis.
            TypeError: an option has the wrong type.
        """
        names = None if columns is None else self._names(columns)
        # By repr, because 8 and 8.0 are equal, but only 8 is valid.
        key = (names, None if pad_to is None else repr(pad_to), bool(time_major))
        if self._items is None:  # `get` of a table that has never held an item
            return Arrangement(Items.of_steps(self._signature), names, pad_to, bool(time_major))
        if (made := self._made.get(key)) is None:
            made = Arrangement(self._items, names, pad_to, bool(time_major))
            if len(self._made) >= MAX_KEPT:
                self._made.clear()
            self._made[key] = made
        return made

    def _names(self, columns: str | Iterable[str]) -> tuple[str, ...]:
        names = (columns,) if isinstance(columns, str) else tuple(columns) if isinstance(columns, Iterable) else (None,)
        if not all(isinstance(name, str) for name in names):
            raise TypeError(
                f"table {self._signature.table_name!r}: columns is {columns!r}; expected names of outputs, as "
                '["observation", "reward"]'
            )
        return names

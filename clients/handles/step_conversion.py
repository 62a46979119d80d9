"""StepConversion: converts steps that the core cannot read by itself. The core calls it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeGuard, TypeVar

import numpy as np
from numpy.typing import NDArray

from shmreplay import _core
from shmreplay.columns.codecs import Bytes
from shmreplay.columns.leaves import Leaf
from shmreplay.columns.signature import Signature
from shmreplay.columns.structure import LeafNode, SeqNode
from shmreplay.errors import SignatureMismatch

T = TypeVar("T")


class ConvertedStep:
    """A step or a batch of steps that is converted already. `StepConversion` returns its columns as they are."""

    def __init__(self, columns: list[Any], size: int = 1) -> None:
        self.columns = columns
        self.size = size


class StepConversion:
    """Makes columns of steps for one arena, and refuses values that are larger than its heap."""

    def __init__(self, signature: Signature, arena: _core.Arena) -> None:
        self._sig = signature
        stats = arena.stats() if signature.needs_decoding else {"num_blocks": 0, "block_bytes": 1}
        self._num_blocks = int(stats["num_blocks"])
        self._block_bytes = int(stats["block_bytes"])

    def step(self, step: object, batch: int | None = None, used: NDArray[np.int64] | None = None) -> list[Any]:
        """Columns of a step, as `Signature.canonical` makes them. The core calls it.

        With `batch`: columns of that many steps, a stream each; those numbered in `used` are appended.

        Raises:
            SignatureMismatch: it does not fit.
            ValueError: its values are larger than the whole heap.
        """
        if isinstance(step, ConvertedStep):
            return step.columns
        if batch is not None:
            return self.checked_batch(self._sig.canonical(step, batch=batch, used=used))
        return self.checked(self._sig.canonical(step))

    def batch(self, steps: object) -> tuple[list[Any], int]:
        """Columns of a batch of steps, and how many steps there are. The core calls it.

        Raises:
            SignatureMismatch: it does not fit; if the steps are separate, the text says which one.
            ValueError: the values of a step are larger than the whole heap.
        """
        if isinstance(steps, ConvertedStep):
            return steps.columns, steps.size
        if self._are_separate(steps):
            separate = self._each(steps, self.step)
            return self._columns(separate), len(separate)
        n = self._sig.batch_size(steps)
        return self.checked_batch(self._sig.canonical(steps, batch=n)), n

    def step_with_values(self, step: object) -> tuple[ConvertedStep, Bytes | None]:
        """A step that is an item by itself, and its values for columns that are per item."""
        columns = self.checked(self._sig.canonical(step, with_items=True))
        return ConvertedStep(columns), self.checked_values(self._sig.item_values(step, with_steps=True))

    def batch_with_values(self, steps: object) -> tuple[ConvertedStep, list[Bytes] | None]:
        """As `step_with_values`, for a batch of steps."""
        if self._are_separate(steps):
            pairs = self._each(steps, self.step_with_values)
            columns = self._columns([step.columns for step, _ in pairs])
            return ConvertedStep(columns, len(pairs)), [brought for _, brought in pairs]  # type: ignore[misc]
        n = self._sig.batch_size(steps, with_items=True)
        columns = self.checked_batch(self._sig.canonical(steps, batch=n, with_items=True))
        values = self._sig.batch_item_values(steps, n)
        for value in values or ():
            self.checked_values(value)
        return ConvertedStep(columns, n), values

    def _are_separate(self, steps: object) -> TypeGuard[list[Any]]:
        """Whether it is a list of steps, each as `insert` takes it. A list may also be one step, or one column."""
        root = self._sig.root
        if type(steps) is not list or (isinstance(root, SeqNode) and root.kind == "list"):
            return False
        return not (isinstance(root, LeafNode) and self._sig.leaves[root.index].spec.in_heap)

    @staticmethod
    def _each(steps: list[Any], convert: Callable[[object], T]) -> list[T]:
        """Converts every step. An error says which step it is about."""
        converted: list[T] = []
        for number, step in enumerate(steps):
            try:
                converted.append(convert(step))
            except (SignatureMismatch, ValueError) as error:
                error.args = (f"{error} (step {number} of {len(steps)})",)
                raise
        return converted

    def _columns(self, steps: list[list[Any]]) -> list[Any]:
        """The columns of separate steps, put together as those of a batch."""
        columns: list[Any] = []
        for leaf in self._sig.leaves:
            if leaf.spec.is_per_item:
                columns.append(None)
            elif leaf.spec.is_coded:
                columns.append([step[leaf.index] for step in steps])
            else:
                rows = [step[leaf.index] for step in steps]
                columns.append(np.stack(rows) if rows else np.empty((0, *leaf.spec.least_shape), leaf.spec.dtype))
        return columns

    def checked(self, columns: list[Any]) -> list[Any]:
        """Returns the columns of a step. Raises ValueError if they are larger than the heap."""
        if self._num_blocks > 0:
            self._check([(leaf, column) for leaf, column in zip(self._sig.leaves, columns, strict=True)])
        return columns

    def checked_values(self, values: Bytes | None) -> Bytes | None:
        """Returns the values that an item brings. Raises ValueError if they are larger than the heap."""
        if values is not None and self._blocks(values.size) > self._num_blocks:
            names = ", ".join(repr(leaf.path) for leaf in self._sig.item_leaves)
            self._refuse(f"columns {names}: what an item brings", values.size)
        return values

    def checked_batch(self, columns: list[Any]) -> list[Any]:
        """Returns the columns of a batch of steps, None for columns that are left out.

        Raises ValueError if the values of one step are larger than the heap.
        """
        if self._num_blocks > 0:
            stored = [
                (leaf, column)
                for leaf, column in zip(self._sig.leaves, columns, strict=True)
                if _in_rows(leaf) and column is not None
            ]
            for i in self._suspects([column for _, column in stored]):
                self._check([(leaf, column[i]) for leaf, column in stored])
        return columns

    def _suspects(self, columns: list[list[Bytes | None]]) -> list[int]:
        """Steps whose values take more blocks than the heap has, if each value takes one more than it need."""
        if not columns:
            return []
        sizes = [[0 if value is None else value.size for value in column] for column in columns]
        blocks = np.sum(sizes, axis=0) // self._block_bytes + len(columns)
        found: list[int] = np.flatnonzero(blocks > self._num_blocks).tolist()
        return found

    def _check(self, row: Sequence[tuple[Leaf, Any]]) -> None:
        sizes = [(leaf, column.size) for leaf, column in row if _in_rows(leaf) and column is not None]
        if sum(self._blocks(size) for _, size in sizes) > self._num_blocks:
            leaf, size = max(sizes, key=lambda pair: pair[1])
            self._refuse(f"column {leaf.path!r}: its value", size)

    def _refuse(self, what: str, num_bytes: int) -> None:
        raise ValueError(
            f"table {self._sig.table_name!r}, {what} takes {num_bytes} bytes, but the whole heap has "
            f"{self._num_blocks} blocks of {self._block_bytes}: create the table with a larger mean_bytes or "
            "capacity_steps"
        )

    def _blocks(self, num_bytes: int) -> int:
        return max(1, -(-num_bytes // self._block_bytes))  # a value of 0 bytes takes one, too


def _in_rows(leaf: Leaf) -> bool:
    return leaf.spec.is_coded and not leaf.spec.is_per_item

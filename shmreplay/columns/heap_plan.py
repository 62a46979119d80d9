"""HeapPlan: the blocks of an arena for values that are not stored in the rows of its chunks.

    blocks = blocks for the values of all rows of all chunks, by their mean stored bytes
           + blocks for the values that items bring: for max_size * F items, and for one more a row of the reserve

A value takes whole blocks, and at least one, so that an empty value differs from none. The size of a block is the
largest power of two from 64 to 4096 bytes that wastes at most a quarter of what is stored; else it is 64. Values of
varying size waste half a block each, on average. Blocks are freed with their chunk, so F applies to items, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shmreplay.columns.leaves import Leaf

_SMALLEST, _LARGEST = 64, 4096
_WASTE = 1.25
_ITEM_HEADER_BYTES = 4  # in front of each value that an item brings


@dataclass(frozen=True)
class HeapPlan:
    """Sizes of a heap, all 0 if no column needs one. Made by `plan_heap`.

    Attributes:
        num_blocks: number of blocks.
        block_bytes: bytes of a block.
        step_bytes: bytes of a step's values in the heap, on average.
        item_bytes: bytes of the values that an item brings, on average.
        num_rows: number of steps that the heap has room for; 0 if steps have no values in it.
        num_items: number of items that the heap has room for; 0 if items bring no values.
    """

    num_blocks: int = 0
    block_bytes: int = 0
    step_bytes: int = 0
    item_bytes: int = 0
    num_rows: int = 0
    num_items: int = 0

    @property
    def num_bytes(self) -> int:
        """Bytes of all blocks."""
        return self.num_blocks * self.block_bytes


@dataclass(frozen=True)
class _Value:
    """Planned sizes of a value: the mean over all rows, and the size of a present value if that is constant.

    Both are at least 1: a value of 0 bytes takes a block, too.
    """

    mean_bytes: int
    fixed_bytes: int | None

    def planned(self, block_bytes: int) -> float:
        """Bytes of the blocks that it takes, on average over all rows."""
        if self.fixed_bytes is None:
            return max(self.mean_bytes + block_bytes / 2, block_bytes)
        blocks = -(-self.fixed_bytes // block_bytes)
        return blocks * block_bytes * self.mean_bytes / self.fixed_bytes


def plan_heap(leaves: Sequence[Leaf], num_rows: int, num_items: int) -> HeapPlan:
    """Sizes the heap of an arena of these columns, for `num_rows` rows and `num_items` items that bring values."""
    of_steps = [_value_of(leaf) for leaf in leaves if leaf.spec.in_heap and not leaf.spec.is_per_item]
    of_items = _item_value(leaves)
    if not of_steps and of_items is None:
        return HeapPlan()
    block = _block_bytes([*of_steps, *([] if of_items is None else [of_items])])
    total = num_rows * sum(value.planned(block) for value in of_steps)
    if of_items is not None:
        total += num_items * of_items.planned(block)
    return HeapPlan(
        num_blocks=max(math.ceil(total / block), 1),
        block_bytes=block,
        step_bytes=step_bytes(leaves),
        item_bytes=0 if of_items is None else of_items.mean_bytes,
        num_rows=num_rows if of_steps else 0,
        num_items=0 if of_items is None else num_items,
    )


def step_bytes(leaves: Sequence[Leaf]) -> int:
    """Returns the bytes of a step's values in the heap, on average."""
    return sum(leaf.spec.planned_bytes for leaf in leaves if leaf.spec.in_heap and not leaf.spec.is_per_item)


def _value_of(leaf: Leaf) -> _Value:
    spec = leaf.spec
    varies = spec.compression is not None or None in spec.shape
    return _Value(max(spec.planned_bytes, 1), None if varies else max(spec.row_bytes, 1))


def _item_value(leaves: Sequence[Leaf]) -> _Value | None:
    """The values that an item brings, which are stored as one value."""
    values = [_value_of(leaf) for leaf in leaves if leaf.spec.is_per_item]
    if not values:
        return None
    mean = sum(_ITEM_HEADER_BYTES + value.mean_bytes for value in values)
    is_fixed = all(value.fixed_bytes == value.mean_bytes for value in values)
    return _Value(mean, mean if is_fixed else None)


def _block_bytes(values: Sequence[_Value]) -> int:
    stored = sum(value.mean_bytes for value in values)
    block = _LARGEST
    while block > _SMALLEST and sum(value.planned(block) for value in values) > _WASTE * stored:
        block //= 2
    return block

"""Joins the items of views to one batch in host memory: the slow way, for items that are copies already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shmreplay.clients.batches.arrangement import Arrangement
from shmreplay.clients.batches.native import NativeOutput
from shmreplay.clients.samplers.view import View
from shmreplay.clients.torch.parts import NUMBERS, Form, TorchParts


def form_of(views: Sequence[View], arrangement: Arrangement) -> Form:
    """The form of a batch of these views' items."""
    return Form(
        arrangement.items.signature,
        arrangement.root,
        tuple(output.is_squeezed for output in arrangement.outputs),
        arrangement.time_major,
        np.concatenate([view.keys for view in views]),
        views[-1]._smallest_probability,
    )


def numbers_of(views: Sequence[View]) -> dict[str, NDArray[Any]]:
    """The figures of the views' items, by name, one number for each item."""
    return {name: np.concatenate([getattr(view._numbers, name) for view in views]) for name in NUMBERS}


def copied_parts(views: Sequence[View], arrangement: Arrangement, longest: Sequence[NativeOutput]) -> TorchParts:
    """Copies the views' items into arrays like those of a batch. `longest` has the rows of the table's longest item."""
    data, masks, lengths = [], [], []
    for output in arrangement.outputs:
        rows = 0 if output.is_squeezed else output.rows or longest[output.number][2]
        shown = [view._outputs[output.number] for view in views]
        own, mask = joined([part.data for part in shown], rows, 0), joined([part.has for part in shown], rows, 0)
        lengths.append(num_real(mask))
        turns = arrangement.time_major and not output.is_squeezed
        data.append(_turned(own) if turns else own)
        masks.append(_turned(mask) if turns else mask)
    return TorchParts(data, lengths, masks, [None] * len(data), numbers_of(views))


def joined(arrays: Sequence[Any], rows: int, value: int) -> NDArray[Any]:
    """Joins arrays along the first axis. `rows` > 0: pads their step axis with `value`, to at least that many rows."""
    if rows == 0:
        return np.concatenate(arrays)
    rows = max(rows, *(array.shape[1] for array in arrays))
    missing = [[(0, rows - array.shape[1] if axis == 1 else 0) for axis in range(array.ndim)] for array in arrays]
    padded = [np.pad(array, pads, constant_values=value) for array, pads in zip(arrays, missing, strict=True)]
    return np.concatenate(padded)


def num_real(mask: NDArray[np.bool_]) -> NDArray[np.int32]:
    """The number of real rows of each item, int32 `[B]`; 1 without a step axis."""
    return np.ones(len(mask), np.int32) if mask.ndim == 1 else mask.sum(1, dtype=np.int32)


def _turned(array: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(array.swapaxes(0, 1))

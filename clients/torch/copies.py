"""Items of views as one batch in host memory: the long way, for those that are copies already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shmreplay.clients.sampling import Arrangement, NativeOutput, ShownOutput
from shmreplay.clients.torch.parts import NUMBERS, Form, Parts
from shmreplay.clients.view import View, ViewedItem


def form_of(views: Sequence[View], arrangement: Arrangement) -> Form:
    """What a batch of these views' items is, wherever its data lies."""
    return Form(
        arrangement.items.signature.table_name,
        arrangement.root,
        tuple(output.is_squeezed for output in arrangement.outputs),
        arrangement.time_major,
        np.concatenate([view.keys for view in views]),
        views[-1]._smallest_probability,
    )


def numbers_of(views: Sequence[View]) -> dict[str, NDArray[Any]]:
    """What there is one an item of, by its name."""
    return {name: np.concatenate([getattr(view._numbers, name) for view in views]) for name in NUMBERS}


def copied_parts(views: Sequence[View], arrangement: Arrangement, longest: Sequence[NativeOutput]) -> Parts:
    """The views' items, copied one by one into arrays as a batch has them; `longest` is of all the table's."""
    items = [item for view in views for item in view]
    copies = [_copy(items, output, output.rows or longest[output.number][2]) for output in arrangement.outputs]
    turns = [arrangement.time_major and not output.is_squeezed for output in arrangement.outputs]
    lengths = [mask.sum(-1, dtype=np.int32) if mask.ndim > 1 else np.ones(len(items), np.int32) for _, mask in copies]
    turned = [
        (_turned(data), _turned(mask)) if turn else (data, mask)
        for (data, mask), turn in zip(copies, turns, strict=True)
    ]
    return Parts(
        [data for data, _ in turned], lengths, [mask for _, mask in turned], [None] * len(copies), numbers_of(views)
    )


def _copy(items: Sequence[ViewedItem], output: ShownOutput, rows: int) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """One output of all items, padded with 0, and where there is a row."""
    axes = (len(items),) if output.is_squeezed else (len(items), rows)
    data = np.zeros((*axes, *output.spec.shape), output.spec.dtype)
    has = np.zeros(axes, np.bool_)
    for i, item in enumerate(items):
        own, mask = item._shown[output.number].data, item._native.masks[output.number]
        place = i if output.is_squeezed else (i, slice(len(own)))
        data[place] = own
        has[place] = True if mask is None else mask
    return data, has


def _turned(array: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(array.swapaxes(0, 1))

"""Images among the columns of items, as PNG files. Needs only zlib."""

from __future__ import annotations

import math
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from shmreplay.base.dtypes import as_float64, is_added, is_real, number_kind
from shmreplay.columns.leaves import Leaf

_COLOR_TYPES = {1: 0, 3: 2, 4: 6}  # by number of channels: grey, RGB, RGBA
_GAP = 2  # pixels between images


def is_image(leaf: Leaf) -> bool:
    """Whether a row of the column looks like one image or several: HW, HWC, CHW, or a stack of HW."""
    shape = leaf.spec.shape
    if not is_real(leaf.spec.dtype) or is_added(leaf.spec.dtype) or len(shape) not in (2, 3):
        return False
    sides = shape[:2] if shape[-1] in _COLOR_TYPES else shape[-2:]
    return all(size is None or size > 1 for size in sides)


def write_png(pixels: NDArray[np.uint8]) -> bytes:
    """The bytes of a PNG file with an image, uint8 `[H, W, C]` with C of 1, 3 or 4."""
    height, width, channels = pixels.shape
    head = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    lines = np.zeros((height, 1 + width * channels), np.uint8)  # each line begins with its filter: 0 means none
    lines[:, 1:] = pixels.reshape(height, -1)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(lines.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )


def picture(rows: NDArray[np.generic], num_axes: int) -> NDArray[np.uint8]:
    """Puts all images of an array into one, uint8 `[H, W, C]`: side by side, in several lines if there are many.

    Args:
        rows: real numbers; its last `num_axes` axes, 2 or 3, are those of one row.
        num_axes: HW; or HWC, CHW or a stack of HW.
    """
    images = _as_images(_as_bytes(rows).reshape(-1, *rows.shape[rows.ndim - num_axes :]))
    number, height, width, channels = images.shape
    across = min(number, max(1, math.ceil(math.sqrt(number * height / width)))) if number > 8 else number
    down = math.ceil(number / across)
    canvas = np.zeros((down * (height + _GAP) - _GAP, across * (width + _GAP) - _GAP, channels), np.uint8)
    for place, image in enumerate(images):
        top, left = place // across * (height + _GAP), place % across * (width + _GAP)
        canvas[top : top + height, left : left + width] = image
    return canvas


def _as_bytes(values: NDArray[np.generic]) -> NDArray[np.uint8]:
    """The values as uint8. bool becomes black and white, floats from 0 to 1 become grey values. Any other range is
    scaled, from its smallest value to its largest. nan and inf become 0."""
    if values.dtype == np.uint8:
        return values.view(np.uint8)
    numbers = np.nan_to_num(as_float64(values), nan=0.0, posinf=0.0, neginf=0.0)
    low, high = float(numbers.min(initial=0.0)), float(numbers.max(initial=0.0))
    if number_kind(values.dtype) in "fb" and low >= 0 and high <= 1:
        high = 1.0
    return np.asarray(np.round((numbers - low) * (255 / (high - low or 1.0))), np.uint8)


def _as_images(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """`[N, H, W, C]` of rows `[n, H, W]`, `[n, H, W, C]`, `[n, C, H, W]` or `[n, k, H, W]`."""
    if rows.ndim == 3:
        return rows[..., None]
    if rows.shape[-1] in _COLOR_TYPES:
        return rows
    if rows.shape[1] == 3:
        return np.moveaxis(rows, 1, -1)
    return rows.reshape(-1, *rows.shape[2:])[..., None]

"""Frames of 84 x 84 pixels, as in games. Needs only NumPy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.steps import Columns

SIDE = 84
COLUMNS: Columns = {"observation": ((SIDE, SIDE), "uint8"), "action": ((), "int64"), "reward": ((), "float32")}
LENGTH, PERIOD = 80, 40  # steps of a sequence, and from one to the next
BATCH = 16  # sequences
BLOCK = 12  # pixels


def noise(n: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """A block that moves over noise that does not change, `[n, 84, 84]`."""
    frames = np.repeat(rng.integers(0, 256, (1, SIDE, SIDE), np.uint8), n, axis=0)
    for i in range(n):
        y, x = 2 * i % (SIDE - BLOCK), 3 * i % (SIDE - BLOCK)
        frames[i, y : y + BLOCK, x : x + BLOCK] = 255
    return frames


def tiles(n: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """A board of 7 x 7 plain tiles, one of which changes in each step, `[n, 84, 84]`."""
    board = rng.integers(0, 8, (SIDE // BLOCK, SIDE // BLOCK)).astype(np.uint8) * 32
    frames = np.empty((n, SIDE, SIDE), np.uint8)
    for frame in frames:
        board[tuple(rng.integers(0, SIDE // BLOCK, 2))] = rng.integers(0, 8) * 32
        frame[...] = np.kron(board, np.ones((BLOCK, BLOCK), np.uint8))
    return frames


KINDS = {"noise": noise, "tiles": tiles}


def steps(kind: str, n: int) -> list[dict[str, Any]]:
    """n steps of a game; seeded."""
    rng = np.random.default_rng(13)
    return [
        {"observation": frame.copy(), "action": np.int64(i % 18), "reward": np.float32(i % 2)}
        for i, frame in enumerate(KINDS[kind](n, rng))
    ]

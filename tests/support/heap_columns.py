"""Steps of every kind of column, whose every byte follows from one number, and what batches of them must be."""

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import shmreplay as sr
from shmreplay.clients.batches.batch import Batch

COLUMNS = {
    "n": sr.ArraySpec((), "int64"),
    "image": sr.ArraySpec((12, 5), "uint8", compression="lz4"),
    "points": sr.ArraySpec((None, 3), "float32", mean_bytes=40),
    "note": sr.ArraySpec((2,), "bfloat16", optional=True),
    "state": sr.ArraySpec((3,), "float32", mutable=True),
}


def image_of(n: int) -> NDArray[np.uint8]:
    """Compressible for most, noise for every seventh."""
    if n % 7 == 0:
        return np.random.default_rng(n).integers(0, 256, (12, 5), np.uint8)
    return np.full((12, 5), n % 251, np.uint8)


def points_of(n: int) -> NDArray[np.float32]:
    """0 to 4 rows."""
    return (np.arange(n % 5 * 3).reshape(-1, 3) + n).astype(np.float32)


def note_of(n: int) -> NDArray[Any] | None:
    """One step in three has none."""
    return None if n % 3 == 0 else np.array([n % 100, 1], ml_dtypes.bfloat16)


def state_of(n: int) -> NDArray[np.float32]:
    return np.array([n, n + 0.5, -n], np.float32)


def step(n: int) -> dict[str, Any]:
    """One step, as `insert` and `append` take it."""
    found: dict[str, Any] = {"n": n, "image": image_of(n), "points": points_of(n), "state": state_of(n)}
    note = note_of(n)
    return found if note is None else {**found, "note": note}


def steps(ns: list[int]) -> dict[str, Any]:
    """The steps of those numbers, as `insert_batch` takes them."""
    return {
        "n": np.array(ns, np.int64),
        "image": np.array([image_of(n) for n in ns], np.uint8).reshape(-1, 12, 5),
        "points": [points_of(n) for n in ns],
        "note": [note_of(n) for n in ns],
        "state": np.array([state_of(n) for n in ns], np.float32).reshape(-1, 3),
    }


def check_rows(batch: Batch, ns: Any) -> None:
    """Every byte, mask and size of a batch whose items have these steps; None for padding. Squeezed: a plain list."""
    axes = np.shape(ns)
    flat: list[int | None] = np.array(ns, object).reshape(-1).tolist()
    longest = max((n % 5 for n in flat if n is not None), default=0)
    data = batch.data
    assert data["n"].shape == axes
    for name, shape in (("image", (12, 5)), ("points", (longest, 3)), ("note", (2,)), ("state", (3,))):
        assert data[name].shape == (*axes, *shape), name
        assert data[name].dtype == COLUMNS[name].dtype
    rows = {name: data[name].reshape(len(flat), *data[name].shape[len(axes) :]) for name in COLUMNS}
    sizes = batch.sizes["points"].reshape(len(flat))
    for i, n in enumerate(flat):
        if n is None:
            assert sizes[i] == 0
            assert not any(rows[name][i].any() for name in COLUMNS)
            continue
        note = note_of(n)
        assert rows["n"][i] == n
        np.testing.assert_array_equal(rows["image"][i], image_of(n))
        assert sizes[i] == n % 5
        np.testing.assert_array_equal(rows["points"][i, : n % 5], points_of(n))
        assert not rows["points"][i, n % 5 :].any()
        np.testing.assert_array_equal(rows["note"][i], np.zeros(2) if note is None else note)
        np.testing.assert_array_equal(rows["state"][i], state_of(n))
    for name in COLUMNS:
        has = [n is not None and (name != "note" or n % 3 != 0) for n in flat]
        assert batch.mask[name].reshape(-1).tolist() == has, name


def free_blocks(table: Any) -> int:
    """The number of free blocks in the table's heap."""
    return int(table._arena.stats()["free_blocks"])

"""Steps with columns of every kind: in the heap, optional, mutable, and brought by items.

All of a step follows from its number, but for its state, which is the number's and has a version that is counted up.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import shmreplay as sr
from shmreplay.clients.batches.batch import Batch
from tests.support.heap_columns import COLUMNS as PARTS
from tests.support.heap_columns import image_of, note_of, points_of

WIDTH = 64  # of a state: wide enough to be seen torn
VERSIONS = 256

COLUMNS = {
    **{name: PARTS[name] for name in ("n", "image", "points", "note")},
    "state": sr.ArraySpec((WIDTH,), "int64", mutable=True),
    "goal": sr.ArraySpec((8,), "int64", per="item"),
}


def state_of(n: int, version: int = 0) -> NDArray[np.int64]:
    return np.full(WIDTH, n * VERSIONS + version, np.int64)


def states_of(ns: Sequence[int], version: int) -> dict[str, NDArray[np.int64]]:
    """What `update_data` takes for the first step of items whose first steps have these numbers."""
    return {"state": np.array([[state_of(n, version)] for n in ns])}


def goal_of(first: int) -> NDArray[np.int64]:
    """What an item brings whose first step has this number."""
    return np.arange(8) - first


def part(n: int) -> dict[str, Any]:
    """One step without what its item brings, as `append` takes it."""
    found: dict[str, Any] = {"n": n, "image": image_of(n), "points": points_of(n), "state": state_of(n)}
    note = note_of(n)
    return found if note is None else {**found, "note": note}


def step(n: int) -> dict[str, Any]:
    """One step that is an item, as `insert` takes it."""
    return {**part(n), "goal": goal_of(n)}


def steps(ns: Sequence[int]) -> dict[str, Any]:
    """As `insert_batch` takes them."""
    return {
        "n": np.array(ns, np.int64),
        "image": np.array([image_of(n) for n in ns]),
        "points": [points_of(n) for n in ns],
        "note": [note_of(n) for n in ns],
        "state": np.array([state_of(n) for n in ns]),
        "goal": np.array([goal_of(n) for n in ns]),
    }


def versions(batch: Batch) -> NDArray[np.int64]:
    """Of each step the version of its state, -1 for padding, in the axes of `n`; after a look at every byte and mask.

    The steps of an item must follow one another.
    """
    ns, real = batch.data["n"], batch.mask["n"]
    found = np.full(ns.shape, -1, np.int64)
    for at in np.ndindex(ns.shape):
        if real[at]:
            found[at] = _version(batch, at)
    for name in ("n", "image", "points", "note", "state"):
        assert not batch.data[name][~real].any(), f"padding of {name} is not 0"
    for i in range(len(batch)):
        own = ns[i][real[i]] if ns.ndim > 1 else ns[i : i + 1]
        assert own.tolist() == list(range(own[0], own[0] + len(own))), f"steps of another stream or episode: {own}"
        np.testing.assert_array_equal(batch.data["goal"][i], goal_of(int(own[0])))
    return found


def _version(batch: Batch, at: tuple[int, ...]) -> int:
    data = batch.data
    n = int(data["n"][at])
    np.testing.assert_array_equal(data["image"][at], image_of(n))
    rows = int(batch.sizes["points"][at][0])
    np.testing.assert_array_equal(data["points"][at][:rows], points_of(n))
    assert not data["points"][at][rows:].any()
    note = note_of(n)
    assert batch.mask["note"][at] == (note is not None)
    np.testing.assert_array_equal(data["note"][at], np.zeros(2) if note is None else note)
    version = int(data["state"][at][0]) - n * VERSIONS
    assert 0 <= version < VERSIONS, f"step {n} has the state of another: {data['state'][at]}"
    np.testing.assert_array_equal(data["state"][at], state_of(n, version))
    return version

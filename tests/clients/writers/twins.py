"""A vector writer and N single writers get the same calls: their items must be equal, one by one."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from tests.support.tables import live

SIGNATURE = {
    "observation": sr.ArraySpec((2,), "float32"),
    "action": sr.ArraySpec((), "int64"),
    "reward": sr.ArraySpec((), "float64"),
    "terminated": sr.ArraySpec((), "bool"),
    "truncated": sr.ArraySpec((), "bool"),
}


def rows(numbers: Any, *, terminated: Any = None, truncated: Any = None) -> dict[str, NDArray[Any]]:
    """A step of each stream, whose every value follows from its number; ends are False if not given."""
    n = np.asarray(numbers, np.int64)
    return {
        "observation": np.stack([n, -n], -1).astype(np.float32),
        "action": n.copy(),
        "reward": n / 4,
        "terminated": np.zeros(n.shape, np.bool_) if terminated is None else np.asarray(terminated, np.bool_),
        "truncated": np.zeros(n.shape, np.bool_) if truncated is None else np.asarray(truncated, np.bool_),
    }


def finals(numbers: Any) -> dict[str, NDArray[Any]]:
    """A final observation of each stream."""
    return {"observation": rows(numbers)["observation"]}


def row(batch: dict[str, NDArray[Any]], i: int | np.integer[Any]) -> dict[str, Any]:
    return {name: values[i] for name, values in batch.items()}


class Twins:
    """Both kinds of writers, on two equal tables. Every call does the same with both, and compares the keys."""

    def __init__(self, tables: tuple[TableHandle, TableHandle], num_streams: int, **options: Any) -> None:
        self.tables = tables
        self.num_streams = num_streams
        self.vector = tables[0].vector_writer(num_streams, **options)
        self.singles = [tables[1].writer(**options) for _ in range(num_streams)]

    def append(self, steps: dict[str, NDArray[Any]], mask: Any = None, streams: Any = None, **options: Any) -> None:
        owners = np.arange(self.num_streams) if streams is None else np.asarray(streams)
        keys = self.vector.append(steps, mask=mask, streams=streams, **options)
        assert keys.dtype == np.int64
        assert keys.shape == (len(owners), len(self.vector._rules))
        for i, owner in enumerate(owners):
            chosen = mask is None or mask[i]
            theirs = self.singles[owner].append(row(steps, i), **options) if chosen else []
            assert np.count_nonzero(keys[i]) == len(theirs)

    def create_items(self, mask: Any, **options: Any) -> None:
        keys = self.vector.create_items(mask=mask, **options)
        assert (keys != 0).tolist() == list(mask)
        for i in np.flatnonzero(mask):
            priorities = options.get("priorities")
            self.singles[i].create_item(None if priorities is None else priorities[i], length=options["length"])

    def end_episodes(self, mask: Any, final_steps: Any = None, **options: Any) -> None:
        keys = self.vector.end_episodes(mask, final_steps, **options)
        assert len(keys) == self.num_streams
        for i in range(self.num_streams):
            theirs: Sequence[int] | NDArray[np.int64] = []
            if mask[i]:
                theirs = self.singles[i].end_episode(None if final_steps is None else row(final_steps, i), **options)
            assert len(keys[i]) == len(theirs)
            assert (self.tables[0].get(keys[i]).steps == self.tables[1].get(np.array(theirs, np.int64)).steps).all()

    def close(self) -> None:
        self.vector.close()
        for writer in self.singles:
            writer.close()

    def check(self) -> None:
        """What lives in the two tables is equal."""
        compare(self.tables)


def compare(tables: tuple[TableHandle, TableHandle]) -> None:
    """What lives in two tables is equal, item by item, with all that a batch tells."""
    assert len(tables[0]) == len(tables[1])
    if len(tables[0]) == 0:
        return
    ours, theirs = (live(table) for table in tables)
    for name in theirs.data:
        np.testing.assert_array_equal(ours.data[name], theirs.data[name])
        np.testing.assert_array_equal(ours.mask[name], theirs.mask[name])
    np.testing.assert_array_equal(ours.steps, theirs.steps)
    np.testing.assert_array_equal(ours.priorities, theirs.priorities)
    # Episodes' names differ, which items share one must not.
    same = [np.unique(batch.episodes, return_inverse=True)[1] for batch in (ours, theirs)]
    np.testing.assert_array_equal(_in_order(same[0]), _in_order(same[1]))


def _in_order(labels: NDArray[Any]) -> NDArray[Any]:
    """Labels renamed by their first appearance."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]

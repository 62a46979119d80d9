"""Large rows and batches: rows past the caches, memory of batches that is used again, rows copied by threads."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import shmreplay as sr
from shmreplay.clients.table import TableHandle
from tests.tables import TableMaker

LARGE = {"frame": sr.ArraySpec((101, 103), "uint8"), "n": sr.ArraySpec((), "int64")}
STEPS = 4096  # 43 MB of them: more than a cache holds; only what is written takes memory


def frames(ns: Any) -> NDArray[np.uint8]:
    """Of the steps `ns`: bytes that differ from step to step and from place to place."""
    noise = np.random.default_rng(0).integers(0, 256, (101, 103))
    shifted: NDArray[np.int64] = noise + 17 * np.asarray(ns)[..., None, None]
    return (shifted % 256).astype(np.uint8)


def large(ns: Any) -> dict[str, Any]:
    ns = np.asarray(ns, np.int64)
    return {"frame": frames(ns), "n": ns}


def check_whole(data: Any) -> list[int]:
    """The numbers of all steps in it, after a look at every byte."""
    np.testing.assert_array_equal(data["frame"], frames(data["n"]))
    return [int(n) for n in np.ravel(data["n"])]


@pytest.mark.parametrize("chunk_steps", [1, 7])
def test_rows_that_go_past_the_caches_come_back_whole(make_table: TableMaker, chunk_steps: int) -> None:
    table = make_table(STEPS, signature=LARGE, chunk_steps=chunk_steps)
    for n in range(5):
        table.insert(large(n))
    table.insert_batch(large(range(5, 25)))
    # A view of every second column of a wider array is converted first.
    table.insert({"frame": np.repeat(frames(25), 2, axis=1)[:, ::2], "n": 25})
    assert check_whole(table.get(table.keys()).data) == list(range(26))


def test_rows_of_streams_go_past_the_caches_whole(make_table: TableMaker) -> None:
    table = make_table(STEPS, signature=LARGE, item_steps=3)
    with table.writer() as writer:
        for n in range(10):
            writer.append(large(n))
            if n >= 2:
                writer.create_item(length=3)
    assert check_whole(table.get(table.keys()).data) == [n + i for n in range(8) for i in range(3)]


def filled(make_table: TableMaker) -> TableHandle:
    table = make_table(STEPS, signature=LARGE, seed=1)
    table.insert_batch(large(range(64)))
    return table


def address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def test_a_batch_that_nobody_holds_gives_its_memory_to_the_next(make_table: TableMaker) -> None:
    table = filled(make_table)
    first = table.sample(64)
    second = table.sample(64)
    assert not np.shares_memory(first.data["frame"], second.data["frame"])
    places = {address(first.data["frame"]), address(second.data["frame"])}
    for _ in range(5):
        del first
        first, second = second, table.sample(64)
        assert {address(first.data["frame"]), address(second.data["frame"])} == places
        check_whole(first.data)
        check_whole(second.data)


def test_memory_that_a_view_of_a_batch_shows_is_not_given_away(make_table: TableMaker) -> None:
    table = filled(make_table)
    batch = table.sample(64)
    part, expected = batch.data["frame"][5:9, 3], batch.data["frame"][5:9, 3].copy()
    del batch
    others = [table.sample(64) for _ in range(3)]
    np.testing.assert_array_equal(part, expected)
    assert not any(np.shares_memory(part, other.data["frame"]) for other in others)
    assert part.flags.writeable

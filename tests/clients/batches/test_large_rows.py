"""Large rows and batches: rows past the caches, memory of batches that is used again, rows copied by threads."""

import gc
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import shmreplay as sr
from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.tables.table import TableHandle
from tests.support.children import Child
from tests.support.tables import TableMaker, address

LARGE = {"frame": sr.ArraySpec((101, 103), "uint8"), "n": sr.ArraySpec((), "int64")}
STEPS = 4096  # 43 MB of them: more than a cache holds; only what is written takes memory


def frames(ns: Any) -> NDArray[np.uint8]:
    """Frames of the steps `ns`: bytes differ from step to step and from place to place."""
    noise = np.random.default_rng(0).integers(0, 256, (101, 103))
    shifted: NDArray[np.int64] = noise + 17 * np.asarray(ns)[..., None, None]
    return (shifted % 256).astype(np.uint8)


def large(ns: Any) -> dict[str, Any]:
    ns = np.asarray(ns, np.int64)
    return {"frame": frames(ns), "n": ns}


def check_whole(data: Any) -> list[int]:
    """The numbers of all steps in a batch, after a check of every byte."""
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


def test_a_batch_larger_than_the_caches_comes_back_whole(make_table: TableMaker) -> None:
    signature = {"frame": sr.ArraySpec((300, 1024), "uint8"), "n": sr.ArraySpec((), "uint8")}
    table = make_table(64, signature=signature, item_steps=2, chunk_steps=3)
    noise = np.frombuffer(np.random.default_rng(0).bytes(300 * 1024), np.uint8).reshape(300, 1024)
    with table.writer() as writer:
        for n in range(16):
            writer.append({"frame": noise + np.uint8(n), "n": np.uint8(n)})
            writer.create_item(length=1 + (n > 0))
    for time_major in (False, True):
        batch = table.sample(60, time_major=time_major)  # 37 MB
        expected = noise + batch.data["n"][..., None, None]
        expected[~batch.mask["frame"]] = 0  # what the first item, of one step, lacks
        np.testing.assert_array_equal(batch.data["frame"], expected)


# --- threads ---------------------------------------------------------------------------------------------------------


def num_threads() -> int:
    """Threads of this process that gather rows."""
    names = [task.joinpath("comm") for task in pathlib.Path("/proc/self/task").iterdir()]
    return sum(name.read_text().strip() == "sr-gather" for name in names)


def assert_alike(one: Batch, other: Batch) -> None:
    for a, b in ((one.data, other.data), (one.mask, other.mask), (one.lengths, other.lengths)):
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])
    np.testing.assert_array_equal(one.keys, other.keys)


@pytest.mark.parametrize("options", [{}, {"time_major": True}, {"columns": ["n", "text"]}, {"replacement": False}])
def test_threads_give_the_batch_that_one_gives(make_table: TableMaker, options: dict[str, Any]) -> None:
    signature = {**LARGE, "text": sr.ArraySpec((None,), "uint8"), "small": sr.ArraySpec((3,), "float32")}
    table = make_table(64, signature=signature, item_steps=5, chunk_steps=3)
    with table.writer() as writer:
        for n in range(64):
            writer.append({**large(n), "text": np.full(n % 7, n, np.uint8), "small": np.full(3, n, np.float32)})
            writer.create_item(length=1 + n % min(5, n + 1))
    alone, together = (make_table.client.table(table.name, seed=3) for _ in range(2))
    for _ in range(3):
        batch = together.sample(48, num_threads=3, **options)
        assert_alike(alone.sample(48, **options), batch)
        assert not all(mask.all() for mask in batch.mask.values())
    assert num_threads() == (0 if "columns" in options else 2)


def test_threads_start_when_they_are_wanted_and_end_with_their_client(server: sr.Server) -> None:
    with server.client() as client:
        client.create_tables([sr.Table("ends", LARGE, STEPS, max_streams=16, max_sessions=16)])
        table = client.table("ends")
        table.insert_batch(large(range(64)))
        table.sample(256)
        table.sample(2, num_threads=4)  # less than is worth it
        assert num_threads() == 0
        check_whole(table.sample(256, num_threads=4).data)
        check_whole(table.sample(256, num_threads=2).data)
        assert num_threads() == 3
        with table.sampler(256, num_threads=3) as sampler:
            check_whole(next(sampler).data)
            assert num_threads() == 5
        assert num_threads() == 3
    assert num_threads() == 0
    with server.client() as client:
        client.drop_table("ends")


def test_a_forked_child_has_threads_of_its_own(make_table: TableMaker, fork: Callable[[Any], Child]) -> None:
    table = filled(make_table)
    check_whole(table.sample(256, num_threads=3).data)

    def work(pipe: Any) -> tuple[int, int]:
        before = num_threads()
        check_whole(table.sample(256, num_threads=3).data)
        after = num_threads()
        gc.collect()  # the parent's are let go of
        make_table.client.close()
        return before, after

    assert fork(work).result() == (0, 2)
    check_whole(table.sample(256, num_threads=3).data)
    assert num_threads() == 2


@pytest.mark.parametrize("wrong", [0, 65, True, "2"])
def test_a_number_of_threads_that_is_none_is_refused(make_table: TableMaker, wrong: Any) -> None:
    table = filled(make_table)
    with pytest.raises((ValueError, TypeError), match=f"table {table.name!r}: num_threads is {wrong!r}; expected"):
        table.sample(1, num_threads=wrong)
    assert table.info().samples == 0

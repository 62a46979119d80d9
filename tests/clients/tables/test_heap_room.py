"""Room in the heap: enough for values of the planned size; else old items go, or the call says what is missing."""

from __future__ import annotations

import itertools
import logging
import os
import re
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from tests.support.tables import TableMaker, check

RAGGED = {"n": sr.ArraySpec((), "int64"), "x": sr.ArraySpec((None,), "uint8", mean_bytes=100)}


def step(n: int, size: int) -> dict[str, Any]:
    return {"n": n, "x": np.full(size, n % 251, np.uint8)}


def live(table: TableHandle, size_of: Any) -> list[int]:
    """The numbers of the live items, after a look at every byte."""
    batch = table.get(table.keys())
    count = len(batch)
    ns, rows, sizes = batch.data["n"].reshape(count), batch.data["x"].reshape(count, -1), batch.sizes["x"]
    for n, x, size in zip(ns, rows, sizes.reshape(count), strict=True):
        assert size == size_of(n)
        assert (x[:size] == n % 251).all()
    return [int(n) for n in ns]


@pytest.mark.parametrize("chunk_steps", [1, 8, 64])
def test_a_full_table_of_values_as_planned_loses_none_for_room(
    make_table: TableMaker, rng: np.random.Generator, chunk_steps: int
) -> None:
    table = make_table(2000, signature=RAGGED, chunk_steps=chunk_steps, max_streams=4)
    sizes = rng.integers(0, 192, 12_000)  # 100 bytes on average with their headers
    for first in range(0, 12_000, 100):
        ns = range(first, first + 100)
        table.insert_batch({"n": np.array(ns), "x": [step(n, sizes[n])["x"] for n in ns]})
    assert table.info().evicted_for_room == 0
    assert live(table, lambda n: sizes[n]) == list(range(10_000, 12_000))
    assert check(table) == []


def test_values_larger_than_planned_send_the_oldest_items_off(
    make_table: TableMaker, caplog: pytest.LogCaptureFixture
) -> None:
    table = make_table(1000, signature=RAGGED, chunk_steps=8, max_streams=2)
    with caplog.at_level(logging.WARNING, "shmreplay"):
        for n in range(3000):
            table.insert(step(n, 1000))
    info = table.info()
    assert info.evicted_for_room > 0
    assert 50 < len(table) < 500
    assert live(table, lambda n: 1000) == list(range(3000 - len(table), 3000))
    [text] = [record.getMessage() for record in caplog.records]
    assert "or with larger mean_bytes if the values of its heap columns are larger. This" in text
    assert check(table) == []


def test_a_heap_that_was_full_serves_small_values_again(make_table: TableMaker, rng: np.random.Generator) -> None:
    table = make_table(500, signature=RAGGED, chunk_steps=8, max_streams=2)
    sizes = np.concatenate([np.full(1000, 3000), rng.integers(0, 100, 2000), rng.integers(0, 9000, 1000)])
    for n, size in enumerate(sizes[:3000]):
        table.insert(step(n, size))
    assert live(table, lambda n: sizes[n]) == list(range(2500, 3000))
    for n in range(3000, 4000):
        table.insert(step(n, sizes[n]))
    assert check(table) == []
    assert live(table, lambda n: sizes[n])[-1] == 3999


def test_a_value_larger_than_the_heap_is_refused_by_name_bytes_and_limit(make_table: TableMaker) -> None:
    table = make_table(10, signature=RAGGED, chunk_steps=1, max_streams=2)
    table.insert(step(1, 10))
    stats = table._arena.stats()
    limit = stats["num_blocks"] * stats["block_bytes"]
    text = re.escape(
        f"table '{table.name}', column 'x': its value takes {limit + 5} bytes, but the whole heap has "
        f"{stats['num_blocks']} blocks of {stats['block_bytes']}: create the table with a larger mean_bytes or "
        "capacity_steps"
    )
    too_large = step(2, limit + 1)
    with pytest.raises(ValueError, match=text):
        table.insert(too_large)
    with pytest.raises(ValueError, match=text):
        table.insert_batch({"n": np.array([3, 4]), "x": [np.zeros(3, np.uint8), too_large["x"]]})
    with table.writer() as writer:
        with pytest.raises(ValueError, match=text):
            writer.append(too_large)
        with pytest.raises(ValueError, match=text):
            writer.append(too_large, partial=True)
        writer.append(step(5, 5))
        assert writer.history["x"][:].numpy().tolist() == [[5] * 5]
    table.insert(step(5, 5))
    assert live(table, lambda n: 10 if n == 1 else 5) == [1, 5]


def test_what_an_item_brings_may_not_be_larger_than_the_heap(make_table: TableMaker) -> None:
    signature = {"n": sr.ArraySpec((), "int64"), "path": sr.ArraySpec((None,), "uint8", per="item", mean_bytes=64)}
    table = make_table(10, signature=signature, chunk_steps=1, max_streams=2)
    stats = table._arena.stats()
    huge = np.zeros(stats["num_blocks"] * stats["block_bytes"], np.uint8)
    text = "columns 'path': what an item brings takes"
    with table.writer() as writer:
        writer.append({"n": 1})
        with pytest.raises(ValueError, match=text):
            writer.create_item(length=1, values={"path": huge})
        writer.create_item(length=1, values={"path": huge[:100]})
    with pytest.raises(ValueError, match=text):
        table.insert({"n": 2, "path": huge})
    assert table.get(table.keys()).sizes["path"].tolist() == [[100]]


@pytest.mark.parametrize("on_full", ["wait", "error"])
def test_a_writer_without_blocks_says_so(make_table: TableMaker, on_full: str) -> None:
    """Of a table that keeps its items: there are chunks enough, but their values are larger than planned."""
    table = make_table(1000, signature=RAGGED, chunk_steps=4, max_streams=2, on_full=on_full)
    with table.writer() as writer:

        def write_on() -> None:
            for n in itertools.count():
                writer.append(step(n, 2000), timeout_s=0)
                writer.create_item(length=1, timeout_s=0)

        with pytest.raises((sr.RateLimitTimeout, sr.ArenaFull)) as caught:
            write_on()
        n = len(table)
        assert type(caught.value) is (sr.ArenaFull if on_full == "error" else sr.RateLimitTimeout)
        stats = table._arena.stats()
        assert stats["free_chunks"] > 100
        assert re.search(r"blocks of 64 bytes in the heap, \d+ are free", str(caught.value))
        if on_full == "wait":
            assert "a larger capacity_steps, mean_bytes of the columns in the heap" in str(caught.value)
        before = table._arena.stats()["free_blocks"]
        for _ in range(10):
            with pytest.raises((sr.RateLimitTimeout, sr.ArenaFull)):
                writer.append(step(n, 2000), timeout_s=0)
            assert table._arena.stats()["free_blocks"] >= before - 2000 // 64 - 1
        table.delete(table.keys()[: n // 2])
        writer.append(step(n, 2000), timeout_s=0)
        writer.create_item(length=1)
    assert live(table, lambda n: 2000) == list(range(n // 2, n + 1))
    assert check(table) == []


def test_an_estimate_is_what_is_then_used(make_table: TableMaker) -> None:
    """To the byte: the sizes of the segments, and the blocks in them."""
    signature = {
        "image": sr.ArraySpec((84, 84), "uint8", compression="lz4"),
        "points": sr.ArraySpec((None, 3), "float32"),
        "note": sr.ArraySpec((5,), "float32", optional=True),
        "state": sr.ArraySpec((100,), "float32", mutable=True),
        "goal": sr.ArraySpec((3,), "float32", per="item"),
    }
    for options in ({}, {"chunk_steps": 4}, {"item_steps": 20, "remover": sr.selectors.Uniform()}):
        table = make_table(3000, signature=signature, **options)
        found = table.estimate()
        stats = table._arena.stats()
        assert stats["num_blocks"] == stats["free_blocks"] == found.heap.num_blocks
        assert stats["block_bytes"] == found.heap.block_bytes
        assert stats["num_chunks"] == found.num_chunks
        assert found.data_bytes >= found.num_chunks * found.chunk_bytes + found.heap.num_bytes
        assert found.data_bytes < found.num_chunks * found.chunk_bytes + found.heap.num_bytes + 3 * 4096
        sizes = [os.stat(f"/dev/shm/{name}").st_size for name in os.listdir("/dev/shm") if f".{table.name}." in name]
        assert found.index_bytes in sizes
        assert found.data_bytes in sizes


def test_calls_that_find_no_blocks_say_so(make_table: TableMaker) -> None:
    """Of a table that consumes its items, whose limiter would admit more."""
    signature = {**RAGGED, "path": sr.ArraySpec((None,), "uint8", per="item", mean_bytes=64)}
    limiter = sr.rate_limiters.MinSize(1)
    table = make_table(
        1000, signature=signature, chunk_steps=4, max_streams=2, max_times_sampled=1, rate_limiter=limiter
    )
    text = r"not admitted within 0 s.*the arena has no room for more steps: .* blocks of 64 bytes in the heap, \d+ are "
    with table.writer() as writer:
        writer.append(step(0, 10))
        item: dict[str, Any] = {
            "trajectory": {"n": writer.history["n"][-1]},
            "values": {"path": np.zeros(5000, np.uint8)},
        }

        def fill() -> None:
            while True:
                writer.create_item(**item, timeout_s=0)

        with pytest.raises(sr.RateLimitTimeout, match=f"create_item {text}"):
            fill()
        with pytest.raises(sr.RateLimitTimeout, match=f"append {text}"):
            writer.append(step(1, 5000), timeout_s=0)
        table.delete(table.keys())
        with pytest.raises(sr.RateLimitTimeout, match="held by open writers, none by items"):
            writer.append(step(1, 5000), timeout_s=0)  # the values go with the chunk, in which the writer still is
    other = make_table.queue(1000, signature=RAGGED, chunk_steps=4, max_streams=2)
    with pytest.raises(sr.RateLimitTimeout, match=f"insert_batch {text}") as caught:
        other.insert_batch({"n": np.arange(900), "x": [np.zeros(3000, np.uint8)] * 900}, timeout_s=0)
    assert caught.value.keys is not None
    assert 0 < len(caught.value.keys) < 900
    with pytest.raises(sr.RateLimitTimeout, match=f"insert {text}"):
        other.insert(step(1, 3000), timeout_s=0)
    assert len(other) == len(caught.value.keys)

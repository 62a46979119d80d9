"""Want of memory: what a queue was asked for is in the batch, in the error's, or still in the queue."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.batches import batch as batches
from tests.support.children import Child
from tests.support.tables import TableMaker, check

LARGE = 80 * 2**20  # more than malloc has in reserve for a thread
Fork = Callable[[Callable[[Any], object]], Child]


@contextlib.contextmanager
def little_memory(num_bytes: int) -> Iterator[None]:
    """Only so much more address space for this process meanwhile."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.long
def test_an_item_that_there_is_no_memory_for_stays_in_its_queue(make_table: TableMaker, fork: Fork) -> None:
    table = make_table.queue(4, signature={"x": sr.ArraySpec((None,), "uint8", mean_bytes=LARGE // 3)}, max_streams=2)
    for size in (100, LARGE, 7):
        table.insert({"x": np.full(size, 3, np.uint8)})

    def consume(pipe: Any) -> None:
        table.get(table.keys()[:1])  # attaches, and leaves the parent's mapping
        with little_memory(LARGE // 2):
            with pytest.raises(MemoryError, match="there is no memory for the next item's values; it stays") as caught:
                table.sample(3)
            with pytest.raises(MemoryError):
                table.sample(1)
        first = caught.value.batch  # type: ignore[attr-defined]
        assert first.data["x"].tolist() == [[3] * 100]
        assert len(table) == 2
        assert table.info().samples == 1
        assert [table.sample(1).sizes["x"].tolist() for _ in range(2)] == [[[LARGE]], [[7]]]

    fork(consume).result()
    assert check(table) == []


def test_a_batch_that_could_not_be_decoded_is_decoded_when_its_data_is_read_again(
    make_table: TableMaker, fork: Fork
) -> None:
    image = sr.ArraySpec((None,), "uint8", compression="lz4", mean_bytes=LARGE // 50)
    table = make_table.queue(4, signature={"x": image})
    table.insert({"x": np.full(LARGE, 5, np.uint8)})

    def consume(pipe: Any) -> None:
        assert len(table.get(table.keys())) == 1  # as above
        with little_memory(LARGE // 2):
            batch = table.sample(1)
            for _ in range(2):
                with pytest.raises(MemoryError):
                    _ = batch.data
        assert len(table) == 0
        assert len(batch.keys) == 1
        assert (batch.data["x"] == 5).all()
        assert batch.mask["x"].tolist() == [True]

    fork(consume).result()


def test_an_item_whose_rows_there_is_no_memory_for_stays_in_its_queue(make_table: TableMaker, fork: Fork) -> None:
    image = sr.ArraySpec((LARGE,), "uint8", compression="lz4", mean_bytes=LARGE // 50)
    table = make_table.queue(4, signature={"x": image})
    table.insert({"x": np.full(LARGE, 5, np.uint8)})

    def consume(pipe: Any) -> None:
        assert len(table.get(table.keys())) == 1  # attaches
        with little_memory(LARGE // 2), pytest.raises(MemoryError):
            table.sample(1)
        assert len(table) == 1
        assert (table.sample(1).data["x"] == 5).all()

    fork(consume).result()


def test_a_ctrl_c_while_a_sampler_decodes_a_batch_carries_it(
    make_table: TableMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table.queue(4, signature={"x": sr.ArraySpec((None,), "uint8", compression="lz4")})
    table.insert({"x": np.arange(9, dtype=np.uint8)})

    def interrupted(*args: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, table.sampler(1) as sampler:
        patch.setattr(batches, "show", interrupted)
        with pytest.raises(KeyboardInterrupt) as caught:
            next(sampler)
    assert caught.value.batch.data["x"].tolist() == [list(range(9))]  # type: ignore[attr-defined]

"""Torn rows are hunted: tiny tables that are overwritten without end, and readers that look at every byte."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from tests.support.children import Child, Fork, stop_outside_a_hold
from tests.support.rounds import rounds
from tests.support.tables import TableMaker, step, steps, values
from tests.support.waiting import eventually

WIDTH = 1000
SIGNATURE = {"n": sr.ArraySpec((), "int64"), "row": sr.ArraySpec((WIDTH,), "float32")}
BATCHES = rounds(200, 800)  # that each sampler looks at
PER_WRITER = 2**20  # all numbers below 2**24, which float32 holds exactly


def rows(first: int, count: int) -> dict[str, Any]:
    ns = np.arange(first, first + count)
    return {"n": ns, "row": np.repeat(ns[:, None], WIDTH, axis=1).astype(np.float32)}


def torn(data: Any, mask: Any) -> int:
    """How many rows are not of one writer's one step, all through; padding must be zero."""
    good = (data["row"] == data["n"][..., None]).all(axis=-1)
    assert not data["row"][~mask["row"]].any()
    return int(np.count_nonzero(~good))


def hunt(table: TableHandle, fork: Fork, write: Callable[[int, np.random.Generator], None], seed: int) -> None:
    """Eight writers write until four samplers have seen enough. `write(first, rng)` writes rows from `first` on."""

    def write_on(pipe: Any, writer: int) -> int:
        rng, at = np.random.default_rng([seed, writer]), 0
        while not pipe.poll():
            write(writer * PER_WRITER + at % (PER_WRITER - 64), rng)
            at += 64
        return at

    def sample(pipe: Any) -> tuple[int, set[int]]:
        found, writers = 0, set()
        for _ in range(BATCHES):
            batch = table.sample(32)
            found += torn(batch.data, batch.mask)
            writers |= set((batch.data["n"] // PER_WRITER).reshape(-1).tolist())
        return found, writers

    samplers = [fork(sample) for _ in range(4)]
    writers = [fork(lambda pipe, i=i: write_on(pipe, i)) for i in range(1, 9)]  # type: ignore[misc]
    results = [child.result() for child in samplers]
    for child in writers:
        child.send()
    written = sum(child.result() for child in writers)
    print(f"{written} rows written, {4 * BATCHES * 32} looked at, {table._arena.stats()['num_chunks']} chunks")
    assert [found for found, _ in results] == [0] * 4
    assert written > 20 * table.spec.max_size  # it was overwritten again and again
    assert len(set.union(*(writers for _, writers in results))) > 1


@pytest.mark.parametrize("chunk_steps", [1, 4])
def test_no_row_of_single_steps_is_torn(make_table: TableMaker, fork: Fork, seed: int, chunk_steps: int) -> None:
    table = make_table(
        16, signature=SIGNATURE, chunk_steps=chunk_steps, capacity_steps=16, max_streams=16, max_sessions=32
    )

    def write(first: int, rng: np.random.Generator) -> None:
        if rng.random() < 0.5:
            table.insert_batch(rows(first, int(rng.integers(1, 20))))
        else:
            one = rows(first, 1)
            table.insert({"n": one["n"][0], "row": one["row"][0]})

    hunt(table, fork, write, seed)


def test_no_row_of_spans_is_torn(make_table: TableMaker, fork: Fork, seed: int) -> None:
    """Items of up to five steps, of chunks of three."""
    table = make_table(
        16, signature=SIGNATURE, item_steps=5, chunk_steps=3, capacity_steps=30, max_streams=16, max_sessions=32
    )
    writers: list[Any] = []

    def write(first: int, rng: np.random.Generator) -> None:
        if not writers:
            writers.append(table.writer(history=5))
        for i in range(8):
            one = rows(first + i, 1)
            writers[0].append({"n": one["n"][0], "row": one["row"][0]})
            writers[0].create_item(length=int(rng.integers(1, min(i + 1, 5) + 1)))
        writers[0].end_episode()

    hunt(table, fork, write, seed)


def test_a_row_that_no_item_names_is_not_there(make_table: TableMaker, fork: Fork) -> None:
    """A writer is stopped between its rows and their item: samplers never see them, and nothing counts them."""
    table = make_table(50, item_steps=3)

    def write(pipe: Any) -> None:
        writer = table.writer()
        for n in (1, 2, 3):
            writer.append(step(n))
        writer.create_item(length=1)
        for n in (4, 5):
            writer.append(step(n))
        pipe.send()
        pipe.recv()
        writer.create_item(length=3)
        writer.close()

    child = fork(write)
    child.receive()
    child.stop()
    assert len(table) == 1
    for _ in range(200):
        assert set(table.sample(64).data["n"][:, 0].tolist()) == {3}
    assert table.info().size == 1
    child.go_on()
    child.send()
    child.result()
    assert table.get(table.keys()).data["n"].tolist() == [[3, 0, 0], [3, 4, 5]]


def test_a_stopped_reader_holds_up_nobody(make_table: TableMaker, fork: Fork, rng: np.random.Generator) -> None:
    """Samplers are stopped at random, in the middle of a gather too; a writer runs through the arena many times."""
    table = make_table(32, chunk_steps=2, capacity_steps=32, max_streams=4)
    table.insert_batch(steps(range(32)))

    def sample(pipe: Any) -> None:
        while True:
            table.sample(256)

    for _ in range(rounds(8, 15)):
        child = fork(sample)
        before = table.info().samples
        until = before + int(rng.integers(1, 3000))
        eventually(lambda: table.info().samples >= until)  # noqa: B023  # called here
        stop_outside_a_hold(child, table)  # in a hold it does hold up everybody, and is told of
        n = table.info().inserts
        table.insert_batch(steps(range(n, n + 500)))
        assert values(table) == list(range(n + 500 - len(table), n + 500))
        child.kill()


@pytest.mark.long
def test_readers_that_are_stopped_in_their_gathers_keep_others_waiting_but_in_no_error(
    make_table: TableMaker, fork: Fork
) -> None:
    """More reads in flight than the arena has slots for, as when processes far outnumber cores: others wait for one."""
    table = make_table(64, signature={"row": sr.ArraySpec((8 * WIDTH,), "float32")}, max_sessions=256)
    table.insert_batch({"row": np.zeros((64, 8 * WIDTH), np.float32)})

    def sample(pipe: Any) -> None:
        table.sample(1)
        pipe.send()
        while True:
            table.sample(256)

    stopped: list[Child] = []
    refused = ""
    while not refused:
        assert len(stopped) < 250
        child = fork(sample)
        child.receive()
        before = table.info().samples
        eventually(lambda: table.info().samples > before)  # noqa: B023  # called here
        stop_outside_a_hold(child, table)
        stopped.append(child)
        try:
            table.sample(1, timeout_s=0)
        except sr.ShmReplayError as error:
            refused = str(error)
    assert "all call slots of the arena are in use by reads in flight; raise max_sessions" in refused
    waiting = fork(lambda pipe: len(table.sample(300)))
    assert not waiting.has_something()
    for child in stopped[::2]:
        child.kill()
    assert waiting.result() == 300

"""Torn values are hunted: states that are changed without end by processes that die, a heap that wraps without end."""

import random
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from tests.support.children import Child, Fork
from tests.support.rounds import rounds
from tests.support.tables import TableMaker, check
from tests.support.waiting import eventually

UPDATERS, WRITERS = rounds(8, 24), rounds(8, 20)
WIDTH = 1000  # float32 of a state, so that an update can be killed within one
STATES = {"n": sr.ArraySpec((), "int64"), "state": sr.ArraySpec((WIDTH,), "float32", mutable=True)}
VALUES = {
    "n": sr.ArraySpec((), "int64"),
    "packed": sr.ArraySpec((400,), "uint8", compression="lz4", mean_bytes=100),
    "ragged": sr.ArraySpec((None,), "int64", mean_bytes=400),
    "goal": sr.ArraySpec((40,), "int64", per="item"),
}


@pytest.mark.long
def test_readers_see_a_state_before_or_after_an_update_even_if_the_updater_dies(
    make_table: TableMaker, fork: Fork, seed: int
) -> None:
    num_items, length = 8, 4
    table = make_table(num_items, signature=STATES, item=sr.Sequence(length, period=length), max_sessions=64)
    with table.writer() as writer:
        for n in range(num_items * length):
            writer.append({"n": n, "state": np.full(WIDTH, 0, np.float32)})
    keys = table.keys()

    def update(pipe: Any, number: int) -> None:
        rng = np.random.default_rng([seed, number])
        pipe.send("at work")
        for count in range(10**9):
            chosen = rng.permutation(num_items)[:4]
            values = np.full((4, length, 1), number * 1000 + count % 1000, np.float32).repeat(WIDTH, axis=2)
            assert table.update_data(keys[chosen], {"state": values}) == 4

    def read(pipe: Any) -> tuple[int, int]:
        torn, seen = 0, set[float]()
        while not pipe.poll():
            state = (table.sample(16) if len(seen) % 2 else table.get(keys)).data["state"]
            torn += int(np.count_nonzero((state != state[..., :1]).any(axis=-1)))
            seen |= set(state[..., 0].reshape(-1).tolist())
        return torn, len(seen)

    readers = [fork(read) for _ in range(2)]
    chance = random.Random(seed)
    for number in range(1, 1 + UPDATERS):
        updater = fork(lambda pipe, number=number: update(pipe, number))  # type: ignore[misc]
        assert updater.receive() == "at work"
        before = table.get(keys).data["state"][..., 0]
        moves = chance.randrange(1, 6)
        for _ in range(moves):  # it is in the midst of its updates
            eventually(lambda: not np.array_equal(table.get(keys).data["state"][..., 0], before))  # noqa: B023
            before = table.get(keys).data["state"][..., 0]
        updater.kill()
    for reader in readers:
        reader.send()
    results = [reader.result() for reader in readers]
    assert [torn for torn, _ in results] == [0, 0]
    assert all(seen > UPDATERS for _, seen in results)
    state = table.get(keys).data["state"]
    assert (state == state[..., :1]).all()
    assert table.update_data(keys, {"state": np.full((num_items, length, WIDTH), -1, np.float32)}) == num_items
    assert (table.get(keys).data["state"] == -1).all()
    assert check(table) == []


def step(n: int) -> dict[str, Any]:
    """Of another size each."""
    noise = np.random.default_rng(n).integers(0, 256, n % 400, np.uint8)
    packed = np.full(400, n % 251, np.uint8)
    packed[: n % 400] = noise
    return {"n": n, "packed": packed, "ragged": np.full(n % 97, n), "goal": np.full(40, n)}


@pytest.mark.long
def test_no_value_in_the_heap_is_torn_even_if_a_writer_dies(make_table: TableMaker, fork: Fork, seed: int) -> None:
    """A small heap that is full wraps without end; writers die in the midst of their values, and leave no block."""
    table = make_table(16, signature=VALUES, chunk_steps=2, max_streams=16, max_sessions=64)
    per_writer = 2**20

    def write(pipe: Any, number: int) -> None:
        pipe.send("at work")
        for n in range(number * per_writer, (number + 1) * per_writer):
            table.insert(step(n))

    def read(pipe: Any) -> tuple[int, int]:
        looked, wrong = 0, 0
        while not pipe.poll():
            batch = table.sample(16)
            for i, n in enumerate(batch.data["n"].tolist()):
                expected = step(n)
                size = int(batch.sizes["ragged"][i, 0])
                good = size == n % 97 and np.array_equal(batch.data["ragged"][i, :size], expected["ragged"])
                good &= np.array_equal(batch.data["packed"][i], expected["packed"])
                wrong += not (good and np.array_equal(batch.data["goal"][i], expected["goal"]))
                looked += 1
        return looked, wrong

    table.insert(step(0))
    readers = [fork(read) for _ in range(2)]
    writers: list[Child] = []
    for number in range(1, 1 + WRITERS):
        writers.append(fork(lambda pipe, number=number: write(pipe, number)))  # type: ignore[misc]
        assert writers[-1].receive() == "at work"
        before = table.info().inserts
        eventually(lambda: table.info().inserts > before + 50)  # noqa: B023
        if len(writers) > 2:
            writers.pop(0).kill()
    for writer in writers:
        writer.kill()
    for reader in readers:
        reader.send()
    results = [reader.result() for reader in readers]
    assert [wrong for _, wrong in results] == [0, 0]
    assert all(looked > 200 for looked, _ in results)
    inserts = table.info().inserts
    for n in range(500):  # whatever the dead ones held is there again
        table.insert(step(n), timeout_s=100)
    assert table.info().inserts == inserts + 500
    assert table.info().size == 16
    assert check(table) == []

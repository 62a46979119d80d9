"""Memory is told in advance: what an estimate says is what the segments then take, and what steps then fill."""

import os
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.estimates import Estimate, estimate
from shmreplay.tables.plan import by_arena
from tests.support.children import Fork
from tests.support.tables import TableMaker, check, live

BLOCK_BYTES = 512  # the unit of st_blocks
IMAGES = {"observation": sr.ArraySpec((84, 84), "uint8"), "action": sr.ArraySpec((), "int64")}
VECTORS = {
    "observation": {"joints": sr.ArraySpec((17,), "float32"), "contact": sr.ArraySpec((), "bool")},
    "action": sr.ArraySpec((6,), "float32"),
    "reward": sr.ArraySpec((), "float32"),
}
MANY = {f"c{i}": sr.ArraySpec((i % 4,), "float16") for i in range(70)}


def allocated_bytes(client: sr.Client, arena: str) -> int:
    """Bytes of an arena's segments that the file system has given out for them."""
    instance = client.stats()["daemon"]["instance"]
    paths = [f"/dev/shm/shmreplay.{instance}.{arena}.{part}" for part in ("index", "data")]
    return sum(os.stat(path).st_blocks * BLOCK_BYTES for path in paths)


SHAPES: list[list[sr.Table]] = [
    [sr.Table("one", {"x": np.float32(0)}, 1, max_streams=1, max_sessions=1)],
    [sr.Table("steps", VECTORS, 100_000, sampler=sr.selectors.Prioritized(0.6))],
    [sr.Table("images", IMAGES, 2000, item=sr.NStep(3, {"observation": 4}, summed=()), capacity_steps=2500)],
    [sr.Table("random", VECTORS, 5000, remover=sr.selectors.Uniform(), item_steps=4, max_streams=10)],
    [sr.Table("heap", VECTORS, 3333, remover=sr.selectors.MinHeap(), sampler=sr.selectors.MaxHeap(), chunk_steps=17)],
    [sr.Table("sequences", VECTORS, 500, item=sr.Sequence(80, 40, 40), max_streams=64)],
    [sr.Table.queue("unrolls", VECTORS, 100, item=sr.Unroll(20, bootstrap=()))],
    [sr.Table("many", MANY, 1000, max_streams=3, max_sessions=5)],
    [
        sr.Table("uniform", IMAGES, 1000, arena="all", max_streams=300),
        sr.Table("prioritised", IMAGES, 500, arena="all", sampler=sr.selectors.Prioritized(1.0), item_steps=5),
        sr.Table.queue("queue", IMAGES, 20, arena="all"),
    ],
    [sr.Table("streams", {"x": np.float32(0)}, 100, max_streams=16_384)],
]


@pytest.mark.parametrize("tables", SHAPES, ids=lambda tables: tables[0].name)
@pytest.mark.one_quick
def test_an_estimate_is_within_one_percent_of_what_is_then_taken(tables: list[sr.Table]) -> None:
    found = estimate(tables)
    (arena,) = by_arena(tables)
    with sr.Server(tables) as server, server.client() as client:
        assert allocated_bytes(client, arena) == pytest.approx(found.total_bytes, rel=0.01)
        assert client.table(tables[0].name).estimate() == found
    assert sum(term.num_bytes for term in found.index_terms) == found.index_bytes


def test_the_capacity_that_overlapping_windows_are_told_holds_them_all(make_table: TableMaker) -> None:
    signature = {"x": sr.ArraySpec((250,), "float32")}
    options: dict[str, Any] = {"signature": signature, "item": sr.Sequence(80, 40), "chunk_steps": 8, "max_streams": 1}
    [term] = make_table(100, **options).estimate().terms
    assert term.shared_steps == 100 * 40 + 80
    table = make_table(100, capacity_steps=term.shared_steps + 10, **options)
    assert table.estimate().data_bytes < make_table(100, **options).estimate().data_bytes
    filled(table, 10, 400)
    filled(table, 10, 400)
    assert (table.info().size, table.info().evicted_for_room) == (100, 0)


def filled(table: sr.TableHandle, num_episodes: int, length: int) -> int:
    """Fills the table with whole episodes; returns how many steps were appended, final ones included."""
    with table.writer() as writer:
        for episode in range(num_episodes):
            for k in range(length):
                writer.append({"x": np.full(250, 1000 * episode + k, np.float32)})
            writer.end_episode({"x": np.full(250, 1000 * episode + length, np.float32)})
    return num_episodes * (length + 1)


@pytest.mark.parametrize("chunk_steps", [1, 8, None])
def test_sequences_of_80_steps_every_40_store_every_step_once(make_table: TableMaker, chunk_steps: int | None) -> None:
    signature = {"x": sr.ArraySpec((250,), "float32")}
    # Every episode of 400 steps and a final one gives ten sequences, the last of them padded.
    table = make_table(
        100,
        signature=signature,
        item=sr.Sequence(80, 40),
        capacity_steps=10 * 401,
        chunk_steps=chunk_steps,
        max_streams=1,
    )
    steps = filled(table, 10, 400)
    info, found = table.info(), table.estimate()
    assert (info.size, info.evicted) == (100, 0)
    whole_chunks = -(-steps // found.chunk_steps) * found.chunk_steps
    assert info.bytes == whole_chunks // found.chunk_steps * found.chunk_bytes
    assert info.bytes <= 1.1 * steps * found.bytes_per_step
    batch = live(table)
    assert batch.mask["x"].sum() == 10 * (9 * 80 + 41)  # twice what is stored
    first = batch.data["x"][:, 0, 0].reshape(10, 10)
    assert first.tolist() == [[1000.0 * episode + 40 * k for k in range(10)] for episode in range(10)]
    filled(table, 10, 400)  # the old ones go as the new ones come
    assert (table.info().size, table.info().deletes) == (100, 100)
    assert table.info().evicted_for_room == 0
    assert check(table) == []


ACTORS, STREAMS = 256, 64


def planned() -> sr.Table:
    return sr.Table(
        "vector", {"x": sr.ArraySpec((), "int64")}, 1000, max_streams=ACTORS * STREAMS, max_sessions=ACTORS + 8
    )


def test_256_actors_of_64_streams_are_planned_term_by_term() -> None:
    found: Estimate = estimate([planned()])
    assert (found.max_streams, found.stream_chunks) == (16_384, 16_384 * 3)
    text = str(found)
    for part in ("16384 streams x (ceil(1 / 1) + 2)", "49152 chunks", "index, streams", "264 sessions"):
        assert part in text
    assert found.stream_chunks * found.chunk_bytes > found.terms[0].chunks * found.chunk_bytes  # what they cost is seen


@pytest.mark.long
def test_all_streams_of_256_actors_can_be_open_at_once(server: sr.Server, fork: Fork) -> None:
    """Sixteen processes stand for sixteen actors each."""
    with server.client() as client:
        client.create_tables([planned()])
        table = client.table("vector")

        def act(pipe: Any) -> int:
            writers = [table.writer() for _ in range(ACTORS * STREAMS // 16)]
            for k, writer in enumerate(writers):
                writer.append({"x": k})
            pipe.send()
            pipe.recv()
            for writer in writers:
                writer.create_item(length=1)
                writer.close()
            return len(writers)

        children = [fork(act) for _ in range(16)]
        for child in children:
            child.receive()
        with table.writer() as one_more, pytest.raises(sr.ShmReplayError, match=r"\(max_streams is 16384\)"):
            one_more.append({"x": 0})
        for child in children:
            child.send()
        assert sum(child.result() for child in children) == 16_384
        assert table.info().inserts == 16_384
        assert len(table) == 1000
        assert check(table) == []
        client.drop_table("vector")


def test_too_few_streams_are_an_error_that_names_max_streams_and_the_number(make_table: TableMaker) -> None:
    table = make_table(10, signature={"x": np.int64(0)}, max_streams=STREAMS - 1)
    writers = [table.writer() for _ in range(STREAMS)]
    for writer in writers[:-1]:
        writer.append({"x": 0})
    text = r"all streams of the arena are open; close writers or raise max_streams \(max_streams is 63\)"
    with pytest.raises(sr.ShmReplayError, match=text):
        writers[-1].append({"x": 0})
    for writer in writers:
        writer.close()

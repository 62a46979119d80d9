"""Checkpoints of columns that are not plain, and of tables without a signature."""

import tempfile
from typing import Any

import numpy as np

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from tests.daemon.checkpoints.saved import INFO, leaves

ROOM: dict[str, Any] = {"max_streams": 4, "max_sessions": 8}
SIGNATURE = {
    "n": sr.ArraySpec((), "int64"),
    "frame": sr.ArraySpec((20, 20), "uint8", compression="lz4"),
    "path": sr.ArraySpec((None, 2), "float32"),
    "hint": sr.ArraySpec((3,), "int32", optional=True),
    "state": sr.ArraySpec((5,), "float32", mutable=True),
    "goal": sr.ArraySpec((2,), "int64", per="item"),
}


def step(n: int, rng: np.random.Generator) -> dict[str, Any]:
    found = {
        "n": n,
        "frame": rng.integers(0, 3, (20, 20), np.uint8),
        "path": rng.random((int(rng.integers(0, 30)), 2), np.float32),
        "state": np.full(5, n, np.float32),
    }
    return {**found, "hint": np.full(3, n, np.int32)} if rng.random() < 0.5 else found


def shown(table: TableHandle) -> list[Any]:
    """All that a batch of its items shows."""
    batch = table.get(table.keys())
    data = [(leaf.shape, leaf.dtype.str, leaf.tobytes()) for leaf in leaves(batch.data)]
    masks = [leaf.tobytes() for leaf in leaves(batch.mask)]
    return [data, masks, batch.keys.tolist(), {name: getattr(table.info(), name) for name in INFO}]


def test_every_kind_of_column_is_the_same_after_a_restore(rng: np.random.Generator) -> None:
    spec = sr.Table("t", SIGNATURE, 40, item_steps=3, chunk_steps=4, sampler=sr.selectors.Prioritized(1.0), **ROOM)
    with (
        tempfile.TemporaryDirectory() as directory,
        sr.Server([spec], checkpoint_dir=directory) as server,
        server.client() as client,
    ):
        table = client.table("t")
        with table.writer(history=3) as writer:
            for n in range(100):
                writer.append(step(n, rng))
                if n >= 2:
                    writer.create_item(length=3, priority=float(n), values={"goal": np.array([n, -n])})
        for key in rng.choice(table.keys(), 15).tolist():
            table.update_data(np.array([key]), {"state": rng.random((1, 3, 5), np.float32)})
        client.checkpoint()
        before = shown(table)
        with sr.Server([spec], restore=directory) as second, second.client() as other:
            restored = other.table("t")
            assert shown(restored) == before
            assert restored._arena.check() == []
            # Its blocks serve on, and its cells change.
            with restored.writer(history=3) as writer:
                for n in range(100, 200):
                    writer.append(step(n, rng))
                    if n >= 102:
                        writer.create_item(length=3, values={"goal": np.array([n, -n])})
            keys = restored.keys()[-1:]
            assert restored.update_data(keys, {"state": np.full((1, 3, 5), 7, np.float32)}) == 1
            data = restored.get(keys).data
            assert data["n"].tolist() == [[197, 198, 199]]
            assert data["goal"].tolist() == [[199, -199]]
            assert (data["state"] == 7).all()
            assert restored._arena.check() == []


def test_a_table_without_signature_is_the_same_after_a_restore() -> None:
    things = [{"text": "a" * n, "list": [n, None, 2.5], "array": np.arange(n)} for n in range(50)]
    with (
        tempfile.TemporaryDirectory() as directory,
        sr.Server([sr.Table("t", None, 30, **ROOM)], checkpoint_dir=directory) as server,
        server.client() as client,
    ):
        table = client.table("t")
        for thing in things:
            table.insert(thing)
        client.checkpoint()
        with sr.Server(restore=directory) as second, second.client() as other:
            restored = other.table("t")
            assert repr(restored.get(restored.keys()).data) == repr(table.get(table.keys()).data)
            assert restored.get(restored.keys()[-1:]).data[0]["text"] == "a" * 49
            assert restored._arena.check() == []

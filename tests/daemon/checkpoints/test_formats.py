"""Checkpoints of earlier formats."""

import pathlib
import tempfile

import numpy as np
from numpy.typing import NDArray

import shmreplay as sr
from tests.support.tables import check

# 30 steps went in under format 1, where every compressed row stands by itself; the last of them are there.
FORMAT_1 = pathlib.Path(__file__).resolve().parents[2] / "data" / "format_1.checkpoint"
SIGNATURE = {"n": sr.ArraySpec((), "int64"), "frame": sr.ArraySpec((20, 20), "uint8", compression="lz4")}


def frame(n: int) -> NDArray[np.uint8]:
    """Noise for every fourth, compressible for the others."""
    if n % 4 == 0:
        return np.random.default_rng(n).integers(0, 256, (20, 20), np.uint8)
    return (np.arange(400, dtype=np.uint8).reshape(20, 20) // 16 * (n % 5 + 1)).astype(np.uint8)


def test_a_checkpoint_of_format_1_is_restored_and_goes_on_in_todays() -> None:
    spec = sr.Table("t", SIGNATURE, 30, chunk_steps=8, max_streams=2, max_sessions=4)
    with (
        tempfile.TemporaryDirectory() as directory,
        sr.Server([spec], checkpoint_dir=directory, restore=str(FORMAT_1)) as server,
        server.client() as client,
    ):
        table = client.table("t")
        ns = table.get(table.keys()).data["n"].tolist()
        assert ns == list(range(ns[0], 30))
        assert len(ns) > 8
        for n in range(30, 42):
            table.insert({"n": n, "frame": frame(n)})
        assert check(table) == []
        saved = client.checkpoint()
        with sr.Server([spec], restore=saved) as second, second.client() as other:
            batch = other.table("t").get(other.table("t").keys())
    assert batch.data["n"][-1] == 41
    assert batch.data["n"][0] < 30
    for n, image in zip(batch.data["n"].tolist(), batch.data["frame"], strict=True):
        np.testing.assert_array_equal(image, frame(n))

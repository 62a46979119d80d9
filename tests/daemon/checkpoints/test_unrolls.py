"""Checkpoints of unrolls, whose chunks repeat a row."""

import tempfile

import numpy as np

import shmreplay as sr
from tests.support.tables import check

T, N = 3, 4
SIGNATURE = {"x": sr.ArraySpec((2,), "float64"), "n": sr.ArraySpec((), "int64")}


def test_unrolls_and_items_that_run_over_repeated_rows_come_back_as_they_were() -> None:
    tables = [
        sr.Table.queue(
            "unrolls", SIGNATURE, 40, item=sr.Unroll(T, ("x",), across_episodes=True), arena="a", max_streams=N
        ),
        sr.Table("spans", SIGNATURE, 40, arena="a", max_streams=N),
    ]
    with tempfile.TemporaryDirectory() as directory, sr.Server(tables, checkpoint_dir=directory) as server:
        client = server.client()
        unrolls, spans = client.table("unrolls"), client.table("spans")
        patterns = [sr.Unroll(T, ("x",), across_episodes=True), sr.Sequence(5, table="spans")]
        with unrolls.vector_writer(N, patterns=patterns) as writer:
            for t in range(3 * T + 1):
                n = 100 * np.arange(N) + t
                writer.append({"x": np.stack([n, -n], axis=-1).astype(np.float64), "n": n})
        before = spans.get(spans.keys())
        assert before.data["n"][0].tolist() == [0, 1, 2, 3, 4]  # over the row that is there twice
        saved = client.checkpoint()
        with sr.Server(tables, restore=saved) as other, other.client() as restored:
            again = restored.table("spans").get(before.keys)
            for name in SIGNATURE:
                np.testing.assert_array_equal(again.data[name], before.data[name])
            queue = restored.table("unrolls")
            assert check(queue) == []
            for first in range(0, 3 * T, T):
                with queue.view(N) as items:
                    assert items.is_contiguous
                    expected = 100 * np.arange(N)[:, None] + first + np.arange(T + 1)
                    np.testing.assert_array_equal(items.data["x"][..., 0], expected)
            with queue.vector_writer(N, patterns=patterns) as writer:
                for t in range(50):
                    writer.append({"x": np.full((N, 2), float(t)), "n": np.full(N, t)})
                    if t % T == 0 and t > 0:
                        queue.sample(N)
            assert check(queue) == []
        client.close()

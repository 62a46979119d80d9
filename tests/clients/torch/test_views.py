"""Views as tensors: the shared memory itself, under a lease that lasts as long as the tensors."""

import gc
from typing import Any

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import shmreplay as sr  # noqa: E402
from shmreplay.clients.torch import view_tensors  # noqa: E402
from tests.support.tables import TableMaker, step  # noqa: E402

T, N = 4, 6  # steps of an unroll, streams
SIGNATURE = {
    "observation": sr.ArraySpec((3,), "float32"),
    "action": sr.ArraySpec((), "int64"),
    "terminated": sr.ArraySpec((), "bool"),
    "value": sr.ArraySpec((2,), ml_dtypes.bfloat16),
}


def write(table: sr.TableHandle) -> None:
    """One unroll of each stream; a step's number says which stream and step."""
    with table.vector_writer(N) as writer:
        for t in range(T + 1):
            number = 1000 * np.arange(1, N + 1) + t
            writer.append(
                {
                    "observation": (number[:, None] + np.arange(3) / 4).astype(np.float32),
                    "action": number,
                    "terminated": np.zeros(N, np.bool_),
                    "value": np.full((N, 2), t, ml_dtypes.bfloat16),
                }
            )


def unrolls(make_table: TableMaker) -> sr.TableHandle:
    item = sr.Unroll(T, across_episodes=True)
    table = make_table.queue(4 * N, signature=SIGNATURE, item=item, max_streams=N)
    write(table)
    return table


def test_unrolls_of_a_vector_writer_are_one_strided_tensor_on_the_segment(make_table: TableMaker) -> None:
    table = unrolls(make_table)
    with table.view(N) as items:
        assert items.is_contiguous
        tensors, arrays = view_tensors(items), items.data
        for name, array in arrays.items():
            tensor = tensors[name]
            assert tensor.data_ptr() == array.__array_interface__["data"][0]
            assert tensor.shape == array.shape
            assert [size * tensor.element_size() for size in tensor.stride()] == list(array.strides)
            assert tensor.stride(0) * tensor.element_size() == table._arena.chunk_bytes
        assert tensors["value"].dtype == torch.bfloat16
        assert tensors["value"][0, :, 0].tolist() == list(range(len(tensors["value"][0])))
        expected = 1000 * torch.arange(1, N + 1)[:, None] + torch.arange(T)
        assert torch.equal(tensors["action"], expected)
        del tensors, tensor


def test_tensors_keep_the_rows_leased_until_they_are_gone(make_table: TableMaker) -> None:
    table = unrolls(make_table)
    items = table.view(N)
    row = view_tensors(items)["action"][2]
    items.release()
    assert table._arena.names_chunks()
    write(table)
    assert row.tolist() == [3000 + t for t in range(T)]
    del row
    gc.collect()
    assert not table._arena.names_chunks()
    with pytest.raises(sr.ShmReplayError, match="was released"):
        view_tensors(items)


def test_items_that_lie_anyhow_come_as_copies(make_table: TableMaker) -> None:
    table = make_table(20, item_steps=3, sampler=sr.selectors.Fifo())
    with table.writer(history=3) as writer:
        for n in range(6):
            writer.append(step(n))
            writer.create_item(length=min(n + 1, 3))
    with table.view(6) as items:
        assert not items.is_contiguous
        tensors: Any = view_tensors(items)
        np.testing.assert_array_equal(tensors["n"].numpy(), items.data["n"])
        np.testing.assert_array_equal(tensors["pair"].half.numpy(), items.data["pair"].half)
    assert not table._arena.names_chunks()


def test_a_table_without_a_signature_gives_lists(make_table: TableMaker) -> None:
    table = make_table(signature=None)
    table.insert({"a": 1})
    with table.view(2) as items:
        assert view_tensors(items) == [{"a": 1}, {"a": 1}]

"""Batches of tensors on the CPU: those of the table's sampler, over the same memory."""

import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import shmreplay as sr  # noqa: E402
from shmreplay.clients.tables.table import TableHandle  # noqa: E402
from shmreplay.clients.torch import TorchBatch, TorchSampler  # noqa: E402
from tests.clients.torch.tensors import arrays, numbers_of, pointers  # noqa: E402
from tests.support.tables import TableMaker, by_path, filled, numbers, spans, step, steps  # noqa: E402

PREFETCH = [0, 2]
NUMBERS = ("keys", "priorities", "probabilities", "times_sampled", "table_size", "episodes", "steps", "ages")


def written(make_table: TableMaker, **options: Any) -> TableHandle:
    """Items of 3 steps and fewer."""
    table = make_table(20, item_steps=3, **options)
    with table.writer(history=3) as writer:
        for n in range(10):
            writer.append(step(n))
            writer.create_item(length=min(n + 1, 3))
    return table


@pytest.mark.parametrize("prefetch", PREFETCH)
def test_they_are_those_that_sample_draws_with_the_seed_in_order(make_table: TableMaker, prefetch: int) -> None:
    table = filled(make_table)
    plain = make_table.client.table(table.name, seed=11)
    with TorchSampler(table, 8, prefetch=prefetch, seed=11) as sampler:
        assert sampler.prefetch == prefetch
        for batch in (next(sampler) for _ in range(20)):
            want = plain.sample(8)
            assert len(batch) == 8
            np.testing.assert_array_equal(numbers(arrays(batch)), numbers(want))
            np.testing.assert_array_equal(batch.keys_host, want.keys)
            for name in NUMBERS[:5]:
                tensor, array = getattr(batch, name), getattr(want, name)
                assert tensor.numpy().dtype == array.dtype
                if name != "times_sampled":
                    np.testing.assert_array_equal(tensor.numpy(), array)


def test_tensors_lie_in_the_memory_of_the_arrays_that_sample_writes_to(make_table: TableMaker) -> None:
    batch = filled(make_table).sample(8)
    made = TorchBatch.of(batch)
    tensors: Any = by_path(made.data)
    for path, array in by_path(batch.data).items():
        assert tensors[path].data_ptr() == array.__array_interface__["data"][0], path
    for name in NUMBERS:
        assert getattr(made, name).data_ptr() == getattr(batch, name).__array_interface__["data"][0], name
        np.testing.assert_array_equal(getattr(made, name).numpy(), getattr(batch, name))


@pytest.mark.parametrize("prefetch", PREFETCH)
def test_memory_is_used_again_but_never_while_a_tensor_or_a_view_of_one_is_held(
    make_table: TableMaker, prefetch: int
) -> None:
    with TorchSampler(filled(make_table), 8, prefetch=prefetch) as sampler:
        kept = [(batch, numbers_of(batch).copy()) for batch in (next(sampler) for _ in range(3))]
        rows = next(sampler).data["x"][2:4]
        before = rows.clone()
        seen = [set(pointers(next(sampler))) for _ in range(30)]
        for batch, ns in kept:
            np.testing.assert_array_equal(numbers_of(batch), ns)
        assert torch.equal(rows, before)
        held = set().union(*(pointers(batch) for batch, _ in kept))
        assert all(pointers.isdisjoint(held) for pointers in seen)
        assert len(set().union(*seen)) < 5 * len(seen), "no array is used again"


def test_items_of_several_steps_have_masks_and_lengths(make_table: TableMaker) -> None:
    table = written(make_table)
    plain = make_table.client.table(table.name, seed=3)
    with TorchSampler(table, 16, seed=3) as sampler:
        batch, want = next(sampler), plain.sample(16)
        assert spans(arrays(batch)) == spans(want)
        assert batch.data["x"].shape == (16, 3, 5)
        assert batch.mask["n"].dtype == torch.bool


def test_the_step_axis_may_come_first(make_table: TableMaker) -> None:
    with TorchSampler(written(make_table), 5, time_major=True, pad_to=4, columns=["n", "x"]) as sampler:
        batch = next(sampler)
        assert batch.time_major
        assert batch.data["x"].shape == (4, 5, 5)
        assert batch.data.keys() == {"n", "x"}
        assert not batch.mask["n"][3].any()
        assert torch.equal(batch.mask["n"].sum(0), batch.lengths["n"])


@pytest.mark.parametrize("normalise", ["batch", "table", None])
def test_weights_are_those_of_the_batch_in_the_dtype_of_a_loss(make_table: TableMaker, normalise: Any) -> None:
    batch = filled(make_table).sample(32)
    made = TorchBatch.of(batch)
    for beta in (0.0, 0.4, 1.0):
        np.testing.assert_allclose(
            made.weights(beta, normalise, torch.float64).numpy(), batch.weights(beta, normalise), rtol=1e-12
        )
    assert made.weights(0.4, normalise).dtype == torch.float32
    with pytest.raises(ValueError, match=r"beta is -1\.0; expected a finite number >= 0"):
        made.weights(-1)
    with pytest.raises(ValueError, match="normalise is 'max'; expected 'batch', 'table' or None"):
        made.weights(1, "max")  # type: ignore[arg-type]  # that is what is tested


@pytest.mark.parametrize("normalise", ["batch", "table", None])
def test_no_weight_is_nan_however_far_the_priorities_are_apart(make_table: TableMaker, normalise: Any) -> None:
    table = make_table(4, sampler=sr.selectors.Prioritized(1.0))
    table.insert_batch(steps(range(4)), [1e280, 1e280, 1e-280, 1e-20])
    batch = table.sample(8)
    for beta in (0.0, 0.5, 1.0, 30.0):
        made, host = (
            TorchBatch.of(batch).weights(beta, normalise, torch.float64).numpy(),
            batch.weights(beta, normalise),
        )
        np.testing.assert_allclose(made, host, rtol=1e-12)
        assert not np.isnan(made).any()


def test_weights_of_a_uniform_table_are_one(make_table: TableMaker) -> None:
    made = TorchBatch.of(filled(make_table, sampler=sr.selectors.Uniform()).sample(8))
    for normalise in ("batch", "table", None):
        assert torch.equal(made.weights(0.7, normalise), torch.ones(8))


def test_columns_in_the_heap_come_as_tensors_padded_or_joined(make_table: TableMaker) -> None:
    signature = {
        "free": sr.ArraySpec((None,), "float32"),
        "maybe": sr.ArraySpec((2,), "int64", optional=True),
        "packed": sr.ArraySpec((6,), "uint8", compression="lz4"),
    }
    table = make_table(signature=signature)
    for n in range(4):
        table.insert({"free": np.full(n, n, np.float32), "maybe": None, "packed": np.full(6, n, np.uint8)})
    with TorchSampler(table, 8, count=False) as sampler:
        batch = next(sampler)
        assert torch.equal(batch.sizes["free"].flatten(), (batch.data["free"] > 0).sum(1).int())
        assert batch.sizes["packed"] is None
        assert not batch.mask["maybe"].any()
        assert torch.equal(batch.data["packed"][:, 0].long(), batch.sizes["free"].flatten().long())
    with TorchSampler(table, 8, ragged="concat", columns=["free"]) as sampler:
        batch = next(sampler)
        assert batch.data["free"].shape == (int(batch.sizes["free"].sum()),)


def test_a_table_without_a_signature_gives_lists(make_table: TableMaker) -> None:
    table = make_table(signature=None)
    table.insert({"a": 1})
    with TorchSampler(table, 2) as sampler:
        assert next(sampler).data == [{"a": 1}, {"a": 1}]


@pytest.mark.parametrize(
    ("dtype", "of"),
    [
        ("bool", torch.bool),
        ("uint8", torch.uint8),
        ("int16", torch.int16),
        ("uint32", torch.uint32),
        ("float16", torch.float16),
        ("complex64", torch.complex64),
        (ml_dtypes.bfloat16, torch.bfloat16),
    ],
)
def test_dtypes_stay_what_they_are_bit_by_bit(make_table: TableMaker, dtype: Any, of: Any) -> None:
    table = make_table(signature=sr.ArraySpec((3,), dtype))
    table.insert(np.array([0, 1, 1], dtype))
    with TorchSampler(table, 2) as sampler:
        data = next(sampler).data
        assert data.dtype == of
        assert data[1].tolist() == [0, 1, 1]


def test_a_dtype_that_torch_does_not_have_is_named_with_its_column(make_table: TableMaker) -> None:
    narrow = ml_dtypes.float8_e3m4
    table = make_table(signature={"a": sr.ArraySpec((), narrow), "b": sr.ArraySpec((), "int64")})
    table.insert({"a": np.array(0.5, narrow), "b": 1})
    text = "'a': torch has no tensors of dtype float8_e3m4; leave such a column out: columns="
    with TorchSampler(table, 2) as sampler, pytest.raises(TypeError, match=f"table {table.name!r}: {text}") as caught:
        next(sampler)
    assert caught.value.batch.data["b"].tolist() == [1, 1], "which are in the error"  # type: ignore[attr-defined]
    with TorchSampler(table, 2, columns=["b"]) as sampler:
        assert next(sampler).data["b"].tolist() == [1, 1]


def test_a_batch_survives_pickling_and_moving(make_table: TableMaker) -> None:
    with TorchSampler(written(make_table), 8) as sampler:
        batch = next(sampler)
        for other in (pickle.loads(pickle.dumps(batch)), batch.to("cpu")):
            assert spans(arrays(other)) == spans(arrays(batch))
            assert torch.equal(other.keys, batch.keys)
            np.testing.assert_array_equal(other.keys_host, batch.keys_host)
            assert torch.equal(other.weights(0.5, "table"), batch.weights(0.5, "table"))
    assert batch.device == torch.device("cpu")
    assert repr(batch).startswith("<TorchBatch of 8 items of table 't")

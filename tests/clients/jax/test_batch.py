"""Batches of a JaxSampler: the values of the table's own, as JAX arrays, where they are asked for."""

from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

import shmreplay as sr
from shmreplay.clients.jax import JaxBatch, JaxSampler
from tests.support.tables import Pair, TableMaker, by_path, columns_of, step, steps

HALVED = {"int64": "int32", "float64": "float32"}


def mesh(*shape: int) -> Mesh:
    names = ("data", "model")[: len(shape)]
    return Mesh(np.array(jax.devices("cpu")[: int(np.prod(shape))]).reshape(shape), names)


def numbers(batch: JaxBatch) -> NDArray[np.int64]:
    """The number of each one-step item, after a look at every byte and dtype of every column."""
    data = by_path(batch.data)
    ns = np.asarray(data["n"]).astype(np.int64)
    for path, expected in columns_of(ns).items():
        assert isinstance(data[path], jax.Array)
        assert data[path].dtype == HALVED.get(str(expected.dtype), str(expected.dtype))
        np.testing.assert_array_equal(np.asarray(data[path]), expected.astype(data[path].dtype))
    return ns


PLACES: dict[str, dict[str, Any]] = {
    "default": {},
    "host": {"device": "cpu"},
    "another device": {"device": "cpu:2"},
    "mesh": {"mesh": mesh(4)},
    "one axis of a mesh": {"mesh": mesh(2, 2), "axis": "model"},
}


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_batches_are_those_of_the_tables_own_sampler_wherever_they_lie(
    make_table: TableMaker, place: dict[str, Any], prefetch: int
) -> None:
    table = make_table(100, sampler=sr.selectors.Prioritized(0.7))
    table.insert_batch(steps(range(60)), np.arange(1.0, 61.0))
    with table.sampler(8, seed=3) as plain, JaxSampler(table, 8, seed=3, prefetch=prefetch, **place) as batches:
        for _ in range(12):
            expected, batch = next(plain), next(batches)
            assert isinstance(batch.data["pair"], Pair)
            np.testing.assert_array_equal(numbers(batch), expected.data["n"])
            np.testing.assert_array_equal(batch.keys, expected.keys)
            assert batch.keys.dtype == np.int64
            np.testing.assert_array_equal(batch.probabilities, expected.probabilities.astype(np.float32))
            np.testing.assert_array_equal(batch.weights(0.4, "table"), expected.weights(0.4, "table").astype("float32"))
            assert len(batch) == len(batch.host) == 8


def test_arrays_lie_where_they_were_asked_for(make_table: TableMaker) -> None:
    table = make_table(100)
    table.insert_batch(steps(range(60)))
    with JaxSampler(table, 8, device=jax.devices("cpu")[3]) as batches:
        assert batches.transfer == "device_put"
        assert next(batches).data["x"].devices() == {jax.devices("cpu")[3]}
    for shape, axis in (((4,), None), ((2, 2), "data"), ((2, 2), "model")):
        with JaxSampler(table, 8, mesh=mesh(*shape), axis=axis) as batches:
            batch = next(batches)
            expected = NamedSharding(mesh(*shape), PartitionSpec(axis or "data"))
            for array in (*jax.tree.leaves(batch.data), *jax.tree.leaves(batch.mask), batch.weights(1.0)):
                assert array.sharding.is_equivalent_to(expected, array.ndim)
            assert {shard.data.shape for shard in batch.data["x"].addressable_shards} == {(8 // shape[-1], 5)}
    with JaxSampler(table, 8) as batches:
        assert batches.transfer == "dlpack"
        assert next(batches).data["x"].devices() == {jax.devices("cpu")[0]}


@pytest.mark.parametrize("time_major", [False, True])
def test_spans_have_masks_and_lengths_and_a_mesh_divides_them_by_items(
    make_table: TableMaker, time_major: bool
) -> None:
    table = make_table(100, item=sr.Sequence(4, period=4))
    with table.writer() as writer:
        for n in range(10):
            writer.append(step(n))
        writer.end_episode()
    expected = table.sample(1, columns=["n", "x"], time_major=time_major)
    with JaxSampler(table, 8, mesh=mesh(4), columns=["n", "x"], time_major=time_major) as batches:
        batch = next(batches)
    assert batch.data.keys() == expected.data.keys() == {"n", "x"}
    assert batch.data["x"].shape == ((4, 8, 5) if time_major else (8, 4, 5))
    assert {shard.data.shape for shard in batch.data["x"].addressable_shards} == {
        (4, 2, 5) if time_major else (2, 4, 5)
    }
    mask = np.asarray(batch.mask["n"])
    np.testing.assert_array_equal(mask, batch.host.mask["n"])
    np.testing.assert_array_equal(np.asarray(batch.lengths["n"]), mask.sum(0 if time_major else 1))
    assert set(np.asarray(batch.lengths["n"]).tolist()) <= {4, 2}
    np.testing.assert_array_equal(np.asarray(batch.data["x"])[~mask], 0)


def test_targets_are_worked_out_on_the_host_of_either_batch(make_table: TableMaker) -> None:
    signature = {"observation": sr.ArraySpec((), "float32"), "reward": sr.ArraySpec((), "float32")}
    signature |= {"terminated": sr.ArraySpec((), "bool")}
    table = make_table(10, signature=signature, item=sr.NStep(2))
    with table.writer() as writer:
        for t in range(3):
            writer.append({"observation": t, "reward": 1.0, "terminated": t == 2})
        writer.end_episode()
    with JaxSampler(table, 16, seed=1) as batches:
        batch = next(batches)
    last = np.asarray(batch.data["observation"]) == 2
    for form in (batch.host, batch):
        returns, discounts, _ = sr.n_step_targets(form, 0.5)
        np.testing.assert_array_equal(returns, np.where(last, 1.0, 1.5))
        np.testing.assert_array_equal(discounts, np.where(np.asarray(batch.data["observation"]) == 0, 0.25, 0))


def test_numbers_keep_their_64_bits_where_jax_has_them(make_table: TableMaker) -> None:
    table = make_table(10)
    table.insert(step(2**40 + 1))
    with jax.enable_x64(True), JaxSampler(table, 2, prefetch=0) as batches:
        data = next(batches).data
        assert data["n"].dtype == np.int64
        assert data["n"].tolist() == [2**40 + 1] * 2
        assert data["pair"].half.dtype == np.float64


def test_columns_of_every_kind_come_as_arrays(make_table: TableMaker, rng: np.random.Generator) -> None:
    signature = {
        "half": sr.ArraySpec((3,), ml_dtypes.bfloat16),
        "packed": sr.ArraySpec((40,), "uint8", compression="lz4"),
        "ragged": sr.ArraySpec((None,), "float32"),
        "optional": sr.ArraySpec((), "int16", optional=True),
        "nothing": sr.ArraySpec((0,), "float32"),
        "complex": sr.ArraySpec((), "complex64"),
    }
    table = make_table(10, signature=signature)
    packed = rng.integers(256, size=40, dtype=np.uint8)
    half = np.array([1, 2, 3], ml_dtypes.bfloat16)
    row = {"half": half, "packed": packed, "ragged": np.ones(5, "f4"), "nothing": np.ones(0, "f4"), "complex": 1j}
    with table.writer() as writer:
        writer.append(row)
        writer.create_item(length=1)
    with JaxSampler(table, 4) as batches:
        for _ in range(8):
            batch = next(batches)
            assert batch.data["half"].dtype == jax.numpy.bfloat16
            np.testing.assert_array_equal(batch.data["half"], np.tile(half, (4, 1, 1)))
            np.testing.assert_array_equal(batch.data["packed"], np.tile(packed, (4, 1, 1)))
            np.testing.assert_array_equal(batch.data["ragged"], np.ones((4, 1, 5)))
            np.testing.assert_array_equal(batch.data["complex"], np.full((4, 1), 1j))
            assert batch.data["nothing"].shape == (4, 1, 0)
            assert not batch.mask["optional"].any()
    with JaxSampler(table, 4, ragged="concat") as batches:
        assert next(batches).data["ragged"].shape == (20,)


def test_priorities_come_from_wherever_they_were_worked_out(make_table: TableMaker) -> None:
    table = make_table(8, sampler=sr.selectors.Prioritized(1.0))
    keys = table.insert_batch(steps(range(8)), np.ones(8))
    with JaxSampler(table, 8, prefetch=0, mesh=mesh(4), replacement=False) as batches:
        batch = next(batches)
        for dtype in (jax.numpy.float32, jax.numpy.bfloat16):
            priorities = jax.jit(lambda data, dtype=dtype: (data["n"] + 2).astype(dtype))(batch.data)
            assert batches.update_priorities(batch.keys, priorities) == 8
            np.testing.assert_array_equal(table.get(keys).priorities, np.arange(8) + 2)
        with pytest.raises(ValueError, match=r"priorities\[3\] is nan"):
            batches.update_priorities(batch.keys, priorities.at[3].set(jax.numpy.nan))


def test_learners_side_by_side_draw_each_their_own(make_table: TableMaker) -> None:
    table = make_table(100)
    table.insert_batch(steps(range(64)))
    seen: list[list[int]] = []
    for rank in range(2):
        with JaxSampler(table, 16, rank=rank, world_size=2, seed=7) as batches:
            seen.append(next(batches).keys.tolist())
    assert seen[0] != seen[1]
    seen.clear()
    for rank in range(2):
        with JaxSampler(table, 16, rank=rank, world_size=2, disjoint=True, seed=7) as batches:
            seen.append([key for _ in range(4) for key in next(batches).keys.tolist()])
    assert not set(seen[0]) & set(seen[1])
    with pytest.raises(ValueError, match="rank is 2 and world_size is 2; expected a rank below world_size"):
        JaxSampler(table, 16, rank=2, world_size=2)


def test_items_are_consumed_one_batch_at_a_time_and_none_is_lost(make_table: TableMaker) -> None:
    table = make_table.queue(100)
    table.insert_batch(steps(range(19)))
    with JaxSampler(table, 8, timeout_s=0) as batches:
        assert batches.prefetch == 0
        assert [numbers(next(batches)).tolist() for _ in range(2)] == [[*range(8)], [*range(8, 16)]]
        with pytest.raises(sr.RateLimitTimeout) as raised:
            next(batches)
        assert numbers(batches.place(raised.value.batch)).tolist() == [16, 17, 18]


def test_a_batch_that_can_not_be_placed_comes_with_the_error(
    make_table: TableMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table.queue(100)
    table.insert_batch(steps(range(4)))
    with JaxSampler(table, 4, device="cpu:1") as batches:
        with monkeypatch.context() as patched:
            patched.setattr(jax, "device_put", lambda *_: (_ for _ in ()).throw(RuntimeError("out of memory")))
            with pytest.raises(RuntimeError, match="out of memory") as raised:
                next(batches)
        assert numbers(batches.place(raised.value.batch)).tolist() == [0, 1, 2, 3]  # type: ignore[attr-defined]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no such device": ({"device": "cpu:9"}, "device is 'cpu:9'; there is no such device .*, only cpu:0, cpu:1"),
    "no such platform": ({"device": "abacus"}, "device is 'abacus'; there is no such device"),
    "device and mesh": ({"device": "cpu", "mesh": mesh(4)}, "device= and mesh= are both given"),
    "axis without mesh": ({"axis": "data"}, "axis is 'data', but there is no mesh"),
    "no such axis": ({"mesh": mesh(4), "axis": "batch"}, "axis is 'batch'; the mesh has data"),
    "which axis": ({"mesh": mesh(2, 2)}, "the mesh has the axes data, model; expected axis="),
    "uneven": ({"mesh": mesh(3)}, "batch_size is 8; expected a multiple of 3, the size of the mesh's axis 'data'"),
    "at_least": ({"mesh": mesh(4), "at_least": 2}, "no mesh with at_least="),
    "joined rows": ({"mesh": mesh(4), "ragged": "concat"}, "no mesh with ragged='concat'"),
    "prefetch": ({"prefetch": -1}, "prefetch is -1"),
}


@pytest.mark.parametrize(("options", "text"), REFUSED.values(), ids=REFUSED)
def test_options_that_do_not_go_are_refused(make_table: TableMaker, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        JaxSampler(make_table(10), 8, **options)


def test_what_is_of_another_type_is_refused(make_table: TableMaker) -> None:
    table = make_table(10)
    wrong: Any
    for wrong, text in (
        ({"device": 3}, "device is 3; expected a jax.Device"),
        ({"mesh": "data"}, "mesh is 'data'; expected a jax.sharding.Mesh"),
        ({"colums": ["n"]}, "unexpected keyword argument 'colums'"),
    ):
        with pytest.raises(TypeError, match=text):
            JaxSampler(table, 8, **wrong)
    with pytest.raises(TypeError, match="has no signature: its batches are lists"):
        JaxSampler(make_table(10, signature=None), 8)


def test_a_table_with_shards_has_batches_too(make_table: TableMaker) -> None:
    make_table.client.create_tables([sr.Table("sharded", {"n": sr.ArraySpec((), "int32")}, 100, shards=2)])
    table = make_table.client.table("sharded")
    keys = table.insert_batch({"n": np.arange(10, dtype=np.int32)})
    with JaxSampler(table, 8, seed=1) as batches:
        batch = next(batches)
        by_key = dict(zip(keys.tolist(), range(10), strict=True))
        assert batch.data["n"].tolist() == [by_key[key] for key in batch.keys.tolist()]
    make_table.client.drop_table("sharded")


def test_a_closed_sampler_says_so_and_its_batches_stay(make_table: TableMaker) -> None:
    table = make_table(100)
    table.insert_batch(steps(range(10)))
    with JaxSampler(table, 4) as batches:
        batch = next(iter(batches))
        before = numbers(batch).tolist()
    assert batches.is_closed
    with pytest.raises(sr.ShmReplayError, match="this sampler is closed"):
        next(batches)
    assert numbers(batch).tolist() == before

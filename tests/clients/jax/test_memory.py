"""The memory of a JaxSampler's batches: not copied on the host, used again, but never while referred to."""

import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.batches.aligned import ALIGNMENT, aligned_copy, aligned_empty, is_aligned
from shmreplay.clients.jax import JaxBatch, JaxSampler
from shmreplay.clients.tables.table import TableHandle
from tests.support.tables import TableMaker
from tests.support.waiting import WAIT_S

WIDE = 4096  # float32: 16 KiB a row, and so a batch that JAX works at for a while
SIGNATURE = {
    "n": sr.ArraySpec((), "int32"),
    "small": sr.ArraySpec((3,), "float32"),
    "wide": sr.ArraySpec((WIDE,), "float32"),
}


def rows(ns: Any) -> dict[str, Any]:
    """Steps in which every number of every column is the step's."""
    ns = np.asarray(ns, np.int32)
    return {
        "n": ns,
        "small": np.repeat(ns[:, None], 3, 1).astype(np.float32),
        "wide": np.repeat(ns[:, None], WIDE, 1).astype(np.float32),
    }


@pytest.fixture
def table(make_table: TableMaker) -> TableHandle:
    table = make_table(64, signature=SIGNATURE)
    table.insert_batch(rows(range(64)))
    return table


def warmed(batches: JaxSampler) -> JaxSampler:
    """Once its own arrays are there: those of its first batch are small, and copied to borders of 64 bytes."""
    next(batches)
    return batches


def addresses(batch: JaxBatch) -> dict[str, int]:
    return {name: array.unsafe_buffer_pointer() for name, array in batch.data.items()}


@pytest.mark.parametrize("prefetch", [0, 2])
def test_on_the_host_batches_are_handed_over_without_a_copy(table: TableHandle, prefetch: int) -> None:
    with JaxSampler(table, 16, prefetch=prefetch) as batches:
        seen = set()
        warmed(batches)
        for _ in range(100):
            batch = next(batches)
            for name, address in addresses(batch).items():
                assert address == batch.host.data[name].ctypes.data
                assert address % ALIGNMENT == 0
            seen.add(tuple(addresses(batch).values()))
        assert len(seen) < 50  # used again, once JAX has let go of them


def test_large_arrays_of_a_consuming_table_are_handed_over_without_a_copy(make_table: TableMaker) -> None:
    table = make_table.queue(64, signature=SIGNATURE)
    table.insert_batch(rows(range(64)))
    with JaxSampler(table, 32) as batches:
        for _ in range(2):
            batch = next(batches)
            assert addresses(batch)["wide"] == batch.host.data["wide"].ctypes.data


HOLDS: dict[str, Callable[[jax.Array], Any]] = {
    "the array": lambda array: array,
    "what a function gives back as it is": jax.jit(lambda array: array),
    "what a function made of it in its place": jax.jit(lambda array: -array, donate_argnums=0),
    "a NumPy array on it": lambda array: np.asarray(array),
    "an array that shares it": lambda array: np.from_dlpack(array.addressable_shards[0].data),
    "a reshape": lambda array: array.reshape(-1),
    "a slice": lambda array: array[1:],
    "another dtype": lambda array: array.view(np.int32),
    "the same on another device": lambda array: jax.device_put(array, jax.devices("cpu")[1]),
    "a tree": lambda array: {"array": array},
}
PLACES: dict[str, dict[str, Any]] = {
    "dlpack": {},
    "device": {"device": "cpu:1"},
    "mesh": {"mesh": jax.sharding.Mesh(np.array(jax.devices("cpu")), ("data",))},
}


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable:UserWarning")
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("hold", HOLDS.values(), ids=HOLDS)
def test_memory_that_somebody_looks_at_is_not_written_to(
    table: TableHandle, hold: Callable[[jax.Array], Any], place: dict[str, Any]
) -> None:
    with JaxSampler(table, 16, columns=["wide"], **place) as batches:
        warmed(batches)
        held, contents = [], []
        for _ in range(6):
            held.append(hold(next(batches).data["wide"]))
            contents.append([np.array(leaf) for leaf in jax.tree.leaves(held[-1])])
        for _ in range(20):
            next(batches)
        for kept, content in zip(held, contents, strict=True):
            for leaf, before in zip(jax.tree.leaves(kept), content, strict=True):
                np.testing.assert_array_equal(np.asarray(leaf), before)


@jax.jit
def look(data: dict[str, jax.Array]) -> jax.Array:
    """Per item its number if every value of it is that, else -1; slowly, so that it goes on when it has returned."""
    wide = data["wide"]
    for _ in range(2):
        wide = jax.numpy.sort(wide, axis=1)
    ns = data["n"].astype(wide.dtype)[:, None]
    is_whole = jax.numpy.all(wide == ns, axis=1) & jax.numpy.all(data["small"] == ns, axis=1)
    return jax.numpy.where(is_whole, data["n"], -1)


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_computation_under_way_sees_its_own_batch_while_others_overwrite_the_table(
    table: TableHandle, place: dict[str, Any]
) -> None:
    """A5 and O8: only the computation refers to the batch, so its memory would be the next to be used again."""
    stop, written = threading.Event(), [64]

    def overwrite() -> None:
        while not stop.is_set():
            table.insert_batch(rows(range(written[0], written[0] + 16)))
            written[0] += 16

    writer = threading.Thread(target=overwrite)
    writer.start()
    try:
        with JaxSampler(table, 16, **place) as batches:
            outcomes = []
            for _ in range(25):
                batch = next(batches)
                outcomes.append((batch.host.data["n"].copy(), look(batch.data)))
                del batch
            for ns, seen in outcomes:
                assert np.asarray(seen).tolist() == ns.tolist()
    finally:
        stop.set()
        writer.join(WAIT_S)
    assert written[0] > 64


def test_a_caller_who_keeps_every_batch_has_them_all(table: TableHandle) -> None:
    with JaxSampler(table, 16, seed=5) as batches, table.sampler(16, seed=5) as plain:
        kept = [next(batches) for _ in range(30)]
        for batch in kept:
            np.testing.assert_array_equal(np.asarray(batch.data["wide"]), next(plain).data["wide"])


def test_a_longer_item_makes_longer_arrays(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE, chunk_steps=16)
    with table.writer(history=8) as writer, JaxSampler(table, 4, prefetch=0) as batches:
        for length in (1, 2, 7):
            for n in range(length):
                writer.append({name: column[0] for name, column in rows([n]).items()})
            writer.create_item(length=length)
            writer.end_episode()
            batch = next(batches)
            assert batch.data["small"].shape == (4, length, 3)
            np.testing.assert_array_equal(np.asarray(batch.data["wide"]), batch.host.data["wide"])


@pytest.mark.parametrize("shape", [(), (0,), (3,), (5, 7, 2)])
@pytest.mark.parametrize("dtype", ["bool", "int8", "float32", "complex128"])
def test_aligned_arrays_are_aligned_owners_of_their_memory(shape: tuple[int, ...], dtype: str) -> None:
    for _ in range(20):
        array = aligned_empty(shape, np.dtype(dtype))
        assert is_aligned(array)
        assert array.ctypes.data % 64 == 0
        assert array.shape == shape
        assert array.dtype == dtype
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert not isinstance(array.base, np.ndarray)
    other = np.arange(12.0).reshape(3, 4).T
    copy = aligned_copy(other, np.dtype("int16"))
    assert copy.dtype == np.int16
    np.testing.assert_array_equal(copy, other)

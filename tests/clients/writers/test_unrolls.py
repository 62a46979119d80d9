"""Unrolls: each item has its own chunk, and a view of many items is one array on the segment."""

import gc
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import shmreplay as sr
from tests.support.tables import TableMaker, address, check, leased, live, step

T, N = 4, 6  # steps of an unroll, streams
SIGNATURE = {
    "observation": sr.ArraySpec((3,), "float32"),
    "action": sr.ArraySpec((), "int64"),
    "terminated": sr.ArraySpec((), "bool"),
}


def rows(t: int, num: int = N) -> dict[str, NDArray[Any]]:
    """Step t of every stream; its number says which stream and step."""
    number = 1000 * np.arange(1, num + 1) + t
    observation = (number[:, None] + np.arange(3) / 4).astype(np.float32)
    return {"observation": observation, "action": number, "terminated": np.zeros(num, np.bool_)}


def queue(make_table: TableMaker, **options: Any) -> sr.TableHandle:
    item = sr.Unroll(T, across_episodes=True)
    return make_table.queue(options.pop("max_size", 4 * N), signature=SIGNATURE, item=item, max_streams=N, **options)


def test_the_unrolls_of_a_vector_writers_streams_are_one_strided_array_on_the_segment(make_table: TableMaker) -> None:
    table = queue(make_table)
    arena = table._arena
    t = 0
    with table.vector_writer(N) as writer:
        writer.append(rows(t))
        for rounds in range(1, 30):
            for _ in range(T):
                t += 1
                writer.append(rows(t))
            with table.view(N) as items:
                assert items.is_contiguous
                steps = np.arange(t - T, t + 1)
                number = 1000 * np.arange(1, N + 1)[:, None] + steps
                data, mask = items.data, items.mask
                np.testing.assert_array_equal(data["action"], number[:, :T])
                np.testing.assert_array_equal(data["observation"][:, :, 1], (number + 0.25).astype(np.float32))
                assert (data["observation"].shape, data["terminated"].shape) == ((N, T + 1, 3), (N, T))
                assert mask["observation"].shape == (N, T + 1)
                assert all(each.all() for each in mask.values())
                for name, array in data.items():
                    assert array.strides[0] == arena.chunk_bytes
                    assert not array.flags.writeable
                    assert arena.data_address <= address(array) < arena.data_address + arena.data_bytes
                    for array_of_all, item in zip(array, items, strict=True):
                        assert address(array_of_all) == address(item.data[name])
                        assert item.is_view[name]
                [first] = {int(numbers[0]) // (T + 1) for numbers in items._native.row_numbers(0)[0][:1]}  # type: ignore[union-attr]
                assert address(data["observation"]) == arena.data_address + first * arena.chunk_bytes
            info = table.info()
            assert (info.views, info.contiguous_views) == (rounds, rounds)
    assert check(table) == []


def test_a_table_of_unrolls_has_chunks_of_as_many_steps_as_one_shows(make_table: TableMaker) -> None:
    assert queue(make_table)._arena.stats()["chunk_steps"] == T + 1
    plain = make_table(10, signature=SIGNATURE, item=sr.Unroll(T, bootstrap=()), max_streams=2)
    assert plain._arena.stats()["chunk_steps"] == T
    given = make_table(10, signature=SIGNATURE, item=sr.Unroll(T), chunk_steps=3, max_streams=2)
    assert given._arena.stats()["chunk_steps"] == 3


def test_episodes_that_end_at_different_times_give_the_same_data_by_a_copy(make_table: TableMaker) -> None:
    table = make_table.queue(40, signature=SIGNATURE, item=sr.Unroll(T), max_streams=N)
    with table.vector_writer(N) as writer:
        for t in range(3 * T):
            writer.append(rows(t))
            ends = np.arange(N) == t - 2
            if ends.any():
                writer.end_episodes(ends, {"observation": np.full((N, 3), 7, np.float32)})
    batch = live(table)
    assert not batch.mask["observation"].all()
    with table.view(len(batch)) as items:
        assert not items.is_contiguous
        for name, array in items.data.items():
            np.testing.assert_array_equal(array, batch.data[name])
            assert not array.flags.writeable
            np.testing.assert_array_equal(items.mask[name], batch.mask[name])
        assert {len(set(item.is_view.values())) for item in items} <= {1, 2}
        assert any(item.is_view["observation"] for item in items)
        for name in ("keys", "priorities", "probabilities", "episodes", "steps", "ages"):
            np.testing.assert_array_equal(getattr(items, name), getattr(batch, name))
    info = table.info()
    assert (info.views, info.contiguous_views) == (1, 0)
    assert check(table) == []


def test_data_of_a_view_is_that_of_a_batch_whatever_the_columns_are(make_table: TableMaker) -> None:
    signature = {
        "x": sr.ArraySpec((2,), "float32"),
        "packed": sr.ArraySpec((4, 4), "uint8", compression="lz4"),
        "note": sr.ArraySpec((), "int32", optional=True),
        "state": sr.ArraySpec((2,), "float64", mutable=True),
        "goal": sr.ArraySpec((3,), "float32", per="item"),
    }
    table = make_table.queue(20, signature=signature, item_steps=3)
    with table.writer(patterns=[]) as writer:
        for n in range(6):
            x, packed = np.full(2, n, np.float32), np.full((4, 4), n, np.uint8)
            writer.append({"x": x, "packed": packed, "note": n if n % 2 else None, "state": np.full(2, float(n))})
            writer.create_item(length=min(n + 1, 3), values={"goal": np.full(3, n, np.float32)})
    batch = live(table)
    with table.view(len(batch)) as items:
        for name, array in items.data.items():
            assert array.dtype == batch.data[name].dtype
            np.testing.assert_array_equal(array, batch.data[name])
            np.testing.assert_array_equal(items.mask[name], batch.mask[name])


def test_one_step_items_in_one_chunk_are_one_array_too(make_table: TableMaker) -> None:
    table = make_table.queue(64, chunk_steps=16)
    table.insert_batch({"n": np.arange(10), **{k: v for k, v in _steps_of(10).items() if k != "n"}})
    with table.view(10) as items:
        assert items.is_contiguous
        assert items.data["n"].tolist() == list(range(10))
        assert items.data["n"].strides == (8,)


def _steps_of(num: int) -> dict[str, Any]:
    stacked = [step(n) for n in range(num)]
    pair = type(stacked[0]["pair"])
    half, odd = np.array([s["pair"].half for s in stacked]), np.array([s["pair"].odd for s in stacked])
    return {
        "n": np.arange(num),
        "x": np.stack([s["x"] for s in stacked]),
        "image": np.stack([s["image"] for s in stacked]),
        "pair": pair(half, odd),
    }


def test_an_unroll_that_was_written_by_extend_lies_in_one_chunk_too(make_table: TableMaker) -> None:
    table = make_table.queue(40, signature=SIGNATURE, item=sr.Unroll(T, across_episodes=True), max_streams=2)
    every = [rows(t, 1) for t in range(5 * T + 1)]
    table.extend({name: np.concatenate([row[name] for row in every]) for name in SIGNATURE})
    with table.view(5) as items:
        assert items.is_contiguous
        np.testing.assert_array_equal(items.data["action"], 1000 + np.arange(5 * T).reshape(5, T))


# --- DLPack ----------------------------------------------------------------------------------------------------------


def write_unrolls(table: sr.TableHandle) -> None:
    with table.vector_writer(N) as writer:
        for t in range(T + 1):
            writer.append(rows(t))


def test_what_is_made_by_dlpack_keeps_its_rows_leased_until_it_is_gone(make_table: TableMaker) -> None:
    table = queue(make_table)
    write_unrolls(table)
    items = table.view(N)
    exported = items.for_dlpack()
    array = np.from_dlpack(exported["observation"])
    before = array.copy()
    assert address(array) == address(items.data["observation"])
    assert array.strides == items.data["observation"].strides
    assert not array.flags.writeable
    assert exported["observation"].__dlpack_device__() == (1, 0)
    del exported
    items.release()
    assert leased(table)
    for _ in range(30):  # the arena over and over
        write_unrolls(table)
        table.delete(table.keys())
    np.testing.assert_array_equal(array, before)
    del array
    gc.collect()
    assert not leased(table)
    with pytest.raises(sr.ShmReplayError, match="was released"):
        items.for_dlpack()


def test_the_read_only_flag_and_the_kind_of_memory_are_what_was_asked_for(make_table: TableMaker) -> None:
    table = queue(make_table)
    write_unrolls(table)
    with table.view(N) as items:
        pinned = items.for_dlpack((3, 0))["action"]
        assert pinned.__dlpack_device__() == (3, 0)
        assert "dltensor_versioned" in repr(pinned.__dlpack__(max_version=(1, 0)))
        assert '"dltensor"' in repr(pinned.__dlpack__())
        with pytest.raises(BufferError, match="dl_device"):
            pinned.__dlpack__(dl_device=(1, 0))
        with pytest.raises(BufferError, match="copy=True"):
            pinned.__dlpack__(copy=True)
        del pinned


def test_memory_of_a_device_is_refused_where_data_is_a_copy(make_table: TableMaker) -> None:
    table = make_table(10, sampler=sr.selectors.Fifo(), chunk_steps=4)
    with table.writer(history=8) as writer:
        for n in range(6):
            writer.append(step(n))
        writer.create_item(length=6)
    with table.view(1) as items:
        assert not items.is_contiguous
        with pytest.raises(ValueError, match=r"an output is a copy, not memory of device \(3, 0\)"):
            items.for_dlpack((3, 0))
        data = items.for_dlpack()["n"]
        assert data.tolist() == [[0, 1, 2, 3, 4, 5]]
        assert np.from_dlpack(data).tolist() == data.tolist()
        assert not items.data["n"].flags.writeable


@pytest.mark.long
def test_an_export_outlives_client_and_server() -> None:
    table = sr.Table.queue("unrolls", SIGNATURE, 2 * N, item=sr.Unroll(T, across_episodes=True), max_streams=N)
    with sr.Server(tables=[table]) as server, server.client() as client:
        handle = client.table("unrolls")
        write_unrolls(handle)
        array = np.from_dlpack(handle.view(N).for_dlpack()["action"])
    np.testing.assert_array_equal(array, 1000 * np.arange(1, N + 1)[:, None] + np.arange(T))
    del array, handle
    gc.collect()


def test_torch_takes_a_view_without_a_copy(make_table: TableMaker) -> None:
    torch = pytest.importorskip("torch")
    table = queue(make_table)
    write_unrolls(table)
    items = table.view(N)
    tensor = torch.from_dlpack(items.for_dlpack()["observation"])
    assert tensor.data_ptr() == address(items.data["observation"])
    assert tuple(tensor.shape) == (N, T + 1, 3)
    assert tensor.stride(0) * 4 == table._arena.chunk_bytes
    expected = torch.from_numpy(items.data["observation"].copy())
    items.release()
    assert leased(table)
    assert torch.equal(tensor, expected)
    del tensor
    gc.collect()
    assert not leased(table)

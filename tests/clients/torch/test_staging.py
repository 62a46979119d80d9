"""Staging: batches go through page-locked memory, by copies that nobody waits for, and never out of what is written
anew."""

import gc
import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import shmreplay as sr  # noqa: E402
from shmreplay.clients.cuda.errors import CudaError, CudaUnavailable  # noqa: E402
from shmreplay.clients.tables.table import TableHandle  # noqa: E402
from shmreplay.clients.torch import TorchBatch, TorchSampler  # noqa: E402
from tests.clients.torch.host_tensors import GARBAGE  # noqa: E402
from tests.clients.torch.tensors import arrays, numbers_of  # noqa: E402
from tests.clients.torch.test_batch import NUMBERS, PREFETCH, written  # noqa: E402
from tests.support.children import Fork  # noqa: E402
from tests.support.fake_cuda import FakeCuda  # noqa: E402
from tests.support.tables import TableMaker, filled, spans, step, steps  # noqa: E402
from tests.support.waiting import WAIT_S, eventually  # noqa: E402

pytestmark = pytest.mark.usefixtures("cuda", "gpu")
OUT_OF_MEMORY = 2


def staging(table: TableHandle, batch_size: int, **options: Any) -> TorchSampler:
    return TorchSampler(table, batch_size, device="cuda:0", transfer="staging", **options)


@pytest.mark.parametrize("prefetch", PREFETCH)
def test_batches_are_those_that_sample_draws_with_the_seed_in_order(make_table: TableMaker, prefetch: int) -> None:
    table = filled(make_table)
    plain = make_table.client.table(table.name, seed=11)
    with staging(table, 8, prefetch=prefetch, seed=11) as sampler:
        for batch in (next(sampler) for _ in range(20)):
            want = plain.sample(8)
            np.testing.assert_array_equal(numbers_of(batch), want.data["n"])
            np.testing.assert_array_equal(batch.keys_host, want.keys)
            for name in ("keys", "priorities", "probabilities", "table_size"):
                np.testing.assert_array_equal(getattr(batch, name).numpy(), getattr(want, name))
            np.testing.assert_allclose(batch.weights(0.5, "table").numpy(), want.weights(0.5, "table"), rtol=1e-6)


def test_items_of_several_steps_come_with_masks_and_lengths(make_table: TableMaker) -> None:
    table = written(make_table)
    plain = make_table.client.table(table.name, seed=3)
    with staging(table, 16, seed=3) as sampler:
        for _ in range(5):
            assert spans(arrays(next(sampler))) == spans(plain.sample(16))
    with staging(table, 5, time_major=True, pad_to=4, columns=["n", "x"]) as sampler:
        batch = next(sampler)
        assert batch.data["x"].shape == (4, 5, 5)
        assert torch.equal(batch.mask["n"].sum(0), batch.lengths["n"])


def test_columns_in_the_heap_go_the_same_way_and_may_grow(make_table: TableMaker, cuda: FakeCuda) -> None:
    signature = {"free": sr.ArraySpec((None,), "float32"), "packed": sr.ArraySpec((6,), "uint8", compression="lz4")}
    table = make_table(signature=signature, sampler=sr.selectors.Lifo())
    with staging(table, 2, prefetch=0) as sampler:
        for n in (1, 2, 500, 3):
            table.insert({"free": np.full(n, n, np.float32), "packed": np.full(6, n % 256, np.uint8)})
            batch = next(sampler)
            assert batch.data["free"].shape == (2, n)
            assert (batch.data["free"] == n).all()
            assert batch.sizes["free"].tolist() == [[n], [n]]
            assert (batch.data["packed"] == n % 256).all()
    assert cuda.copied("pageable") == 0


def test_items_that_grow_longer_than_the_memory_was_made_for_come_whole(make_table: TableMaker) -> None:
    table = make_table(20, item_steps=6, sampler=sr.selectors.Lifo())
    with table.writer(history=6) as writer, staging(table, 3, prefetch=0) as sampler:
        for n in range(6):
            writer.append(step(n))
            writer.create_item(length=n + 1)
            assert spans(arrays(next(sampler))) == [list(range(n + 1))] * 3


def test_one_copy_a_batch_from_pinned_memory_and_the_counts_say_so(make_table: TableMaker, cuda: FakeCuda) -> None:
    with staging(filled(make_table), 8, prefetch=0) as sampler:
        for _ in range(10):
            next(sampler)
        info = sampler.info()
    assert cuda.calls("cuMemcpyHtoDAsync_v2") == cuda.calls("cuStreamWaitEvent") == 10
    assert (cuda.copied("pinned"), cuda.copied("pageable")) == (info.sent_bytes, 0)
    assert (info.device, info.transfer, info.why, info.batches) == ("cuda:0", "staging", "it was asked for", 10)
    assert info.gathered_bytes == 10 * 8 * (8 + 20 + 6 + 8 + 1)
    assert info.gathered_bytes < info.sent_bytes < info.gathered_bytes + 10 * 256 * (5 + 5 + 8)


# --- copies that take their time -------------------------------------------------------------------------------------


def test_a_batch_is_handed_out_before_it_is_there_and_the_stream_waits_in_the_callers_place(
    make_table: TableMaker, cuda: FakeCuda
) -> None:
    with staging(filled(make_table), 8, prefetch=0) as sampler:
        cuda.delay(None)
        batch = next(sampler)
        assert cuda.pending > 0
        assert cuda.calls("cuStreamWaitEvent") == 1
        assert (batch.data["image"] == GARBAGE).all(), "nothing was copied yet"
        cuda.run()
        numbers_of(batch)


def test_page_locked_memory_is_not_written_to_before_it_was_copied(make_table: TableMaker, cuda: FakeCuda) -> None:
    with staging(filled(make_table), 8, prefetch=0) as sampler:
        cuda.delay(None)
        first = next(sampler)
        found: list[TorchBatch] = []
        thread = threading.Thread(target=lambda: found.append(next(sampler)))
        thread.start()
        thread.join(0.1)
        assert thread.is_alive(), "the next batch has to wait for the first one's copy"
        cuda.run()
        cuda.delay(0)
        thread.join(WAIT_S)
        for batch in (first, *found):
            numbers_of(batch)
        assert len(found) == 1


@pytest.mark.parametrize("prefetch", PREFETCH)
def test_no_batch_is_torn_while_actors_write_and_copies_lag(
    make_table: TableMaker, cuda: FakeCuda, prefetch: int
) -> None:
    table = make_table(8)  # every item is overwritten all the time
    table.insert_batch(steps(range(8)))
    cuda.delay(0.002)
    stop = threading.Event()

    def write() -> None:
        n = 8
        while not stop.is_set():
            table.insert_batch(steps(range(n, n + 4)))
            n += 4

    thread = threading.Thread(target=write)
    thread.start()
    with staging(table, 16, prefetch=prefetch) as sampler:
        batches = [next(sampler) for _ in range(60)]
    stop.set()
    thread.join(WAIT_S)
    cuda.run()
    for batch in batches:
        numbers_of(batch)
        np.testing.assert_array_equal(batch.keys.numpy(), batch.keys_host)


# --- what is refused -------------------------------------------------------------------------------------------------


def test_where_no_memory_can_be_page_locked_batches_go_by_plain_copies_and_say_why(
    make_table: TableMaker, cuda: FakeCuda, caplog: pytest.LogCaptureFixture
) -> None:
    cuda.refuse("cuMemHostAlloc", OUT_OF_MEMORY)
    table = filled(make_table)
    plain = make_table.client.table(table.name, seed=1)
    # Options that sample alone has: it does not even ask for the segment to be page-locked.
    with TorchSampler(table, 8, device="cuda:0", replacement=True, seed=1) as sampler:
        for _ in range(3):
            np.testing.assert_array_equal(numbers_of(next(sampler)), plain.sample(8).data["n"])
        info = sampler.info()
    why = "the driver has no page-locked memory to give: cuMemHostAlloc failed with CUDA_ERROR_OUT_OF_MEMORY (2)"
    assert (info.transfer, info.why) == ("pageable", why)
    assert [record.message for record in caplog.records] == [
        f"table {table.name!r}: batches go to the GPU by plain copies: {why}"
    ]


def test_staging_that_was_asked_for_is_refused_without_memory_for_it(make_table: TableMaker, cuda: FakeCuda) -> None:
    table = make_table.queue(10)
    table.insert_batch(steps(range(2)))
    cuda.refuse("cuMemHostAlloc", OUT_OF_MEMORY, 1)
    with staging(table, 2) as sampler:
        with pytest.raises(CudaError, match="cuMemHostAlloc failed with CUDA_ERROR_OUT_OF_MEMORY") as caught:
            next(sampler)
        assert numbers_of(caught.value.batch).tolist() == [0, 1], "consumed items are in the error"  # type: ignore[attr-defined]
        table.insert_batch(steps(range(2, 4)))
        assert numbers_of(next(sampler)).tolist() == [2, 3]


def test_a_copy_that_the_driver_refuses_ends_that_batch_alone(make_table: TableMaker, cuda: FakeCuda) -> None:
    with staging(filled(make_table), 2, prefetch=0) as sampler:
        next(sampler)
        cuda.refuse("cuMemcpyHtoDAsync_v2", OUT_OF_MEMORY, 1)
        with pytest.raises(CudaError, match="cuMemcpyHtoDAsync failed"):
            next(sampler)
        numbers_of(next(sampler))


def test_a_machine_without_a_driver_copies_by_torch_and_says_why(make_table: TableMaker, cuda: FakeCuda) -> None:
    cuda.reset(is_there=False)
    with TorchSampler(filled(make_table), 2, device="cuda:0") as sampler:
        numbers_of(next(sampler))
        assert sampler.info().why.startswith("CUDA cannot be used here: the NVIDIA driver shows no GPU")
    with pytest.raises(CudaUnavailable, match="the NVIDIA driver shows no GPU"):
        staging(filled(make_table), 2)


def test_a_timeout_carries_what_was_drawn_which_nothing_writes_over(make_table: TableMaker) -> None:
    table = make_table.queue(10)
    table.insert_batch(steps(range(5)))
    with staging(table, 2, timeout_s=0.05) as sampler:
        for _ in range(2):
            next(sampler)
        with pytest.raises(sr.RateLimitTimeout, match="after 1 of 2 items") as caught:
            next(sampler)
        table.insert_batch(steps(range(5, 9)))
        for _ in range(2):
            next(sampler)
        assert numbers_of(caught.value.batch).tolist() == [4]


def test_a_dtype_that_torch_does_not_have_is_named_and_nothing_is_lost(make_table: TableMaker) -> None:
    narrow = ml_dtypes.float8_e3m4
    table = make_table.queue(10, signature={"a": sr.ArraySpec((), narrow), "b": sr.ArraySpec((), "int64")})
    table.insert({"a": np.array(0.5, narrow), "b": 7})
    text = f"table {table.name!r}: 'a': torch has no tensors of dtype float8_e3m4"
    with staging(table, 1) as sampler, pytest.raises(TypeError, match=text) as caught:
        next(sampler)
    assert caught.value.batch.data["b"].tolist() == [7]  # type: ignore[attr-defined]


# --- the end ---------------------------------------------------------------------------------------------------------


def test_a_forked_child_is_told_to_begin_by_spawn(make_table: TableMaker, fork: Fork) -> None:
    with staging(filled(make_table), 2) as sampler:
        next(sampler)

        def ask(pipe: Any) -> str:
            with pytest.raises(CudaUnavailable) as caught:
                next(sampler)
            sampler.close()
            return str(caught.value)

        assert "was forked from one that uses CUDA" in fork(ask).result()
        numbers_of(next(sampler))


def test_batches_outlive_their_sampler(make_table: TableMaker) -> None:
    with staging(filled(make_table), 8) as sampler:
        batches = [next(sampler) for _ in range(4)]
    for batch in batches:
        numbers_of(batch)
        assert all(len(getattr(batch, name)) == 8 for name in NUMBERS)


def test_one_that_is_garbage_leaves_neither_memory_nor_events(make_table: TableMaker, cuda: FakeCuda) -> None:
    sampler = staging(filled(make_table), 2)
    next(sampler)
    del sampler
    gc.collect()
    eventually(lambda: cuda.left == {})


def test_a_thousand_samplers_leave_nothing_behind(make_table: TableMaker, cuda: FakeCuda) -> None:
    table = filled(make_table, 3)
    for _ in range(1000):
        with staging(table, 2, prefetch=0) as sampler:
            next(sampler)
    assert cuda.left == {}

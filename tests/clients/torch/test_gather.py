"""Gathering: the GPU reads rows where they lie, under leases that outlive its reads, from a segment that is
page-locked."""

import gc
import logging
import threading
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch")

import shmreplay as sr  # noqa: E402
from shmreplay.clients.client import Client  # noqa: E402
from shmreplay.clients.cuda.errors import CudaError  # noqa: E402
from shmreplay.clients.samplers.view import View  # noqa: E402
from shmreplay.clients.tables.table import TableHandle  # noqa: E402
from shmreplay.clients.torch import TorchBatch, TorchSampler  # noqa: E402
from tests.clients.torch.host_tensors import HostTensors  # noqa: E402
from tests.clients.torch.test_batch import PREFETCH  # noqa: E402
from tests.support.fake_cuda import FakeCuda  # noqa: E402
from tests.support.tables import TableMaker, filled  # noqa: E402
from tests.support.waiting import WAIT_S, eventually  # noqa: E402

pytestmark = pytest.mark.usefixtures("cuda", "gpu")

NOT_SUPPORTED = 801
SIGNATURE = {
    "n": sr.ArraySpec((), "int64"),
    "image": sr.ArraySpec((12, 11), "uint8"),  # not of whole words
    "x": sr.ArraySpec((40,), "float32"),
    "flag": sr.ArraySpec((), "bool"),
}
NAMES = tuple(SIGNATURE)
WINDOW = sr.Window({"n": (-2, 3), "x": ("x", 1, 3), "image": 0, "flag": (0, 3)}, at_start="zeros", at_end="pad")


def rows(ns: Any) -> dict[str, NDArray[Any]]:
    """The steps of those numbers."""
    ns = np.asarray(ns, np.int64)
    image = (ns[..., None, None] * 7 + np.arange(132).reshape(12, 11)) % 251
    return {
        "n": ns,
        "image": image.astype(np.uint8),
        "x": (ns[..., None] * 3 + np.arange(40)).astype(np.float32),
        "flag": ns % 2 == 1,
    }


def full(make_table: TableMaker, count: int = 50, **options: Any) -> TableHandle:
    """A table of single steps."""
    options = {"sampler": sr.selectors.Prioritized(0.8), "signature": SIGNATURE, **options}
    table = make_table(count, **options)
    table.insert_batch(rows(np.arange(count)), np.arange(1.0, count + 1))
    return table


def windows(make_table: TableMaker, **options: Any) -> TableHandle:
    """A table of padded windows that go over chunks."""
    table = make_table(signature=SIGNATURE, item=WINDOW, chunk_steps=4, **options)
    with table.writer() as writer:
        for episode in range(3):
            for n in range(10):
                writer.append({name: array[()] for name, array in rows(100 * episode + n).items()})
            writer.end_episode({name: array[()] for name, array in rows(100 * episode + 10).items()})
    return table


def gathering(table: TableHandle, batch_size: int, **options: Any) -> TorchSampler:
    return TorchSampler(table, batch_size, device="cuda:0", transfer="gather", **options)


def check(batch: TorchBatch) -> list[int]:
    """The numbers of a batch of single steps, after a look at every byte."""
    found = {name: tensor.numpy() for name, tensor in batch.data.items()}
    for name, expected in rows(found["n"]).items():
        np.testing.assert_array_equal(found[name], expected, name)
        assert found[name].dtype == expected.dtype
    numbers: list[int] = found["n"].tolist()
    return numbers


def assert_alike(batch: TorchBatch, want: sr.Batch) -> None:
    """All but what sampling itself moves."""
    assert batch.data.keys() == want.data.keys()
    for name in want.data:
        for tree, other in ((batch.data, want.data), (batch.mask, want.mask), (batch.lengths, want.lengths)):
            np.testing.assert_array_equal(tree[name].numpy(), other[name], name)
            assert tree[name].numpy().dtype == other[name].dtype
    np.testing.assert_array_equal(batch.keys_host, want.keys)
    for name in ("keys", "priorities", "probabilities", "table_size", "episodes", "steps", "ages"):
        np.testing.assert_array_equal(getattr(batch, name).numpy(), getattr(want, name), name)
    for normalise in ("batch", "table", None):
        found = batch.weights(0.6, cast(Any, normalise))
        np.testing.assert_allclose(found.numpy(), want.weights(0.6, cast(Any, normalise)), rtol=1e-6)


# --- what comes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", PREFETCH)
def test_batches_are_those_that_sample_draws_with_the_seed_in_order(make_table: TableMaker, prefetch: int) -> None:
    table = full(make_table)
    plain = make_table.client.table(table.name, seed=11)
    with gathering(table, 8, prefetch=prefetch, seed=11) as sampler:
        for _ in range(20):
            batch = next(sampler)
            check(batch)
            assert_alike(batch, plain.sample(8))
        assert (sampler.info().transfer, sampler.info().batches) == ("gather", 20)


@pytest.mark.parametrize(
    "options",
    [{}, {"time_major": True}, {"pad_to": 7}, {"columns": ["image", "x"]}, {"pad_to": {"n": 6}, "columns": ["n", "x"]}],
    ids=str,
)
def test_windows_come_padded_and_masked_as_sample_has_them(make_table: TableMaker, options: Any) -> None:
    table = windows(make_table)
    plain = make_table.client.table(table.name, seed=2)
    with gathering(table, 16, seed=2, **options) as sampler:
        for _ in range(5):
            assert_alike(next(sampler), plain.sample(16, **options))
        assert sampler.info().gathered_bytes == 0


def test_the_processor_copies_none_of_the_rows(make_table: TableMaker, cuda: FakeCuda) -> None:
    with gathering(full(make_table), 8, prefetch=0) as sampler:
        for _ in range(10):
            next(sampler)
        info = sampler.info()
    assert info.read_bytes == 10 * 8 * (8 + 132 + 160 + 1)
    assert (info.gathered_bytes, info.sent_bytes) == (0, cuda.copied("pinned"))
    assert 0 < info.sent_bytes <= 10 * 256 * (1 + 4 + 8)
    assert (info.pin_state, info.pin_reason) == ("registered", "")
    assert info.why == "the data segment is page-locked, and the GPU reads rows directly from it"
    assert cuda.registered == [], "it was let go of"


def test_a_batch_of_more_items_than_a_lease_has_names_takes_several_views(
    make_table: TableMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = full(make_table)
    plain = make_table.client.table(table.name, seed=4)
    monkeypatch.setattr("shmreplay.clients.torch.gather.most_items", lambda table: 7)
    with gathering(table, 20, seed=4) as sampler:
        assert_alike(next(sampler), plain.sample(20))
    queue = make_table.queue(50, signature=SIGNATURE)
    queue.insert_batch(rows(np.arange(30)))
    text = "transfer is 'gather', but a view of consumed items has at most 7"
    with gathering(queue, 20) as sampler, pytest.raises(sr.ShmReplayError, match=text):
        next(sampler)
    assert queue.info().samples == 0


def test_items_longer_than_pad_to_are_refused_as_sample_does(make_table: TableMaker) -> None:
    table = windows(make_table)
    with (
        gathering(table, 4, pad_to=3) as sampler,
        pytest.raises(ValueError, match="pad_to is 3 for 'n', but the table's"),
    ):
        next(sampler)


# --- leases ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def pending_at_release(monkeypatch: pytest.MonkeyPatch, cuda: FakeCuda) -> list[int]:
    """How much work of the GPU was still to be done when views gave their rows back, view by view."""
    seen: list[int] = []
    release = View.release

    def look_and_release(view: View) -> None:
        if not view.is_released:
            seen.append(cuda.pending)
        release(view)

    monkeypatch.setattr(View, "release", look_and_release)
    return seen


@pytest.mark.parametrize("prefetch", PREFETCH)
def test_rows_stay_leased_until_the_gpu_has_read_them(
    make_table: TableMaker, cuda: FakeCuda, pending_at_release: list[int], prefetch: int
) -> None:
    table = full(make_table)
    with gathering(table, 8, prefetch=prefetch) as sampler:
        check(next(sampler))
        eventually(lambda: len(pending_at_release) == 1 + prefetch)
        cuda.delay(None)
        found: list[TorchBatch] = []
        thread = threading.Thread(target=lambda: found.extend(next(sampler) for _ in range(prefetch + 1)))
        thread.start()
        eventually(lambda: cuda.pending > 0)
        thread.join(0.05)
        assert thread.is_alive()
        assert len(pending_at_release) == 1 + prefetch, "given back before the GPU was done"
        cuda.run()
        cuda.delay(0)
        thread.join(WAIT_S)
        for batch in found:
            check(batch)
    assert set(pending_at_release) == {0}


def test_a_ctrl_c_gives_the_rows_back_and_the_segment_is_let_go_of_when_the_gpu_is_done(
    make_table: TableMaker, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = full(make_table)
    sampler = gathering(table, 8, prefetch=0)
    check(next(sampler))
    cuda.delay(None)
    with monkeypatch.context() as patched:

        def interrupt(*_: Any) -> bool:
            raise KeyboardInterrupt

        patched.setattr("shmreplay.clients.torch.room.PinnedRoom.wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            next(sampler)
    thread = threading.Thread(target=sampler.close)
    thread.start()
    thread.join(0.05)
    assert thread.is_alive(), "the GPU may still read there"
    assert cuda.registered
    cuda.run()
    thread.join(WAIT_S)
    assert cuda.registered == []


@pytest.mark.parametrize("prefetch", PREFETCH)
def test_no_batch_is_torn_while_actors_write(make_table: TableMaker, prefetch: int) -> None:
    table = full(make_table, 8, chunk_steps=1, sampler=sr.selectors.Uniform())  # every item is overwritten all the time
    stop = threading.Event()

    def write() -> None:
        n = 8
        while not stop.is_set():
            table.insert_batch(rows(np.arange(n, n + 4)))
            n += 4

    thread = threading.Thread(target=write)
    thread.start()
    try:
        with gathering(table, 16, prefetch=prefetch) as sampler:
            newest = [max(check(next(sampler))) for _ in range(100)]
            assert sampler.info().read_bytes > 0
    finally:
        stop.set()
        thread.join(WAIT_S)
    assert len(set(newest)) > 5, "nothing was written meanwhile"


# --- when it is not to be had ----------------------------------------------------------------------------------------


def test_a_segment_that_is_refused_leaves_staging_which_says_why(
    make_table: TableMaker, cuda: FakeCuda, caplog: pytest.LogCaptureFixture
) -> None:
    cuda.refuse("cuMemHostRegister_v2", NOT_SUPPORTED)
    table = full(make_table)
    with caplog.at_level(logging.INFO), TorchSampler(table, 8, device="cuda:0") as sampler:
        check(next(sampler))
        eventually(lambda: sampler.info().pin_state == "refused")
        for _ in range(3):
            check(next(sampler))
        info = sampler.info()
    assert (info.transfer, info.read_bytes) == ("staging", 0)
    assert info.why.startswith(
        "the data segment cannot be page-locked: cuMemHostRegister failed with CUDA_ERROR_NOT_SU"
    )
    assert info.pin_reason in info.why
    assert sum("batches go to" in record.message for record in caplog.records) == 1
    assert sum("cannot be page-locked" in record.message for record in caplog.records) >= 1
    with (
        gathering(table, 8) as sampler,
        pytest.raises(sr.ShmReplayError, match="transfer is 'gather', but the data segment"),
    ):
        next(sampler)


def test_where_no_memory_at_all_can_be_page_locked_batches_go_by_plain_copies(
    make_table: TableMaker, cuda: FakeCuda
) -> None:
    cuda.refuse("cuMemHostAlloc", 2)
    with TorchSampler(full(make_table), 8, device="cuda:0") as sampler:
        for _ in range(3):
            check(next(sampler))
        info = sampler.info()
    assert (info.transfer, info.pin_state) == ("pageable", "none")
    assert info.why.startswith("the driver has no page-locked memory to give: cuMemHostAlloc failed with")


def test_batches_are_staged_until_the_segment_is_page_locked_and_gathered_from_then_on(
    make_table: TableMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_there = threading.Event()
    populate = "shmreplay.clients.cuda.page_lock._populate"
    monkeypatch.setattr(populate, lambda *_: is_there.wait(WAIT_S))
    with TorchSampler(full(make_table), 8, device="cuda:0", prefetch=0) as sampler:
        check(next(sampler))
        assert sampler.info().transfer == "staging"
        assert sampler.info().why == "the data segment is not page-locked yet (0%)"
        assert sampler.info().read_bytes == 0
        is_there.set()
        eventually(lambda: sampler.info().pin_state == "registered")
        check(next(sampler))
        assert sampler.info().transfer == "gather"
        assert sampler.info().read_bytes > 0


def test_small_rows_are_left_to_the_processor_unless_it_is_asked_for(make_table: TableMaker) -> None:
    table = filled(make_table)
    with TorchSampler(table, 8, device="cuda:0", prefetch=0) as sampler:
        assert sampler.info().why == "no batch was drawn yet"
        next(sampler)
        info = sampler.info()
        assert (info.transfer, info.read_bytes, info.pin_state) == ("staging", 0, "none")
        assert info.why == "rows of less than 128 bytes are copied faster by the processor"
    with gathering(table, 8) as sampler:
        next(sampler)
        assert sampler.info().read_bytes > 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"stratified": True}, r"only sample\(\) has the options stratified; leave transfer out"),
        ({"replacement": False, "count": False}, r"only sample\(\) has the options count, replacement"),
    ],
)
def test_options_that_only_sample_has_are_refused_or_staged(
    make_table: TableMaker, cuda: FakeCuda, options: Any, text: str
) -> None:
    table = full(make_table)
    with pytest.raises(ValueError, match=f"table {table.name!r}: transfer is 'gather', but {text}"):
        gathering(table, 8, **options)
    with TorchSampler(table, 8, device="cuda:0", **options) as sampler:
        check(next(sampler))
        assert sampler.info().transfer == "staging"
        assert sampler.info().why in text.replace("\\", "")
        assert sampler.info().pin_state == "none"
    assert cuda.calls("cuMemHostRegister_v2") == 0


def test_columns_that_do_not_lie_plain_are_staged_with_all_others(make_table: TableMaker) -> None:
    signature = {**SIGNATURE, "state": sr.ArraySpec((64,), "float32", mutable=True)}
    table = make_table(signature=signature)
    table.insert_batch({**rows(np.arange(5)), "state": np.ones((5, 64), np.float32)})
    with TorchSampler(table, 8, device="cuda:0", prefetch=0) as sampler:
        for _ in range(2):
            check_all = next(sampler).data
            assert (check_all.pop("state") == 1).all()
        assert sampler.info().why == "'state' cannot be read directly, row by row"
    with (
        gathering(table, 8) as sampler,
        pytest.raises(sr.ShmReplayError, match="transfer is 'gather', but 'state' cannot be read directly"),
    ):
        next(sampler)
    with gathering(table, 8, columns=NAMES) as sampler:
        check(next(sampler))


@pytest.mark.parametrize(("dtype", "transfer"), [(ml_dtypes.bfloat16, "gather"), (ml_dtypes.float8_e5m2, "staging")])
def test_dtypes_that_numpy_lacks_are_gathered_if_dlpack_has_them(
    make_table: TableMaker, dtype: Any, transfer: str
) -> None:
    table = make_table(signature=sr.ArraySpec((200,), dtype))
    table.insert(np.arange(200).astype(dtype))
    with TorchSampler(table, 2, device="cuda:0", prefetch=0) as sampler:
        next(sampler)
        eventually(lambda: sampler.info().pin_state in ("registered", "none"))
        data = next(sampler).data
        assert torch.equal(data[1].float(), torch.from_numpy(np.arange(200).astype(dtype).astype(np.float32)))
        assert sampler.info().transfer == transfer


def test_a_table_with_shards_is_staged(make_table: TableMaker, server: sr.Server) -> None:
    with server.client() as client:
        client.create_tables([sr.Table("sharded", SIGNATURE, 100, shards=2, max_streams=8, max_sessions=8)])
        table: Any = client.table("sharded")
        table.insert_batch(rows(np.arange(10)))
        with TorchSampler(table, 8, device="cuda:0") as sampler:
            check(next(sampler))
            assert sampler.info().why == "its items lie in several arenas"
        with pytest.raises(ValueError, match="transfer is 'gather', but its items lie in several arenas"):
            gathering(table, 8)
        client.drop_table("sharded")


# --- waits, and the end ----------------------------------------------------------------------------------------------


def test_a_batch_that_has_to_wait_for_the_limiter_waits_without_a_lease(make_table: TableMaker) -> None:
    table = make_table.queue(20, signature=SIGNATURE)
    table.insert_batch(rows(np.arange(6)))
    with gathering(table, 4, timeout_s=WAIT_S) as sampler:
        assert check(next(sampler)) == [0, 1, 2, 3]
        assert sampler.info().read_bytes > 0
        found: list[TorchBatch] = []
        thread = threading.Thread(target=lambda: found.append(next(sampler)))
        thread.start()
        eventually(lambda: table.info().blocked_samples == 1)
        table.insert_batch(rows(np.arange(6, 10)))
        thread.join(WAIT_S)
        assert check(found[0]) == [4, 5, 6, 7]
        assert sampler.info().gathered_bytes > 0, "it was staged"


@pytest.fixture
def no_foresight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables say that they admit every sample: as if others took the items between the question and the draw."""
    monkeypatch.setattr(TableHandle, "can_sample", lambda table, n=1: True)


@pytest.mark.usefixtures("no_foresight")
def test_items_that_were_drawn_before_a_wait_come_with_the_others(make_table: TableMaker) -> None:
    table = make_table.queue(20, signature=SIGNATURE)
    table.insert_batch(rows(np.arange(2)))
    with gathering(table, 4, timeout_s=WAIT_S) as sampler:
        found: list[TorchBatch] = []
        thread = threading.Thread(target=lambda: found.append(next(sampler)))
        thread.start()
        eventually(lambda: table.info().blocked_samples == 1)
        table.insert_batch(rows(np.arange(2, 5)))
        thread.join(WAIT_S)
        assert check(found[0]) == [0, 1, 2, 3]


@pytest.mark.usefixtures("no_foresight")
def test_a_timeout_carries_what_was_consumed(make_table: TableMaker) -> None:
    table = make_table.queue(20, signature=SIGNATURE)
    table.insert_batch(rows(np.arange(2)))
    with gathering(table, 4, timeout_s=0.05) as sampler:
        with pytest.raises(sr.RateLimitTimeout, match="after 2 of 4 items") as caught:
            next(sampler)
        assert check(caught.value.batch) == [0, 1]


def test_a_failure_of_the_gpu_carries_what_was_consumed_and_ends_that_batch_alone(
    make_table: TableMaker, cuda: FakeCuda
) -> None:
    table = make_table.queue(20, signature=SIGNATURE)
    table.insert_batch(rows(np.arange(8)))
    with gathering(table, 4) as sampler:
        cuda.refuse("cuMemcpyHtoDAsync_v2", 2, 1)
        with pytest.raises(sr.ShmReplayError, match="cuMemcpyHtoDAsync failed") as caught:
            next(sampler)
        assert check(caught.value.batch) == [0, 1, 2, 3]  # type: ignore[attr-defined]
        assert check(next(sampler)) == [4, 5, 6, 7]


def test_copies_that_are_refused_keep_no_memory(make_table: TableMaker, cuda: FakeCuda) -> None:
    with gathering(full(make_table), 4, prefetch=0) as sampler:
        check(next(sampler))
        cuda.refuse("cuMemcpyHtoDAsync_v2", 2)
        for _ in range(5):
            with pytest.raises(CudaError):
                next(sampler)
        gc.collect()
        assert cuda.left.get("pinned", 0) <= 1


def test_samplers_of_a_table_share_its_page_lock(make_table: TableMaker, cuda: FakeCuda) -> None:
    table = full(make_table)
    with gathering(table, 8) as one:
        check(next(one))
        calls = cuda.calls("cuMemHostRegister_v2")
        with gathering(table, 8) as two:
            check(next(two))
        check(next(one))
        assert cuda.calls("cuMemHostRegister_v2") == calls
    assert cuda.registered == []


def test_the_segment_is_let_go_of_before_the_client_unmaps_it(
    make_table: TableMaker, server: sr.Server, cuda: FakeCuda
) -> None:
    name = full(make_table).name
    client: Client
    with server.client() as client:
        sampler = gathering(client.table(name), 8)
        check(next(sampler))
        assert cuda.registered
    assert cuda.registered == []
    assert sampler.is_closed


def test_close_waits_for_a_thread_that_gives_the_gpu_work(
    make_table: TableMaker, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = gathering(full(make_table), 8, prefetch=0)
    check(next(sampler))
    thread = threading.Thread(target=sampler.close)
    tell = HostTensors.on_side_stream

    def close_and_tell(tensors: HostTensors) -> Any:
        thread.start()
        thread.join(0.1)
        assert cuda.registered, "let go of while the GPU is being told to read there"
        return tell(tensors)

    with monkeypatch.context() as patched:
        patched.setattr(HostTensors, "on_side_stream", close_and_tell)
        check(next(sampler))
    thread.join(WAIT_S)
    assert cuda.registered == []
    with pytest.raises(sr.ShmReplayError, match="sampler is closed"):
        next(sampler)


@pytest.mark.parametrize("prefetch", PREFETCH)
def test_a_gpu_that_fails_keeps_nobody_from_closing(make_table: TableMaker, cuda: FakeCuda, prefetch: int) -> None:
    """As after an illegal access in somebody's kernel: every call of the driver answers with that error."""
    sampler = gathering(full(make_table), 8, prefetch=prefetch)
    check(next(sampler))
    for call in ("cuEventRecord", "cuEventQuery", "cuMemcpyHtoDAsync_v2", "cuDevicePrimaryCtxRelease_v2"):
        cuda.refuse(call, 700)
    with pytest.raises(CudaError):
        list(sampler)
    sampler.close()
    assert cuda.registered == []
    del sampler
    gc.collect()
    cuda.reset()  # what such a GPU keeps goes with the process


def test_many_samplers_leave_nothing_behind(make_table: TableMaker, cuda: FakeCuda) -> None:
    table = full(make_table, 3)
    for _ in range(100):
        with gathering(table, 2, prefetch=0) as sampler:
            next(sampler)
    assert cuda.left == {}


def test_single_steps_beside_partial_ones_have_no_row_where_a_step_lacks_the_column(make_table: TableMaker) -> None:
    """A final step that lacks columns: its place is 0 and masked."""
    table = make_table(signature=SIGNATURE, item_steps=3)
    with table.writer(history=3) as writer:
        for n in range(3):
            writer.append({name: array[()] for name, array in rows(n).items()})
        writer.append({"n": 3}, partial=True)
        writer.create_item(length=3)
        writer.end_episode()
    plain = make_table.client.table(table.name, seed=1)
    with gathering(table, 2, seed=1) as sampler:
        assert_alike(next(sampler), plain.sample(2))

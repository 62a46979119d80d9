"""Samplers of tensors: their options, priorities that come back, waits, ends, forks."""

import gc
import logging
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

import shmreplay as sr  # noqa: E402
from shmreplay.clients.cuda.errors import CudaUnavailable  # noqa: E402
from shmreplay.clients.torch import TorchBatch, TorchSampler  # noqa: E402
from tests.clients.torch.tensors import numbers_of  # noqa: E402
from tests.clients.torch.test_batch import PREFETCH  # noqa: E402
from tests.support.children import Fork  # noqa: E402
from tests.support.tables import TableMaker, filled, step, steps  # noqa: E402

# --- priorities ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.bool]
)
@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_priorities_may_be_tensors_of_any_real_dtype(make_table: TableMaker, dtype: Any, shape: Any) -> None:
    table = filled(make_table, 10)
    keys = table.keys()[:4]
    wanted = torch.tensor([1.0, 0.0, 3.0, 0.5]).to(dtype)
    with TorchSampler(table, 4) as sampler:
        assert sampler.update_priorities(torch.from_numpy(keys), wanted.reshape(shape)) == 4
        assert table.get(keys).priorities.tolist() == wanted.double().tolist()


def test_priorities_of_a_graph_are_taken_without_it(make_table: TableMaker) -> None:
    table = filled(make_table, 10)
    error = torch.full((2,), 3.0, requires_grad=True) * 2
    with TorchSampler(table, 4) as sampler:
        assert sampler.update_priorities(table.keys()[:2], error) == 2
    assert table.get(table.keys()[:2]).priorities.tolist() == [6, 6]


class Remote(Tensor):
    """Says that it is a GPU's, and counts how often its learner waits for a copy."""

    waits = 0

    @property
    def device(self) -> Any:  # type: ignore[override]  # a fact, here
        return torch.device("cuda", 0)

    def cpu(self, *_: Any, **__: Any) -> Any:
        Remote.waits += 1
        return self.as_subclass(Tensor)

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy")


@pytest.mark.parametrize("num_remote", [1, 2])
def test_a_learner_waits_once_for_priorities_of_a_gpu_and_their_keys(make_table: TableMaker, num_remote: int) -> None:
    table = filled(make_table, 10)
    keys: Any = torch.from_numpy(table.keys()[:3])
    wanted = torch.tensor([0.1, 2.0, 3e10], requires_grad=True)
    Remote.waits = 0
    with TorchSampler(table, 4) as sampler:
        given = keys.as_subclass(Remote) if num_remote == 2 else keys.numpy()
        assert sampler.update_priorities(given, wanted.as_subclass(Remote)) == 3
    assert table.get(keys.numpy()).priorities.tolist() == wanted.double().tolist()
    assert Remote.waits == 1


@pytest.mark.parametrize(
    ("keys", "priorities", "error", "text"),
    [
        (torch.tensor([1, 2], dtype=torch.int32), torch.ones(2), TypeError, "keys have dtype int32; expected int64"),
        (torch.tensor([1, 2]), torch.ones(3), ValueError, "which is 3 for 2 keys"),
        (torch.tensor([1]), torch.tensor([float("nan")]), ValueError, r"priorities\[0\] is nan"),
        (torch.tensor([1]), torch.tensor([1j]), TypeError, "priorities have dtype complex64; expected real numbers"),
        (np.array([1]), "high", TypeError, "priorities have dtype <U4; expected real numbers"),
    ],
)
def test_wrong_priorities_are_refused_as_the_table_does(
    make_table: TableMaker, keys: Any, priorities: Any, error: type[Exception], text: str
) -> None:
    with TorchSampler(filled(make_table, 3), 2) as sampler, pytest.raises(error, match=text):
        sampler.update_priorities(keys, priorities)


def test_steps_may_be_tensors_of_the_cpu_and_others_are_refused_with_their_device(make_table: TableMaker) -> None:
    table = make_table()
    table.insert({**step(3), "x": torch.tensor(step(3)["x"])})
    with TorchSampler(table, 1) as sampler:
        assert numbers_of(next(sampler)).tolist() == [3]
    with pytest.raises(sr.SignatureMismatch, match=r"column 'x': .* on device 'meta'; copy it to host memory first"):
        table.insert({**step(3), "x": torch.empty(5, device="meta")})


# --- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"prefetch": -1}, ValueError, "prefetch is -1; expected at least 0"),
        ({"batch_size": 0}, ValueError, "batch_size is 0; expected 1 to"),
        ({"colums": ["n"]}, TypeError, "got an unexpected keyword argument 'colums'; expected options of sample"),
        ({"out": None}, ValueError, "a sampler uses its own arrays, so it takes no out="),
        (
            {"transfer": "quick"},
            ValueError,
            "transfer is 'quick'; expected one of 'auto', 'gather', 'staging', 'pageable'",
        ),
        ({"transfer": "staging"}, ValueError, "transfer is 'staging', but device is 'cpu'; only an NVIDIA GPU"),
        ({"transfer": "gather"}, ValueError, "transfer is 'gather', but device is 'cpu'; only an NVIDIA GPU"),
        (
            {"rank": 2, "world_size": 2},
            ValueError,
            "rank is 2 and world_size is 2; expected a rank below world_size",
        ),
        ({"world_size": 0}, ValueError, "world_size is 0; expected an integer in 1"),
        (
            {"disjoint": True, "replacement": True},
            ValueError,
            r"disjoint=True says replacement=False and part=\(0, 1\)",
        ),
    ],
)
def test_wrong_options_are_refused_at_once(
    make_table: TableMaker, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    table = filled(make_table, 3)
    with pytest.raises(error, match=f"table {table.name!r}: .*{text}"):
        TorchSampler(table, **{"batch_size": 2, **options})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused_at_once(make_table: TableMaker) -> None:
    with pytest.raises(CudaUnavailable, match=r"torch .* sees no GPU; see torch\.cuda\.is_available"):
        TorchSampler(filled(make_table, 3), 2, device="cuda:0")


def test_a_device_of_another_kind_gets_copies_by_torch(make_table: TableMaker) -> None:
    with TorchSampler(filled(make_table, 3), 2, device="meta") as sampler:  # has shapes, and no memory
        assert next(sampler).data["x"].device == torch.device("meta")
        info = sampler.info()
    assert (info.transfer, info.why) == ("pageable", "device 'meta' is not an NVIDIA GPU")
    assert info.sent_bytes == info.gathered_bytes == 2 * (8 + 20 + 6 + 8 + 1)


def test_info_and_the_log_say_which_way_and_why(make_table: TableMaker, caplog: pytest.LogCaptureFixture) -> None:
    table = filled(make_table)
    with caplog.at_level(logging.INFO, "shmreplay"), TorchSampler(table, 8) as sampler:
        for _ in range(3):
            next(sampler)
        info = sampler.info()
    assert [record.message for record in caplog.records] == [
        f"table {table.name!r}: batches stay on the CPU: the learner is on the CPU"
    ]
    assert (info.device, info.transfer, info.batches, info.pin_state) == ("cpu", "none", 3, "none")
    assert (info.gathered_bytes, info.sent_bytes, info.read_bytes) == (3 * 8 * (8 + 20 + 6 + 8 + 1), 0, 0)


def test_ranks_of_one_seed_draw_otherwise_and_repeatably(make_table: TableMaker) -> None:
    table = filled(make_table)

    def drawn(rank: int) -> list[list[int]]:
        with TorchSampler(table, 8, rank=rank, world_size=3, seed=5, count=False) as sampler:
            return [numbers_of(next(sampler)).tolist() for _ in range(5)]

    first = [drawn(rank) for rank in range(3)]
    assert first[0] != first[1] != first[2] != first[0]
    assert [drawn(rank) for rank in range(3)] == first


def test_one_of_several_learners_says_which_it_is(make_table: TableMaker) -> None:
    table = filled(make_table)
    with pytest.raises(ValueError, match="world_size is 3 and rank is missing; give each learner its own, 0 to 2"):
        TorchSampler(table, 8, world_size=3, seed=5)
    with pytest.raises(ValueError, match="rank is 1 and world_size is 1; expected a rank below world_size"):
        TorchSampler(table, 8, rank=1)


def test_disjoint_ranks_have_no_item_in_common(make_table: TableMaker) -> None:
    table = filled(make_table)
    with (
        TorchSampler(table, 12, rank=0, world_size=2, disjoint=True, seed=1) as one,
        TorchSampler(table, 12, rank=1, world_size=2, disjoint=True, seed=1) as two,
    ):
        for _ in range(5):
            first, second = (set(numbers_of(next(sampler)).tolist()) for sampler in (one, two))
            assert len(first) == len(second) == 12
            assert first.isdisjoint(second)


# --- waiting, and the end --------------------------------------------------------------------------------------------


def test_items_that_are_consumed_are_not_drawn_ahead_and_a_timeout_carries_what_was_drawn(
    make_table: TableMaker,
) -> None:
    table = make_table.queue(10)
    table.insert_batch(steps(range(3)))
    with TorchSampler(table, 2, timeout_s=0.05) as sampler:
        assert sampler.prefetch == 0
        assert numbers_of(next(sampler)).tolist() == [0, 1]
        with pytest.raises(sr.RateLimitTimeout, match="after 1 of 2 items") as caught:
            next(sampler)
        assert isinstance(caught.value.batch, TorchBatch)
        assert numbers_of(caught.value.batch).tolist() == [2]
        table.insert_batch(steps(range(3, 5)))
        assert numbers_of(next(sampler)).tolist() == [3, 4]
    with pytest.raises(ValueError, match="what was sampled ahead would be lost"):
        TorchSampler(table, 2, prefetch=2)


@pytest.mark.parametrize("prefetch", PREFETCH)
def test_it_ends_with_its_client_and_says_so(make_table: TableMaker, server: sr.Server, prefetch: int) -> None:
    table = filled(make_table, 3)
    with server.client() as client:
        sampler = TorchSampler(client.table(table.name), 2, prefetch=prefetch)
        batch = next(sampler)
        before = numbers_of(batch).copy()
    with pytest.raises(sr.ShmReplayError, match="its client is closed"):
        next(sampler)
    np.testing.assert_array_equal(numbers_of(batch), before)
    assert repr(sampler) == f"<shmreplay torch sampler of table {table.name!r} closed>"


def test_one_that_is_garbage_leaves_no_thread(make_table: TableMaker) -> None:
    sampler = TorchSampler(filled(make_table, 3), 2)
    next(sampler)
    del sampler
    gc.collect()  # the fixture looks for the thread


@pytest.mark.parametrize("prefetch", PREFETCH)
def test_a_forked_child_goes_on_with_arrays_and_draws_of_its_own(
    make_table: TableMaker, fork: Fork, prefetch: int
) -> None:
    with TorchSampler(filled(make_table), 8, prefetch=prefetch, seed=4) as sampler:
        batch = next(sampler)
        before = numbers_of(batch).copy()
        mine = fork(lambda pipe: [numbers_of(next(sampler)).tolist() for _ in range(5)]).result()
        assert mine != [numbers_of(next(sampler)).tolist() for _ in range(5)]
        np.testing.assert_array_equal(numbers_of(batch), before)

"""TorchReplayBuffer: a learner that was written for TorchRL's replay buffers."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import shmreplay as sr  # noqa: E402
from shmreplay.clients.torch import TorchReplayBuffer  # noqa: E402
from tests.clients.torch.tensors import tree_map  # noqa: E402
from tests.support.tables import TableMaker, step, steps  # noqa: E402


def prioritised(make_table: TableMaker) -> Any:
    return make_table(100, sampler=sr.selectors.Prioritized(1.0))


def tensors(ns: Any) -> Any:
    return tree_map(torch.as_tensor, steps(ns))


def test_what_is_extended_is_sampled_and_its_priorities_come_back(make_table: TableMaker) -> None:
    table = prioritised(make_table)
    with TorchReplayBuffer(table, batch_size=16) as buffer:
        keys = buffer.extend(tensors(range(10)))
        assert keys.tolist() == table.keys().tolist()
        assert len(buffer) == 10
        batch = buffer.sample()
        assert batch.keys() == {"n", "x", "image", "pair", "index", "priority_weight"}
        assert batch["x"].shape == (16, 5)
        assert torch.equal(batch["priority_weight"], torch.ones(16))
        assert buffer.update_priority(keys[:9], torch.zeros(9)) == 9
        assert buffer.sample(4)["n"].tolist() == [9] * 4, "the next sample goes by the new priorities"
        assert buffer.sample()["index"].tolist() == [int(keys[9])] * 16


def test_weights_are_those_of_beta(make_table: TableMaker) -> None:
    table = prioritised(make_table)
    table.insert_batch(steps(range(4)), np.array([1.0, 2.0, 4.0, 8.0]))
    with TorchReplayBuffer(table, 64, beta=1.0) as buffer:
        batch = buffer.sample()
        expected = 1 / 2.0 ** batch["n"].double()
        torch.testing.assert_close(batch["priority_weight"].double(), expected / expected.max())
        buffer.beta = 0.0
        assert torch.equal(buffer.sample()["priority_weight"], torch.ones(64))


def test_single_steps_and_given_priorities_go_in(make_table: TableMaker) -> None:
    table = prioritised(make_table)
    buffer = TorchReplayBuffer(table)
    key = buffer.add(step(7), priority=3.0)
    assert table.get(np.array([key])).priorities.tolist() == [3]
    assert buffer.add({**step(8), "x": torch.as_tensor(step(8)["x"])}) > 0
    keys = buffer.extend(tensors(range(2)), priorities=torch.tensor([0.5, 0.25]))
    assert table.get(keys.numpy()).priorities.tolist() == [0.5, 0.25]


def test_batch_sizes_have_samplers_of_their_own_and_few_are_kept(make_table: TableMaker) -> None:
    table = prioritised(make_table)
    with TorchReplayBuffer(table) as buffer:
        buffer.extend(tensors(range(4)))
        for n in range(1, 20):
            assert len(buffer.sample(n)["index"]) == n
        assert len(buffer._samplers) <= 8
    assert len(buffer._samplers) == 0


def test_what_it_can_not_do_is_said(make_table: TableMaker) -> None:
    with pytest.raises(ValueError, match=r"sample\(\) needs a batch_size, from the call or the buffer"):
        TorchReplayBuffer(prioritised(make_table)).sample()
    plain = make_table(signature=sr.ArraySpec((2,), "float32"))
    plain.insert(np.zeros(2, np.float32))
    with pytest.raises(sr.SignatureMismatch, match="the items are a Tensor; use TorchSampler"):
        TorchReplayBuffer(plain, 2).sample()
    taken = make_table(signature={"index": sr.ArraySpec((), "int64")})
    taken.insert({"index": 1})
    with pytest.raises(sr.SignatureMismatch, match="the items are a dict of 'index'; use TorchSampler"):
        TorchReplayBuffer(taken, 2).sample()
    with pytest.raises(TypeError, match="beta is 'high'; expected a number"):
        TorchReplayBuffer(plain, beta="high")  # type: ignore[arg-type]  # that is what is tested

"""n-step targets of tensors: those of the same batch's arrays, in the tensors' place and dtype."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import shmreplay as sr  # noqa: E402
from shmreplay.clients.tables.table import TableHandle  # noqa: E402
from shmreplay.clients.torch import TorchBatch, n_step_targets  # noqa: E402
from tests.support.tables import TableMaker  # noqa: E402


def filled(make_table: TableMaker) -> TableHandle:
    """Ten steps that terminate, and ten that are cut off, as items of up to three."""
    signature = {
        "observation": sr.ArraySpec((), "float32"),
        "reward": sr.ArraySpec((), "float32"),
        "terminated": sr.ArraySpec((), "bool"),
        "truncated": sr.ArraySpec((), "bool"),
    }
    table = make_table(signature=signature, item=sr.NStep(3))
    with table.writer() as writer:
        for terminates in (True, False):
            for t in range(10):
                last = t == 9
                ends = {"terminated": last and terminates, "truncated": last and not terminates}
                writer.append({"observation": float(t), "reward": 1.0 + t, **ends})
            writer.end_episode({"observation": 10.0})
    return table


@pytest.mark.parametrize("time_major", [False, True])
def test_they_are_those_of_the_arrays(make_table: TableMaker, time_major: bool) -> None:
    batch = filled(make_table).sample(20, replacement=False, time_major=time_major)  # all of them
    want, found = sr.n_step_targets(batch, 0.9), n_step_targets(TorchBatch.of(batch), 0.9)
    for name in ("returns", "discounts"):
        assert getattr(found, name).dtype == torch.float32
        np.testing.assert_allclose(getattr(found, name).numpy(), getattr(want, name), rtol=1e-6)
    assert torch.equal(found.num_steps, torch.from_numpy(want.num_steps))
    assert set(want.num_steps) == {1, 2, 3}
    assert 0 in want.discounts


def test_a_column_that_is_not_there_is_named(make_table: TableMaker) -> None:
    batch = TorchBatch.of(filled(make_table).sample(4))
    with pytest.raises(ValueError, match="the batch has no 'return'; it has 'observation'"):
        n_step_targets(batch, 0.9, reward="return")

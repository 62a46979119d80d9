"""Group G: recurrent states and overlapping sequences, as public bug reports found them wrong.

Covered elsewhere: G3, sequences of 80 + 40 steps that overlap (michaelnny/deep_rl_zoo#4):
`test_sequences_of_80_steps_every_40_store_every_step_once`.
"""

import numpy as np
import pytest

import shmreplay as sr
from tests.support.tables import TableMaker, check, live

SIGNATURE = {"observation": sr.ArraySpec((), "int64"), "state": sr.ArraySpec((3,), "float32")}


def state(t: int) -> np.ndarray:
    """The state before step t."""
    return np.array([t, -t, t / 2], np.float32)


@pytest.mark.parametrize("burn_in", [0, 5])
def test_a_sequence_that_begins_at_step_t_has_the_state_before_step_t(make_table: TableMaker, burn_in: int) -> None:
    """G1: the state stored with a step was the one after it, so that unrolling began one step in the future."""
    table = make_table(1000, signature=SIGNATURE, item=sr.Sequence(8, period=4, burn_in=burn_in), chunk_steps=3)
    with table.writer() as writer:
        for t in range(50):
            writer.append({"observation": t, "state": state(t)})
        writer.end_episode()
    batch = live(table)
    steps, real = batch.data["observation"], batch.mask["observation"]
    assert real[:, burn_in].all()
    assert steps[:, burn_in].tolist() == list(range(0, 50, 4))
    np.testing.assert_array_equal(batch.data["state"][real], np.array([state(t) for t in steps[real]]))
    np.testing.assert_array_equal(batch.mask["state"], real)
    # The first real step is the one that `batch.steps` counts, and the state to begin with is its own.
    first = real.argmax(axis=1)
    assert steps[np.arange(len(steps)), first].tolist() == batch.steps.tolist()


def test_sequences_that_begin_at_multiples_of_twenty_show_one_state_each(make_table: TableMaker) -> None:
    """G4, the `rnn_state_interval` of astooke/rlpyt: only the state that a sequence begins with is wanted of it."""
    window = sr.Window({"state": 0}, at_end="pad", period=20, rest=(0, 40))
    table = make_table(1000, signature=SIGNATURE, item=window, chunk_steps=16)
    with table.writer() as writer:
        for length in (70, 20, 5):
            for t in range(length):
                writer.append({"observation": t, "state": state(t)})
            writer.end_episode()
    batch = live(table)
    assert batch.steps.tolist() == batch.data["observation"][:, 0].tolist() == [0, 20, 40, 60, 0, 0]
    assert batch.data["state"].shape == (6, 3)
    assert batch.data["state"].tolist() == [state(t).tolist() for t in (0, 20, 40, 60, 0, 0)]
    assert batch.lengths["observation"].tolist() == [40, 40, 30, 10, 20, 5]
    assert check(table) == []

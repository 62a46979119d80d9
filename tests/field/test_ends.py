"""Group F: terminated, truncated and nothing of both, as public bug reports found them taken for each other.

Covered elsewhere, too: F1, a time limit is no end of the task (Stable-Baselines3#284, #829):
`test_targets_are_those_of_a_plain_loop`, `test_a_terminated_one_may_lack_it_and_its_next_observation_is_masked`.
"""

import numpy as np

import shmreplay as sr
from tests.support.tables import TableMaker, live


def test_only_what_terminated_has_no_discount(make_table: TableMaker) -> None:
    """F1, Stable-Baselines3#284: episodes that a time limit cut off were taken for terminated."""
    signature = {
        "observation": sr.ArraySpec((), "int64"),
        "reward": sr.ArraySpec((), "float32"),
        "terminated": sr.ArraySpec((), "bool"),
        "truncated": sr.ArraySpec((), "bool"),
    }
    table = make_table(100, signature=signature, item=sr.NStep(3))
    flags = [(False, False), (True, False), (False, True), (True, True)]
    with table.writer() as writer:
        for episode, (terminated, truncated) in enumerate(flags):
            for k in range(3):
                is_last = k == 2
                writer.append(
                    {
                        "observation": 10 * episode + k,
                        "reward": 1.0,
                        "terminated": terminated and is_last,
                        "truncated": truncated and is_last,
                    }
                )
            writer.end_episode({"observation": 10 * episode + 3})
    batch = live(table)
    targets = sr.n_step_targets(batch, 0.5)
    assert batch.data["next_observation"].tolist() == [10 * episode + 3 for episode in range(4) for _ in range(3)]
    assert targets.returns.tolist() == [1.75, 1.5, 1.0] * 4
    goes_on = [0.125, 0.25, 0.5]
    assert targets.discounts.tolist() == [*goes_on, 0, 0, 0, *goes_on, 0, 0, 0]
    assert targets.num_steps.tolist() == [3, 2, 1] * 4


def test_a_signature_needs_no_flag_of_an_end(make_table: TableMaker) -> None:
    """F5, ymd-h/cpprb#61: a buffer asked for `done` where it meant nothing."""
    signature = {"observation": sr.ArraySpec((), "int64"), "reward": sr.ArraySpec((), "float32")}
    single = make_table(100, signature=signature)
    single.insert_batch({"observation": np.arange(10), "reward": np.ones(10, np.float32)})
    assert single.sample(20).data["reward"].tolist() == [1.0] * 20
    # Windows take the writer's word for where episodes end; without a flag no episode terminated.
    for rule in (sr.NStep(2), sr.Sequence(2), sr.Unroll(2), sr.Transition()):
        table = make_table(100, signature=signature, item=rule)
        with table.writer() as writer:
            for k in range(4):
                writer.append({"observation": k, "reward": 1.0})
            writer.end_episode({"observation": 4})
        assert len(table) == (2 if rule == sr.Unroll(2) else 4)
        assert "terminated" not in live(table).data
        if "next_observation" in live(table).data:
            discounts = sr.n_step_targets(live(table), 0.5).discounts
            assert (discounts > 0).all()

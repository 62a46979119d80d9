"""Group C: what sums of priorities become in the long run and at their limits, as public bug reports found it wrong.

Covered elsewhere: C8, a NaN poisons every draw (MorvanZhou/Reinforcement-learning-with-tensorflow#54,
werner-duvaud/muzero-general#111, rlcode/per#4): `test_priorities_that_are_none_change_nothing` names the index of nan,
inf, -inf and -1e-9; there is no policy that takes them. C10, all priorities are zero:
`test_items_of_priority_zero_come_only_when_all_are_zero`, `test_all_zero_is_uniform`. C12, by which maximum weights are
divided (google-research/seed_rl#3, chainer/chainerrl#570, openai/baselines#1131):
`test_weights_follow_the_closed_form`, on four rows for each of the three. C13, an exponent of 0 (openai/baselines#345):
`test_prioritised_draws_follow_the_priorities`, `test_weights_of_uniform_draws_are_one`; and a beta of 0:
`test_weights_follow_the_closed_form`. C17, a ratio beyond what floats resolve:
`test_a_huge_ratio_of_priorities_hides_the_rest_only_while_it_is_there`.
"""

import math
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from tests.support.tables import TableMaker

SIGNATURE = {"n": sr.ArraySpec((), "int64")}
PROPORTIONAL = sr.selectors.Prioritized(1.0)


@pytest.mark.long
def test_ten_million_updates_leave_the_sum_of_ten_leaves(
    make_table: TableMaker, rng: np.random.Generator, seed: int
) -> None:
    """C1: a tree of float32 differences drifts; then it draws what has no priority."""
    size = 2**20
    table = make_table(size, signature=SIGNATURE, sampler=PROPORTIONAL, seed=seed)
    keys = table.insert_batch({"n": np.arange(size)}, np.ones(size))
    for _ in range(10):
        table.update_priorities(keys[rng.permutation(size)], 10 ** rng.uniform(-6, 6, size))
    last = np.zeros(size)
    chosen = rng.choice(size, 10, replace=False)
    last[chosen] = 10 ** rng.uniform(-6, 6, 10)
    assert table.update_priorities(keys, last) == size
    assert table.info().sum_priority == pytest.approx(math.fsum(last), rel=1e-12)
    for _ in range(100):
        drawn = table.sample(10_000, columns=["n"]).data["n"]
        assert np.isin(drawn, chosen).all()


def test_nothing_after_the_live_items_is_drawn(make_table: TableMaker, rng: np.random.Generator) -> None:
    """C2, pytorch/rl#2230: in a large table of few items an index was drawn that was never written.

    sum_tree_test.cc gives the tree the largest number below one.
    """
    table = make_table(1_000_000, signature=SIGNATURE, sampler=sr.selectors.Prioritized(0.7))
    keys = table.insert_batch({"n": np.arange(100)})
    for repeat in range(100):
        handle = make_table.client.table(table.name, seed=repeat)
        batch = handle.sample(10_000)
        assert batch.data["n"].max() <= 99
        assert np.isin(batch.keys, keys).all()
        table.update_priorities(keys, rng.random(100).astype(np.float32))


@pytest.mark.long
def test_a_million_changes_in_any_order_leave_what_a_dict_holds(
    make_table: TableMaker, rng: np.random.Generator
) -> None:
    """C7, tensorforce/tensorforce#45 and #308: an index that went below zero took the items at the other end."""
    capacity, live = 700, dict[int, float]()
    table = make_table(capacity, signature=SIGNATURE, sampler=PROPORTIONAL, capacity_steps=10 * capacity)
    changes = 0
    while changes < 1_000_000:
        n = int(rng.integers(1, 300))
        some = np.array(list(live), np.int64)[rng.permutation(len(live))[:n]]
        values = rng.lognormal(0, 3, n)
        if rng.random() < 0.5 or not len(some):
            live.update(zip(table.insert_batch({"n": np.arange(n)}, values).tolist(), values.tolist(), strict=True))
            for key in list(live)[: max(0, len(live) - capacity)]:
                del live[key]
        elif rng.random() < 0.9:
            assert table.update_priorities(some, values[: len(some)]) == len(some)
            live.update(zip(some.tolist(), values.tolist(), strict=False))
        else:
            assert table.delete(some) == len(some)
            for key in some.tolist():
                del live[key]
        changes += n
    batch = table.get(table.keys())
    assert dict(zip(batch.keys.tolist(), batch.priorities.tolist(), strict=True)) == live
    assert table.info().sum_priority == pytest.approx(math.fsum(live.values()), rel=1e-12)


@pytest.mark.parametrize("huge", [math.inf, -math.inf, math.nan, 1e281])
def test_a_sum_never_becomes_infinite_less_infinite(make_table: TableMaker, huge: float) -> None:
    """C9, Dopamine's tree: an infinity that was taken for a priority stayed in the sums when it was replaced."""
    table = make_table(4, signature=SIGNATURE, sampler=PROPORTIONAL)
    keys = table.insert_batch({"n": np.arange(4)}, np.arange(1.0, 5.0))
    with pytest.raises(ValueError, match=r"priorities\[1\] is .*; priorities must be finite, >= 0 and at most 1e\+280"):
        table.update_priorities(keys, [1.0, huge, 1.0, 1.0])
    assert table.info().sum_priority == 10.0
    table.update_priorities(keys, np.full(4, 1e280))
    assert table.info().sum_priority == 4e280
    table.update_priorities(keys, [0.25, 0.5, 1.0, 2.0])
    assert table.info().sum_priority == 3.75


def forms() -> dict[str, Any]:
    """Priorities 1, 2, 3, 4 as learners have them."""
    plain = np.arange(1.0, 5.0)
    read_only = plain.copy()
    read_only.flags.writeable = False
    return {
        "(n,)": plain,
        "(n, 1)": plain[:, None],
        "list": [1, 2.0, np.float32(3), 4],
        "float16": plain.astype(np.float16),
        "float32": plain.astype(np.float32),
        "int64": plain.astype(np.int64),
        "backwards": plain[::-1].copy()[::-1],
        "column of a matrix": np.repeat(plain[:, None], 3, axis=1)[:, 1],
        "read-only": read_only,
    }


@pytest.mark.parametrize("form", forms())
def test_priorities_come_in_any_form_that_learners_have_them_in(make_table: TableMaker, form: str) -> None:
    """C15, ymd-h/cpprb#96, #112, #128 and #130: of some forms other priorities were read, or none."""
    check_form(make_table, forms()[form])


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_priorities_come_as_tensors(make_table: TableMaker, shape: tuple[int, ...]) -> None:
    """C15, of PyTorch's processor tensors; those that need a gradient are refused by PyTorch itself."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    tensor = torch.arange(1, 5, dtype=torch.float32).reshape(shape)
    check_form(make_table, tensor)
    with pytest.raises((TypeError, RuntimeError), match="detach"):
        check_form(make_table, tensor.requires_grad_())


def check_form(make_table: TableMaker, given: Any) -> None:
    table = make_table(4, signature=SIGNATURE, sampler=PROPORTIONAL)
    keys = table.insert_batch({"n": np.arange(4)}, given)
    assert table.get(keys).priorities.tolist() == [1, 2, 3, 4]
    table.update_priorities(keys, np.full(4, 9.0))
    assert table.update_priorities(keys, given) == 4
    assert table.get(keys).priorities.tolist() == [1, 2, 3, 4]

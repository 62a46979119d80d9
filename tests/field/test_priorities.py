"""Group D: what priorities mean when several processes give and change them, as public bug reports found it wrong.

Covered elsewhere: D3, updates in any order (`test_updates_in_any_order_leave_the_last_value`); D4, new data get the
largest priority (ray-project/ray#11750, `test_without_a_priority_an_item_gets_the_largest_live_one`); D8, many actors
and learners (pytorch/rl#3714, `test_priorities_that_many_processes_give_and_update_are_those_of_one`); D9, draws under
concurrent updates (vwxyzjn/cleanba#10, `test_eight_handles_at_once_draw_right_and_unlike_each_other`).
"""

import re
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from tests.support.children import Fork
from tests.support.repository import ROOT
from tests.support.tables import TableMaker, live, steps, values


def test_a_priority_of_a_slot_that_holds_another_item_by_now_changes_nothing(
    make_table: TableMaker, fork: Fork
) -> None:
    """D1, pytorch/rl#4041, ray-project/ray#6534, keiohta/tf2rl#62: an update by index hit the row that came next."""
    table = make_table(8, sampler=sr.selectors.Prioritized(1.0), remover=sr.selectors.Fifo())
    table.insert_batch(steps(range(8)), np.arange(1.0, 9.0))
    batch = table.sample(64)

    def overwrite(pipe: Any) -> None:
        table.insert_batch(steps(range(100, 108)), np.arange(11.0, 19.0))

    fork(overwrite).result()
    with pytest.warns(UserWarning, match="update_priorities hit none of 64 items"):
        assert table.update_priorities(batch.keys, np.full(64, 1e6)) == 0
    assert values(table) == list(range(100, 108))
    assert live(table).priorities.tolist() == list(range(11, 19))
    assert table.info().max_priority == 18.0


def test_of_a_batch_that_was_overwritten_in_part_the_rest_is_updated(make_table: TableMaker) -> None:
    """D1, uber-research/ape-x#7: the count of what was still there is told."""
    table = make_table(8, sampler=sr.selectors.Prioritized(1.0))
    old = table.insert_batch(steps(range(8)))
    table.insert_batch(steps(range(100, 103)))
    assert table.update_priorities(old, np.arange(8.0)) == 5
    assert live(table).priorities.tolist() == [3.0, 4.0, 5.0, 6.0, 7.0, 1.0, 1.0, 1.0]


def test_a_signed_error_is_refused_and_its_size_is_taken(make_table: TableMaker) -> None:
    """D6, cpnota/autonomous-learning-library#106: negative TD errors went in as priorities."""
    table = make_table(4, sampler=sr.selectors.Prioritized(1.0))
    keys = table.insert_batch(steps(range(4)))
    td = np.array([1.0, -3.0, 2.0, -0.5])
    with pytest.raises(ValueError, match=r"priorities\[1\] is -3\.0; priorities must be finite, >= 0"):
        table.update_priorities(keys, td)
    assert live(table).priorities.tolist() == [1.0] * 4
    assert table.update_priorities(keys, np.abs(td)) == 4
    assert live(table).priorities.tolist() == [1.0, 3.0, 2.0, 0.5]


def test_the_example_of_writing_takes_the_plain_error_for_a_priority() -> None:
    """D7, higgsfield/RL-Adventure#13: the weighted loss was taken for the priority."""
    [call] = re.findall(r"update_priorities\(batch\.keys, (.*?)\)  #", (ROOT / "docs/writing.md").read_text("utf-8"))
    assert call == "np.abs(td_errors)"

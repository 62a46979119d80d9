"""The history that a writer may keep: what the arena has room for, and no more."""

import numpy as np
import pytest

from tests.support.tables import TableMaker


def test_a_history_that_the_arena_has_no_room_for_is_refused(make_table: TableMaker) -> None:
    table = make_table(8, signature={"n": np.int64(0)}, item_steps=4, chunk_steps=2)
    most = 2 * (table._arena.stats()["num_chunks"] - 2)
    for history in (most + 1, 2**31 - 1):
        with pytest.raises(ValueError, match=f"history is {history}, but the arena has room for {most} steps"):
            table.writer(history)
    with table.writer(most) as writer:
        for n in range(3 * most):
            writer.append({"n": n}, timeout_s=0)
        writer.create_item(length=4)
    assert table.sample(1).data["n"].tolist() == [[3 * most - 4, 3 * most - 3, 3 * most - 2, 3 * most - 1]]

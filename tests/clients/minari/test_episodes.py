"""What episodes a table holds: whole ones, in the order in which they began, also while it is in use."""

import logging
from typing import Any

import numpy as np
import pytest

pytest.importorskip("minari", reason="minari is not installed")

import shmreplay as sr
from shmreplay.clients.minari import episodes, episodes_of
from tests.support.tables import TableMaker

SIGNATURE = {
    "observation": sr.ArraySpec((), "int64"),
    "action": sr.ArraySpec((), "int64"),
    "reward": sr.ArraySpec((), "float32", cast="same_kind"),
    "terminated": sr.ArraySpec((), "bool"),
    "truncated": sr.ArraySpec((), "bool"),
}


def step(n: int, **ends: bool) -> dict[str, Any]:
    return {"observation": n, "action": -n, "reward": 0.5 * n, "terminated": False, "truncated": False, **ends}


def test_episodes_of_several_writers_are_apart_and_the_one_under_way_is_there(make_table: TableMaker) -> None:
    table = make_table(signature=SIGNATURE, item=sr.Transition())
    with table.writer() as one, table.writer() as other:
        for k in range(4):
            one.append(step(k, terminated=k == 3))
            other.append(step(100 + k))
        one.end_episode({"observation": 4})
        found = list(episodes_of(table))
        assert [episode.observations.tolist() for episode in found] == [[0, 1, 2, 3, 4], [100, 101, 102, 103]]
        assert [episode.actions.tolist() for episode in found] == [[0, -1, -2, -3], [-100, -101, -102]]
        assert found[0].rewards.tolist() == [0, 0.5, 1, 1.5]
        assert found[0].terminations.tolist() == [False, False, False, True]
        assert not found[1].terminations.any()


def test_episodes_that_lost_steps_are_left_out_and_counted(
    make_table: TableMaker, caplog: pytest.LogCaptureFixture
) -> None:
    table = make_table(8, signature=SIGNATURE, item=sr.Transition())
    with table.writer() as writer:
        for start in (0, 10, 20):
            for k in range(4):
                writer.append(step(start + k))
            writer.end_episode({"observation": start + 4})
    assert len(table) == 8  # the first episode was evicted
    table.delete(table.keys()[1:2])  # a step in the middle of the second
    with caplog.at_level(logging.WARNING, "shmreplay"):
        (episode,) = episodes_of(table)
    assert episode.observations.tolist() == [20, 21, 22, 23, 24]
    assert "1 episodes that have lost steps were left out" in caplog.text


def test_steps_that_are_removed_while_it_reads_cost_their_episode_alone(
    make_table: TableMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(signature=SIGNATURE, item=sr.Transition())
    table.extend(
        {name: np.array([step(n)[name] for n in range(9)]) for name in SIGNATURE},
        np.arange(9) % 3 == 2,
        final_steps={"observation": np.array([3, 6, 9])},
    )
    keys, read = table.keys(), episodes._read

    def delete_and_read(*arguments: Any) -> Any:
        table.delete(keys[4:5])
        return read(*arguments)

    monkeypatch.setattr(episodes, "_read", delete_and_read)
    found = episodes_of(table)
    assert [episode.observations.tolist() for episode in found] == [[0, 1, 2, 3], [6, 7, 8, 9]]


def test_columns_of_any_size_are_refused(make_table: TableMaker) -> None:
    table = make_table(signature={**SIGNATURE, "note": sr.ArraySpec((None,), "uint8")}, item=sr.Transition())
    with pytest.raises(sr.SignatureMismatch, match="column 'note' is optional or of any size; expected arrays"):
        list(episodes_of(table))


@pytest.mark.parametrize("item", [None, sr.Sequence(2), sr.NStep(2, stack={"observation": 2})])
def test_items_that_are_no_transitions_are_refused(make_table: TableMaker, item: Any) -> None:
    table = make_table(signature=SIGNATURE, item=item)
    with pytest.raises(sr.SignatureMismatch, match=r"expected one that makes transitions .* sr.Transition\(\) or"):
        list(episodes_of(table))

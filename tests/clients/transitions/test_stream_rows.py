"""StreamRows: the transitions that come out are those that were told, whatever ends their episodes."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from shmreplay.clients.transitions import StreamRows
from tests.support.tables import TableMaker

FLAG = sr.ArraySpec((), "bool")
NESTED = {"place": sr.ArraySpec((2,), "float32"), "goal": (sr.ArraySpec((), "int64"),)}


def signature(observation: Any) -> dict[str, Any]:
    return {
        "observation": observation,
        "action": sr.ArraySpec((1,), "int64"),
        "reward": sr.ArraySpec((), "float32"),
        "terminated": FLAG,
        "truncated": FLAG,
    }


class Told:
    """What N environments tell a buffer, step by step: observations count up, so that none comes twice."""

    def __init__(self, num: int, nested: bool) -> None:
        self._next, self._nested = 0, nested
        self.num = num
        self.observation = self._fresh()
        self.transitions: list[tuple[int, int, float, int, bool, bool]] = []

    def _fresh(self) -> NDArray[np.int64]:
        self._next += self.num
        return np.arange(self._next - self.num, self._next)

    def shown(self, numbers: NDArray[np.int64]) -> Any:
        place = np.stack([numbers, -numbers], -1).astype(np.float32)
        return {"place": place, "goal": (numbers.copy(),)} if self._nested else place

    def step(self, rows: StreamRows, events: list[str]) -> None:
        """Adds a step. Events: "terminated", "truncated", "silent" (it begins anew, which nobody tells), or ""."""
        following, action = self._fresh(), np.arange(self.num)[:, None] + 10 * self._next
        terminated = np.array([event == "terminated" for event in events])
        truncated = np.array([event == "truncated" for event in events])
        reward = following / 8
        step = {
            "observation": self.shown(self.observation),
            "action": action,
            "reward": reward,  # float64, as environments give it
            "terminated": terminated,
            "truncated": truncated,
        }
        rows.add(step, self.shown(following))
        told = zip(self.observation, action[:, 0], reward, following, terminated, truncated, strict=True)
        self.transitions += [tuple(value.item() for value in transition) for transition in told]
        anew = np.array([event != "" for event in events])
        self.observation = np.where(anew, self._fresh(), following)


def stored(table: TableHandle, nested: bool) -> list[tuple[Any, ...]]:
    """All transitions of a table."""
    if len(table) == 0:
        return []
    data = table.get(table.keys()).data
    names = ("observation", "action", "reward", "next_observation", "terminated", "truncated")
    columns = []
    for name in names:
        column = data[name]
        if "observation" in name:
            place = column["place"] if nested else column
            assert (place[:, 1] == -place[:, 0]).all()
            if nested:
                assert (column["goal"][0] == place[:, 0]).all()
            column = place[:, 0]
        columns.append(column.reshape(len(column)).tolist())
    return list(zip(*columns, strict=True))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    num=st.integers(1, 3),
    nested=st.booleans(),
    data=st.data(),
    flushes=st.sets(st.integers(0, 25)),
)
def test_every_transition_comes_out_as_it_was_told(
    make_table: TableMaker, num: int, nested: bool, data: st.DataObject, flushes: set[int]
) -> None:
    observation = NESTED if nested else sr.ArraySpec((2,), "float32")
    table = make_table(1000, signature=signature(observation), item=sr.Transition(), capacity_steps=2000)
    event = st.sampled_from(["", "", "", "terminated", "truncated", "silent"])
    steps = data.draw(st.lists(st.lists(event, min_size=num, max_size=num), max_size=25))
    told = Told(num, nested)
    with table.vector_writer(num) as writer:
        rows = StreamRows(writer)
        for i, events in enumerate(steps):
            told.step(rows, events)
            assert len(table) + rows.under_way.sum() == len(told.transitions)
            if i in flushes:
                assert sum(map(len, rows.flush())) == events.count("") + events.count("silent")
                assert len(table) == len(told.transitions)
        rows.flush()
    assert sorted(stored(table, nested)) == sorted(told.transitions)


def test_a_silent_end_cuts_only_its_own_stream_and_does_not_terminate(make_table: TableMaker) -> None:
    table = make_table(100, signature=signature(sr.ArraySpec((2,), "float32")), item=sr.NStep(3))
    told = Told(2, False)
    with table.vector_writer(2) as writer:
        rows = StreamRows(writer)
        for events in (["", ""], ["silent", ""], ["", ""], ["", ""]):
            told.step(rows, events)
        rows.flush()
    batch = table.get(table.keys())
    steps = sr.n_step_targets(batch, 0.5)
    first = batch.data["observation"][:, 0] % 2 == 0  # of stream 0
    assert sorted(steps.num_steps[first]) == [1, 1, 2, 2]
    assert sorted(steps.num_steps[~first]) == [1, 2, 3, 3]
    assert (steps.discounts == 0.5**steps.num_steps).all()


def test_what_a_caller_compares_may_be_more_than_what_is_stored(make_table: TableMaker) -> None:
    """Stacks of two frames, of which the newest is stored: a new episode that begins with an equal frame is found."""
    table = make_table(100, signature=signature(sr.ArraySpec((2,), "float32")), item=sr.Transition())
    frames = np.zeros((3, 1, 2), np.float32)
    stacks = [np.stack([np.full(2, t, np.float32), frames[t, 0]])[None] for t in range(3)]
    no = np.zeros(1, np.bool_)
    with table.vector_writer(1) as writer:
        rows = StreamRows(writer)
        for before, after in ((0, 1), (1, 2), (0, 1)):  # the third does not continue the second
            step = {
                "observation": frames[before],
                "action": np.zeros((1, 1), np.int64),
                "reward": np.zeros(1, np.float32),
                "terminated": no,
                "truncated": no,
            }
            rows.add(step, frames[after], ([stacks[before]], [stacks[after]]))
        rows.flush()
    assert table.get(table.keys()).steps.tolist() == [0, 1, 0]


def test_a_limiter_that_admits_a_part_leaves_no_wrong_transition(make_table: TableMaker) -> None:
    table = make_table.queue(5, signature=signature(sr.ArraySpec((2,), "float32")), item=sr.Transition())
    told = Told(3, False)
    found: list[tuple[Any, ...]] = []
    num_timeouts = 0
    with table.vector_writer(3) as writer:
        rows = StreamRows(writer, timeout_s=0)
        for i in range(30):
            events = ["terminated" if i % 4 == 3 else "", "truncated" if i % 5 == 4 else "", ""]
            try:
                told.step(rows, events)
            except sr.RateLimitTimeout:
                num_timeouts += 1
                found += drained(table)
                told = told_anew(told)
        found += drained(table)
        rows.flush()
        found += drained(table)
    assert num_timeouts > 3
    assert len(found) > 30
    for observation, _, reward, following, _, _ in found:  # each is one that was told
        assert following == reward * 8
        assert 0 < following - observation <= 6
        assert (following - observation) % 3 == 0


def told_anew(told: Told) -> Told:
    """The same counter, behind what a failed call took."""
    told.observation = told._fresh()
    return told


def drained(table: TableHandle) -> list[tuple[Any, ...]]:
    """Takes all items out of a queue."""
    if len(table) == 0:
        return []
    found = stored(table, False)
    table.sample(len(table))
    return found


def test_tables_and_values_that_do_not_fit_are_refused(make_table: TableMaker) -> None:
    with (
        make_table(10, signature={"observation": FLAG}).vector_writer(1, history=2) as writer,
        pytest.raises(sr.SignatureMismatch, match="'terminated' and 'truncated'"),
    ):
        StreamRows(writer)
    table = make_table(10, signature=signature(sr.ArraySpec((2,), "float32")), item=sr.Transition())
    with table.vector_writer(1) as writer:
        rows = StreamRows(writer)
        no = np.zeros(1, np.bool_)
        step: dict[str, Any] = {
            "observation": np.zeros((1, 2), np.float32),
            "action": np.zeros((1, 1)),
            "reward": np.zeros(1),
            "terminated": no,
            "truncated": no,
        }
        with pytest.raises(sr.SignatureMismatch, match=re.escape("column 'action': expected int64 or another of its")):
            rows.add(step, step["observation"])
        step["action"] = np.zeros((1, 1), np.int32)
        rows.add(step, step["observation"].astype(np.float64))
        rows.flush()
    assert len(table) == 1

"""Values that items bring with them: goals that are chosen later, states stored once an item."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.writers.writer import Writer
from tests.support.heap_columns import free_blocks
from tests.support.tables import TableMaker, check

SIGNATURE = {
    "n": sr.ArraySpec((), "int64"),
    "goal": sr.ArraySpec((2,), "float32", per="item"),
    "path": sr.ArraySpec((None,), "int32", per="item", optional=True, compression="lz4"),
}
ONLY_OPTIONAL = {"n": sr.ArraySpec((), "int64"), "goal": sr.ArraySpec((2,), "float32", per="item", optional=True)}


def goal_of(n: int) -> np.ndarray[Any, Any]:
    return np.array([n, -n], np.float32)


def path_of(n: int) -> np.ndarray[Any, Any]:
    return np.arange(n, dtype=np.int32)


@pytest.mark.parametrize("chunk_steps", [1, 3, 64])
def test_an_item_brings_a_value_under_its_own_name(make_table: TableMaker, chunk_steps: int) -> None:
    table = make_table(200, signature=SIGNATURE, item_steps=3, chunk_steps=chunk_steps)
    with table.writer(history=8) as writer:
        for n in range(20):
            writer.append({"n": n})
            values = {"goal": goal_of(n), "path": path_of(n)} if n % 2 else {"goal": goal_of(n)}
            writer.create_item(length=min(n + 1, 3), values=values)
    batch = table.get(table.keys())
    assert batch.data["n"].shape == (20, 3)
    assert batch.data["goal"].tolist() == [[n, -n] for n in range(20)]
    assert batch.data["path"].shape == (20, 19)
    for n in range(20):
        assert batch.sizes["path"][n].tolist() == [n if n % 2 else 0]
        assert batch.data["path"][n, : n if n % 2 else 0].tolist() == list(range(n if n % 2 else 0))
    assert batch.mask["path"].tolist() == [n % 2 == 1 for n in range(20)]
    assert batch.mask["goal"].tolist() == [True] * 20
    drawn = table.sample(50)
    assert drawn.data["goal"][:, 0].tolist() == drawn.data["n"].max(axis=1).tolist()


def test_items_of_the_same_steps_bring_values_of_their_own(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE, chunk_steps=4)
    with table.writer(history=4) as writer:
        for n in range(10):
            writer.append({"n": n})
            for k in range(4):
                writer.create_item(length=1, values={"goal": goal_of(10 * n + k)})
    batch = table.get(table.keys())
    assert batch.data["goal"][:, 0].tolist() == [10 * n + k for n in range(10) for k in range(4)]


def test_trajectories_show_what_the_item_brings_beside_what_they_select(make_table: TableMaker) -> None:
    nested = {"n": sr.ArraySpec((), "int64"), "extra": {"goal": SIGNATURE["goal"], "path": SIGNATURE["path"]}}
    table = make_table(100, signature=nested)
    with table.writer(history=4) as writer:
        for n in range(4):
            writer.append({"n": n})
        trajectory = {"newest": writer.history["n"][-1], "all": writer.history["n"][:]}
        writer.create_item(trajectory=trajectory, values={"extra": {"goal": goal_of(7)}})
        with pytest.raises(
            ValueError, match="trajectory: has an output 'extra', which is the name of a column per item; exp"
        ):
            writer.create_item(trajectory={"extra": writer.history["n"][-1]}, values={"extra": {"goal": goal_of(1)}})
        with pytest.raises(TypeError, match="is a list of 1; expected a dict, since items bring 'extra', which are"):
            writer.create_item(trajectory=[writer.history["n"][-1]], values={"extra": {"goal": goal_of(1)}})
    batch = table.sample(1)
    assert (batch.data["newest"].tolist(), batch.data["all"].tolist()) == ([3], [[0, 1, 2, 3]])
    assert batch.data["extra"]["goal"].tolist() == [[7, -7]]
    assert batch.mask["extra"] == {"goal": [True], "path": [False]}


def test_separate_steps_in_a_list_bring_both(make_table: TableMaker) -> None:
    table = make_table(1000, signature=SIGNATURE, chunk_steps=8)
    steps: list[dict[str, Any]] = [{"n": n, "goal": goal_of(n), "path": path_of(n)} for n in range(20)]
    steps[4] = {"n": 4, "goal": goal_of(4)}
    batch = table.get(table.insert_batch(steps))
    assert batch.data["n"].tolist() == list(range(20))
    assert batch.data["goal"][:, 0].tolist() == list(range(20))
    steps[2] = {"n": 2}
    with pytest.raises(sr.SignatureMismatch, match=r"column 'goal': missing.* \(step 2 of 20\)"):
        table.insert_batch(steps)


def test_a_step_that_is_an_item_brings_both(make_table: TableMaker) -> None:
    table = make_table(1000, signature=SIGNATURE, chunk_steps=8)
    for n in range(20):
        table.insert({"n": n, "goal": goal_of(n)})
    paths = [path_of(n) if n % 3 else None for n in range(20, 100)]
    ns = np.arange(20, 100)
    table.insert_batch({"n": ns, "goal": np.stack([ns, -ns], axis=1).astype("f4"), "path": paths})
    batch = table.get(table.keys())
    assert batch.data["n"].tolist() == list(range(100))
    assert batch.data["goal"].tolist() == [[n, -n] for n in range(100)]
    assert batch.mask["path"].tolist() == [n >= 20 and n % 3 != 0 for n in range(100)]
    assert batch.data["path"][99 - 1, :98].tolist() == list(range(98))


def test_windows_make_items_where_no_value_is_needed(make_table: TableMaker) -> None:
    table = make_table(100, signature=ONLY_OPTIONAL, item=sr.Sequence(2))
    with table.writer() as writer:
        for n in range(4):
            writer.append({"n": n})
    batch = table.get(table.keys())
    assert batch.data["n"].tolist() == [[0, 1], [1, 2], [2, 3]]
    assert batch.data["goal"].tolist() == [[0, 0]] * 3
    assert batch.mask["goal"].tolist() == [False] * 3


def test_windows_are_refused_where_items_must_bring_a_value(make_table: TableMaker) -> None:
    text = re.escape(
        "which brings no value of column 'goal', one per item: make the items by hand, create_item(values={...}), or "
        "declare the column with optional=True"
    )
    table = make_table(100, signature=SIGNATURE)
    for rule in (sr.Sequence(2), sr.Pattern({"n": ("n", -1)})):
        with pytest.raises(ValueError, match=f"table '{table.name}': it has a pattern, {text}"):
            table.writer(patterns=[rule])
    with pytest.raises(ValueError, match=f"table 't': item is a window, {text}"):
        sr.Table("t", SIGNATURE, 10, item=sr.Sequence(2))
    with pytest.raises(
        sr.SignatureMismatch, match="window shows only columns that are per item; expected one of steps"
    ):
        sr.Table("t", ONLY_OPTIONAL, 10, item=sr.Window({"goal": 0}))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (None, "column 'goal': missing; each item needs one float32 (2,) per='item'; pass it in values={...}"),
        ({"goal": np.zeros(3, "f4")}, "column 'goal': expected float32 (2,), got float32 (3,)"),
        (
            {"goal": goal_of(1), "n": 1},
            "values= has column 'n', which steps have; expected those that are per item: 'goal'",
        ),
    ],
)
def test_values_that_do_not_fit_make_no_item(make_table: TableMaker, values: Any, text: str) -> None:
    table = make_table(100, signature=SIGNATURE)
    with table.writer() as writer:
        writer.append({"n": 1})
        before = free_blocks(table)
        with pytest.raises(sr.SignatureMismatch, match=re.escape(text)):
            writer.create_item(length=1, values=values)
        with pytest.raises(sr.SignatureMismatch, match=re.escape(text)):
            writer.create_item(trajectory={"x": writer.history["n"][-1]}, values=values)
        assert (len(table), free_blocks(table)) == (0, before)
        with pytest.raises(
            sr.SignatureMismatch, match="column 'goal': is per item, so steps do not have it; pass it to create_item"
        ):
            writer.append({"n": 2, "goal": goal_of(2)})
        with pytest.raises(TypeError, match="history of column 'goal': it is per item, so it is not in steps; give it"):
            writer.history["goal"][-1]


def test_tables_without_such_columns_take_no_values(make_table: TableMaker) -> None:
    table = make_table(10, signature={"n": sr.ArraySpec((), "int64")})
    with table.writer() as writer:
        writer.append({"n": 1})
        with pytest.raises(sr.SignatureMismatch, match="values= has column 'n', which steps have; the table has none"):
            writer.create_item(length=1, values={"n": 3})


def test_an_item_that_is_not_admitted_takes_no_blocks_when_it_is_repeated(make_table: TableMaker) -> None:
    table = make_table.queue(2, signature=SIGNATURE, item_steps=2, capacity_steps=2, chunk_steps=8)
    with table.writer(history=2) as writer:
        writer.append({"n": 0})
        for _ in range(2):
            writer.create_item(length=1, values={"goal": goal_of(0), "path": path_of(100)})
        taken = set()
        for _ in range(20):
            with pytest.raises(sr.RateLimitTimeout):
                writer.create_item(length=1, values={"goal": goal_of(1), "path": path_of(100)}, timeout_s=0)
            taken.add(free_blocks(table))
        assert len(taken) == 1
        table.sample(1)
        writer.create_item(length=1, values={"goal": goal_of(2), "path": path_of(100)})
    batch = table.sample(2)
    assert batch.data["goal"].tolist() == [[0, 0], [2, -2]]
    assert batch.sizes["path"].tolist() == [[100], [100]]
    assert check(table) == []


# --- hindsight experience replay ------------------------------------------------------------------------------------


def write_episode(writer: Writer, rng: np.random.Generator, episode: int, length: int) -> None:
    """One episode, each of whose steps becomes an item with the goal that it had and two with one achieved later."""
    for t in range(length):
        writer.append({"achieved": np.array([episode, t], "i8"), "t": t})
    for t in range(length):
        for later in (None, *rng.integers(t, length, 2).tolist()):
            reached = np.array([episode, length + 1 if later is None else later], "i8")
            writer.create_item(
                trajectory={"achieved": writer.history["achieved"][t - length], "t": writer.history["t"][t - length]},
                values={"goal": reached, "is_relabelled": later is not None},
            )
    writer.end_episode()


@pytest.mark.long
def test_goals_come_from_the_rest_of_their_own_episode_however_often_the_table_wraps(
    make_table: TableMaker, rng: np.random.Generator
) -> None:
    """The future strategy: the last step can only pick itself, none goes beyond, none picks from another episode."""
    signature = {
        "achieved": sr.ArraySpec((2,), "int64"),
        "t": sr.ArraySpec((), "int64"),
        "goal": sr.ArraySpec((2,), "int64", per="item"),
        "is_relabelled": sr.ArraySpec((), "bool", per="item"),
    }
    table = make_table(600, signature=signature, chunk_steps=8, capacity_steps=400)
    lengths: list[int] = []
    drawn = 0
    with table.writer(history=50) as writer:
        while table.info().inserts < 4 * 600:
            lengths.append(int(rng.integers(1, 50)))
            write_episode(writer, rng, len(lengths) - 1, lengths[-1])
            batch = table.sample(6000)
            episode, t = batch.data["achieved"].T
            goal_episode, goal_t = batch.data["goal"].T
            ends = np.array(lengths)[episode]
            later = batch.data["is_relabelled"]
            assert (goal_episode == episode).all()
            assert (t == batch.data["t"]).all()
            assert (goal_t[~later] == ends[~later] + 1).all()
            assert (t[later] <= goal_t[later]).all()
            assert (goal_t[later] < ends[later]).all()
            is_last = later & (t == ends - 1)
            assert (goal_t[is_last] == t[is_last]).all()
            drawn += int(later.sum())
    assert drawn >= 100_000
    assert check(table) == []


# --- stored states --------------------------------------------------------------------------------------------------


def test_a_state_is_stored_once_a_sequence_and_is_the_one_before_its_first_step(make_table: TableMaker) -> None:
    """State t is that before step t; sequences begin only at multiples of 20, each with its state."""
    signature = {"t": sr.ArraySpec((), "int64"), "state": sr.ArraySpec((512,), "float32", per="item")}
    table = make_table(100, signature=signature, item_steps=40, chunk_steps=16)
    states: dict[int, np.ndarray[Any, Any]] = {}
    with table.writer(history=40) as writer:
        for t in range(200):
            if t % 20 == 0:
                states[t] = np.full(512, t, np.float32)
            writer.append({"t": t})
            if t >= 39 and (t + 1) % 20 == 0:
                writer.create_item(length=40, values={"state": states[t - 39]})
    batch = table.get(table.keys())
    assert batch.data["t"][:, 0].tolist() == list(range(0, 161, 20))
    assert batch.data["state"].shape == (9, 512)
    assert (batch.data["state"] == batch.data["t"][:, :1]).all()

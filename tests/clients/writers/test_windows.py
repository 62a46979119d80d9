"""Windows against a plain oracle: every combination of ends, with and without a final step, over several episodes."""

import itertools
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from tests.clients.writers.oracle import Plain, read
from tests.support.tables import TableMaker, check

SIGNATURE = {"observation": sr.ArraySpec((), "int64"), "action": sr.ArraySpec((), "int64")}
LENGTHS = (1, 2, 3, 5, 8, 4, 7)


def write(table: TableHandle, window: sr.Window, *, has_final: bool) -> list[tuple[int, int]]:
    """Writes an episode of each length; every value is its step's number. Returns first step and length of each."""
    episodes, first = [], 0
    with table.writer(patterns=[window]) as writer:
        for length in LENGTHS:
            for step in range(first, first + length):
                writer.append({"observation": step, "action": step})
            writer.end_episode({"observation": first + length} if has_final else None)
            episodes.append((first, length))
            first += 100
    return episodes


def made(table: TableHandle, episodes: list[tuple[int, int]]) -> list[Any]:
    """The items in insertion order, by episode."""
    batch = table.get(table.keys())
    found: dict[int, list[Any]] = {first: [] for first, _ in episodes}
    for i in range(len(batch)):
        values = [np.atleast_1d(batch.data[name][i])[np.atleast_1d(batch.mask[name][i])] for name in batch.data]
        first = int(np.concatenate(values)[0]) // 100 * 100
        found[first].append(read(batch, i, first))
    return [found[first] for first, _ in episodes]


RANGES = [
    {"observation": (-1, 3), "action": (0, 2)},
    {"observation": (0, 4), "action": (0, 4)},
    {"observation": (-3, 1), "action": (0, 1)},
]


@pytest.mark.parametrize("chunk_steps", [1, 3, 64])
@pytest.mark.parametrize("has_final", [True, False])
@pytest.mark.parametrize("ranges", RANGES)
@pytest.mark.one_quick
def test_every_combination_of_ends_shows_what_was_drawn(
    make_table: TableMaker, ranges: dict[str, tuple[int, int]], has_final: bool, chunk_steps: int
) -> None:
    starts, ends, periods = ("skip", "short", "zeros"), ("skip", "shorten", "pad", "shift"), (1, 2, 4)
    for at_start, at_end, period in itertools.product(starts, ends, periods):
        table = make_table(1000, signature=SIGNATURE, chunk_steps=chunk_steps)
        window = sr.Window(ranges, at_start, at_end, period)  # type: ignore[arg-type]
        episodes = write(table, window, has_final=has_final)
        plain = Plain(ranges, (), at_start, at_end, period)
        expected = [plain.items(length, has_final=has_final) for _, length in episodes]
        assert made(table, episodes) == expected, (at_start, at_end, period)
        assert check(table) == []


@pytest.mark.parametrize("has_final", [True, False])
@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.one_quick
def test_an_n_step_moves_its_next_step_with_its_shortened_end(make_table: TableMaker, n: int, has_final: bool) -> None:
    table = make_table(1000, signature=SIGNATURE, chunk_steps=3)
    episodes = write(table, sr.NStep(n, summed=("action",)), has_final=has_final)
    action = (0, n) if n > 1 else (0, 1)
    ranges = {"observation": (0, 1), "action": action, "next_observation": (n, n + 1)}
    plain = Plain(ranges, ("next_observation",), "skip", "shorten", 1)
    assert made(table, episodes) == [plain.items(length, has_final=has_final) for _, length in episodes]


@pytest.mark.parametrize("n", [1, 3])
def test_stacks_compose_with_n_steps(make_table: TableMaker, n: int) -> None:
    table = make_table(1000, signature=SIGNATURE, chunk_steps=3)
    window = sr.NStep(n, {"observation": 4}, summed=("action",), at_start="zeros")
    episodes = write(table, window, has_final=True)
    ranges = {"observation": (-3, 1), "action": (0, n), "next_observation": (n - 3, n + 1)}
    plain = Plain(ranges, ("next_observation",), "zeros", "shorten", 1)
    assert made(table, episodes) == [plain.items(length, has_final=True) for _, length in episodes]


def test_repeat_shows_the_first_step_before_an_episode(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE)
    with table.writer(patterns=[sr.NStep(1, {"observation": 4})]) as writer:
        writer.append({"observation": 10, "action": 0})
        writer.append({"observation": 11, "action": 1})
        writer.end_episode({"observation": 12})
    batch = table.get(table.keys())
    assert batch.data["observation"].tolist() == [[10, 10, 10, 10], [10, 10, 10, 11]]
    assert batch.data["next_observation"].tolist() == [[10, 10, 10, 11], [10, 10, 11, 12]]
    assert batch.mask["observation"].tolist() == [[False, False, False, True], [False, False, True, True]]


SHORT_EPISODE: dict[tuple[str, str], list[list[Any]]] = {
    ("skip", "skip"): [],
    ("skip", "shorten"): [[10, 11]],
    ("skip", "pad"): [[10, 11]],
    ("skip", "shift"): [],
    ("short", "skip"): [],
    ("short", "shorten"): [[None, 10, 11], [10, 11]],
    ("short", "pad"): [[None, 10, 11], [10, 11]],
    ("short", "shift"): [[None, 10, 11]],
    ("repeat", "skip"): [],
    ("repeat", "shorten"): [[-10, 10, 11], [10, 11]],
    ("repeat", "pad"): [[-10, 10, 11], [10, 11]],
    ("repeat", "shift"): [[-10, 10, 11]],
}


@pytest.mark.parametrize(("at_start", "at_end"), SHORT_EPISODE)
def test_an_episode_of_two_steps_is_as_docs_windows_says(make_table: TableMaker, at_start: Any, at_end: Any) -> None:
    table = make_table(100, signature=SIGNATURE)
    with table.writer(patterns=[sr.Window({"observation": (-1, 3)}, at_start, at_end)]) as writer:
        for step in (10, 11):
            writer.append({"observation": step, "action": 0})
        writer.end_episode()
    # None: masked and 0; negative: masked, but the value is there; the padding behind goes without saying.
    expected = [row + [None] * (4 - len(row)) for row in SHORT_EPISODE[at_start, at_end]]
    batch = table.get(table.keys())
    assert len(batch) == len(expected)
    shown = zip(expected, batch.data.get("observation", ()), batch.mask.get("observation", ()), strict=True)
    for row, values, real in shown:
        width = len(values)
        assert [value is not None and value > 0 for value in row[:width]] == real.tolist()
        assert [abs(value or 0) for value in row[:width]] == values.tolist()
        assert not any(row[width:])


@pytest.mark.parametrize(
    ("at_end", "expected"),
    [
        ("skip", [[0, 1, 2, 3]]),
        ("shift", [[0, 1, 2, 3], [3, 4, 5, 6]]),
        ("pad", [[0, 1, 2, 3], [4, 5, 6, None]]),
    ],
)
@pytest.mark.parametrize("is_vector", [False, True])
def test_a_final_step_is_reached_only_by_columns_that_it_has(
    make_table: TableMaker, at_end: Any, expected: list[list[int | None]], is_vector: bool
) -> None:
    """Seven actions and eight observations: a window of four actions does not reach the eighth step."""
    window = sr.Window({"action": (0, 4)}, period=4, at_end=at_end)
    table = make_table(100, signature=SIGNATURE, item=window)
    if is_vector:
        with table.vector_writer(1) as fleet:
            for step in range(7):
                fleet.append({"observation": np.array([step]), "action": np.array([step])})
            fleet.end_episodes(np.array([True]), {"observation": np.array([7])})
    else:
        with table.writer() as writer:
            for step in range(7):
                writer.append({"observation": step, "action": step})
            writer.end_episode({"observation": 7})
    batch = table.get(table.keys())
    shown = [
        [int(value) if is_real else None for value, is_real in zip(*rows, strict=True)]
        for rows in zip(batch.data["action"], batch.mask["action"], strict=True)
    ]
    assert shown == expected


def test_a_whole_window_may_show_the_final_step_by_a_column_that_it_has(make_table: TableMaker) -> None:
    window = sr.Window({"observation": (0, 5), "action": (0, 4)}, period=4, at_end="skip")
    table = make_table(100, signature=SIGNATURE, item=window)
    with table.writer() as writer:
        for step in range(8):
            writer.append({"observation": step, "action": step})
        writer.end_episode({"observation": 8})
    batch = table.get(table.keys())
    assert batch.data["observation"].tolist() == [[0, 1, 2, 3, 4], [4, 5, 6, 7, 8]]
    assert batch.mask["action"].all()


def test_a_sequence_with_burn_in_covers_every_step(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE, chunk_steps=3)
    episodes = write(table, sr.Sequence(4, period=2, burn_in=2), has_final=True)
    ranges = {"observation": (-2, 4), "action": (-2, 4)}
    plain = Plain(ranges, (), "short", "pad", 2)
    assert made(table, episodes) == [plain.items(length, has_final=True) for _, length in episodes]


def test_an_episode_is_one_item_padded_to_the_longest(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE, item_steps=9, chunk_steps=3)
    episodes = write(table, sr.Episode(), has_final=True)
    batch = table.get(table.keys())
    assert batch.data["observation"].shape == (len(LENGTHS), 9)
    assert batch.lengths["observation"].tolist() == [length + 1 for length in LENGTHS]
    assert batch.lengths["action"].tolist() == list(LENGTHS)
    for i, (first, length) in enumerate(episodes):
        assert batch.data["observation"][i, : length + 1].tolist() == list(range(first, first + length + 1))


def test_unrolls_follow_one_another_with_their_bootstrap(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE)
    episodes = write(table, sr.Unroll(3), has_final=True)
    plain = Plain({"observation": (0, 4), "action": (0, 3)}, (), "skip", "pad", 3)
    assert made(table, episodes) == [plain.items(length, has_final=True) for _, length in episodes]


@pytest.mark.parametrize(
    "window",
    [sr.Transition(), sr.NStep(3), sr.NStep(5, {"observation": 2}), sr.Sequence(4, 4), sr.Episode(), sr.Unroll(4)],
)
def test_a_reward_at_the_end_comes_once_an_episode_from_every_window(make_table: TableMaker, window: sr.Window) -> None:
    signature = {**SIGNATURE, "reward": sr.ArraySpec((), "float32"), "terminated": sr.ArraySpec((), "bool")}
    table = make_table(1000, signature=signature, item_steps=12)
    with table.writer(patterns=[window]) as writer:
        for length in LENGTHS:
            for step in range(length):
                is_last = step == length - 1
                writer.append({"observation": step, "action": step, "reward": float(is_last), "terminated": is_last})
            writer.end_episode({"observation": length})
    batch = table.get(table.keys())
    rewards, real = batch.data["reward"], batch.mask["reward"]
    if rewards.ndim == 2 and "next_observation" in batch.data:
        rewards, real = rewards[:, 0], real[:, 0]  # n-steps see it as often as they reach it: count references
    assert float(rewards[real].sum()) == len(LENGTHS)


def test_items_of_two_streams_never_mix(make_table: TableMaker) -> None:
    table = make_table(1000, signature=SIGNATURE, chunk_steps=3)
    with table.writer(patterns=[sr.NStep(3)]) as one, table.writer(patterns=[sr.NStep(3)]) as other:
        for step in range(20):
            one.append({"observation": step, "action": step})
            other.append({"observation": 1000 + step, "action": 1000 + step})
    batch = table.get(table.keys())
    assert (batch.data["next_observation"] - batch.data["observation"] == 3).all()
    assert (batch.data["action"] == batch.data["observation"]).all()


@pytest.mark.parametrize("at_start", ["skip", "short", "zeros", "repeat"])
def test_a_window_that_is_all_before_its_reference_step_begins_with_its_first_real_one(
    make_table: TableMaker, at_start: Any
) -> None:
    """At the stream's start its end lies before the first step: that is no item, and once was a span without an end."""
    table = make_table(100, signature=SIGNATURE, chunk_steps=1)
    with table.writer(patterns=[sr.Window({"observation": (-3, -1)}, at_start)]) as writer:
        for step in range(10, 16):
            writer.append({"observation": step, "action": step})
    batch = table.get(table.keys())
    padded = {"skip": [], "short": [[0, 10]], "zeros": [[0, 10]], "repeat": [[10, 10]]}[at_start]
    assert batch.data["observation"].tolist() == [*padded, [10, 11], [11, 12], [12, 13]]

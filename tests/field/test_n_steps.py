"""Group E: n-step returns, frame stacks and next observations, as public bug reports found them wrong.

Covered elsewhere: E3, n = 1 (younggyoseo/FastTD3#10, `test_one_step_n_steps_are_transitions_bit_for_bit`); E6,
discounts are always there and mean one thing (ymd-h/cpprb#137, `test_targets_of_a_table_are_those_of_a_plain_loop` and
tests/shmreplay/rules/test_targets.py); E9, the next observation of a truncated step (Stable-Baselines3#934,
`test_a_truncated_episode_needs_its_final_step`).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from tests.support.tables import TableMaker, check, interleave, live

SIGNATURE = {
    "observation": sr.ArraySpec((), "int64"),
    "reward": sr.ArraySpec((), "float32"),
    "terminated": sr.ArraySpec((), "bool"),
}


def step(k: int, *, terminated: bool = False) -> dict[str, Any]:
    return {"observation": k, "reward": float(k), "terminated": terminated}


@pytest.mark.parametrize("chunk_steps", [1, 4])
def test_n_steps_never_reach_over_the_newest_step(make_table: TableMaker, chunk_steps: int) -> None:
    """E1, younggyoseo/FastTD3#6: three-step returns near the cursor took the oldest rows for the next ones."""
    # Ten rows 15 .. 24 of an endless episode: seven windows of three steps and the next observation.
    table = make_table(7, signature=SIGNATURE, item=sr.NStep(3), capacity_steps=10, chunk_steps=chunk_steps)
    with table.writer() as writer:
        for k in range(25):
            writer.append(step(k))
        batch = live(table)
        assert batch.data["observation"].tolist() == list(range(15, 22))
        assert batch.data["reward"].tolist() == [[k, k + 1, k + 2] for k in range(15, 22)]
        assert batch.data["next_observation"].tolist() == list(range(18, 25))
        assert batch.mask["reward"].all()
        # The two steps before the newest wait for their next ones; the episode's end gives them a shorter horizon.
        writer.end_episode({"observation": 25})
    batch = live(table)
    assert batch.data["observation"].tolist() == list(range(18, 25))
    assert batch.data["next_observation"].tolist() == [21, 22, 23, 24, 25, 25, 25]
    returns, discounts, num_steps = sr.n_step_targets(batch, 0.5)
    assert num_steps.tolist() == [3, 3, 3, 3, 3, 2, 1]
    assert returns.tolist()[-2:] == [23 + 24 / 2, 24.0]
    assert discounts.tolist() == [0.125] * 5 + [0.25, 0.5]


def test_n_steps_of_four_environments_of_one_actor_do_not_mix(make_table: TableMaker, rng: np.random.Generator) -> None:
    """E4, chainer/chainerrl#442: n-step transitions were made of several environments' steps."""
    table = make_table(10_000, signature=SIGNATURE, item=sr.NStep(3), chunk_steps=3)
    writers = [table.writer() for _ in range(4)]
    counts = [0] * 4
    for env in interleave([[env] * 500 for env in range(4)], rng):
        writers[env].append(step(1000 * env + counts[env]))
        counts[env] += 1
        if rng.random() < 0.1:
            writers[env].end_episode({"observation": 1000 * env + counts[env]})
    for env, writer in enumerate(writers):
        writer.end_episode({"observation": 1000 * env + counts[env]})
        writer.close()
    batch = live(table)
    assert np.sort(batch.data["observation"]).tolist() == [1000 * env + k for env in range(4) for k in range(500)]
    real = batch.mask["reward"]
    rewards = batch.data["observation"][:, None] + np.arange(3)
    np.testing.assert_array_equal(batch.data["reward"], np.where(real, rewards, 0))
    assert (batch.data["next_observation"] - batch.data["observation"] == real.sum(axis=1)).all()
    assert len(np.unique(batch.episodes)) == len(np.unique(batch.episodes[real.sum(axis=1) == 1]))


@pytest.mark.parametrize("at_start", ["repeat", "zeros"])
def test_a_stack_never_shows_a_frame_of_another_episode(make_table: TableMaker, at_start: Any) -> None:
    """E7, google/dopamine#213: stacks reached back over resets, and over the cursor."""
    rule = sr.NStep(1, {"observation": 4}, at_start=at_start)
    table = make_table(10, signature=SIGNATURE, item=rule, capacity_steps=16, chunk_steps=2, max_streams=1)
    frames: list[list[int]] = []
    with table.writer() as writer:
        for episode in range(20):  # six times around
            first = 10 * episode + 1
            for k in range(3):
                writer.append(step(first + k))
            writer.end_episode({"observation": first + 3})
            before = first if at_start == "repeat" else 0
            frames += [[before] * (3 - k) + list(range(first, first + k + 1)) for k in range(3)]
            batch = live(table)
            kept = frames[-len(table) :]
            assert batch.data["observation"].tolist() == kept
            # The next stack is moved by one step: the oldest frame goes, the next one comes.
            assert batch.data["next_observation"].tolist() == [[*stack[1:], stack[-1] + 1] for stack in kept]
            assert batch.mask["observation"].sum(axis=1).tolist() == [stack[-1] % 10 for stack in kept]
    assert check(table) == []


SHAPES = {"image": (2, 2), "speed": ()}
DEPTHS = {"image": 4, "speed": 2}


@dataclass
class Naive:
    """A buffer that copies every stack, as simply as it can be."""

    items: list[tuple[int, dict[str, list[int]]]]
    episode: list[int]
    max_size: int

    def add(self, key: int, at: int) -> None:
        """The transition from step `at` of the episode to the next."""
        shown = {}
        for name, depth in DEPTHS.items():
            for output, end in ((name, at), (f"next_{name}", at + 1)):
                shown[output] = [self.episode[max(k, 0)] for k in range(end - depth + 1, end + 1)]
        self.items = [*self.items, (key, shown)][-self.max_size :]


def stored(name: str, number: int) -> Any:
    """What column `name` holds in the step of that number."""
    return np.full(SHAPES[name], number % 30_000, np.int16)


@pytest.mark.long
def test_two_keys_of_different_depth_are_what_a_naive_buffer_holds(
    make_table: TableMaker, rng: np.random.Generator
) -> None:
    """E8, ymd-h/cpprb#108, #110, #135, #143: next_of and stack_compress of several keys went wrong when it wrapped."""
    signature = {name: sr.ArraySpec(shape, "int16") for name, shape in SHAPES.items()}
    rule = sr.NStep(1, DEPTHS, next=("image", "speed"))
    table = make_table(100, signature=signature, item=rule, capacity_steps=160, chunk_steps=4, max_streams=1)
    naive = Naive([], [], 100)
    number, max_chunks = 0, 0
    with table.writer() as writer:
        for operation in range(100_000):
            chance = rng.random()
            if chance < 0.9 or not naive.episode:
                keys = writer.append({name: stored(name, number) for name in SHAPES})
                naive.episode.append(number)
                number += 1
                for key in keys.tolist():
                    naive.add(key, len(naive.episode) - 2)
            elif chance < 0.96:
                keys = writer.end_episode({name: stored(name, number) for name in SHAPES})
                naive.episode.append(number)
                number += 1
                naive.add(int(keys[0]), len(naive.episode) - 2)
                naive.episode = []
            elif chance < 0.995:
                gone = {int(key) for key, _ in naive.items if rng.random() < 0.02}
                assert table.delete(np.array(sorted(gone), np.int64)) == len(gone)
                naive.items = [item for item in naive.items if item[0] not in gone]
            elif chance < 0.9955:
                table.reset()
                naive.items = []
            if operation % 500 == 0:
                compare(table, naive)
        compare(table, naive)
        max_chunks = table.estimate().num_chunks
    assert number > 3 * max_chunks * 4  # around the whole arena more than three times
    assert check(table) == []


def compare(table: Any, naive: Naive) -> None:
    """All items, and a sample."""
    assert table.keys().tolist() == [key for key, _ in naive.items]
    by_key = dict(naive.items)
    if not naive.items:
        return
    for batch in (live(table), table.sample(30)):
        for output, values in batch.data.items():
            name = output.removeprefix("next_")
            expected = [[stored(name, n) for n in by_key[key][output]] for key in batch.keys.tolist()]
            np.testing.assert_array_equal(values, np.array(expected))

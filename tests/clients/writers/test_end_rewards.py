"""Of E episodes with reward only at the end, every pattern yields that reward E times: none is lost or comes twice.

A pattern needs its steps to be there, so the episodes are as long as the longest of them.
"""

from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.batches.batch import Batch
from tests.support.tables import TableMaker, check, live

SIGNATURE = {
    "observation": sr.ArraySpec((), "int64"),
    "reward": sr.ArraySpec((), "float32"),
    "terminated": sr.ArraySpec((), "bool"),
}
LENGTHS = (5, 9, 6, 7, 64, 13)
END = [sr.when.end_of_episode]

PATTERNS = {
    "the newest step": sr.Pattern({"reward": ("reward", -1)}),
    "the newest steps": sr.Pattern(lambda step: {"reward": step["reward"][-1:], "stack": step["observation"][-4:]}),
    "a transition": sr.Pattern(
        lambda step: {"now": step["observation"][-2], "reward": step["reward"][-2], "next": step["observation"][-1]}
    ),
    "a transition with a stack": sr.Pattern(
        lambda step: {
            "now": step["observation"][-4:-1],
            "reward": step["reward"][-2],
            "next": step["observation"][-3:],
        }
    ),
    "five steps, at the end": sr.Pattern({"reward": ("reward", slice(-5, None))}, conditions=END),
    "three steps and the next": sr.Pattern(
        lambda step: {"reward": step["reward"][-4:-1], "next": step["observation"][-1]}, conditions=END
    ),
    "every third step, at the end": sr.Pattern({"reward": ("reward", slice(-4, None, 3))}, conditions=END),
    "every third step before the last": sr.Pattern(
        lambda step: {"reward": step["reward"][-5:-1:3], "next": step["observation"][-1]}, conditions=END
    ),
    "where the episode terminated": sr.Pattern(
        {"reward": ("reward", slice(-3, None))}, conditions=[sr.when.data["terminated"] == 1]
    ),
    "where the reward is": sr.Pattern({"reward": ("reward", -1)}, conditions=[sr.when.data["reward"] > 0]),
    "from the third step on": sr.Pattern({"reward": ("reward", -1)}, conditions=[sr.when.step_index >= 2]),
}
# Those that show the step before the newest need a final one to come after the last reward; one that shows the newest
# and no neighbour of it has the final step in its place.
NEED_FINAL = {
    "a transition",
    "a transition with a stack",
    "three steps and the next",
    "every third step before the last",
}
NEED_NONE = {"every third step, at the end"}


def play(writer: Any, *, has_final: bool) -> None:
    """Episodes whose last step alone has a reward: the number of the episode, from 1."""
    for episode, length in enumerate(LENGTHS, 1):
        for k in range(length):
            is_last = k == length - 1
            writer.append({"observation": k, "reward": float(episode * is_last), "terminated": is_last})
        writer.end_episode({"observation": length} if has_final else None)


def rewards(batch: Batch) -> list[float]:
    """The rewards that an item shows, all items together, without zeros."""
    found = batch.data["reward"][batch.mask["reward"]]
    return [float(reward) for reward in found[found != 0]]


@pytest.mark.parametrize("chunk_steps", [1, 3, 64])
@pytest.mark.parametrize("name", PATTERNS)
def test_a_reward_at_the_end_comes_once_an_episode_from_every_pattern(
    make_table: TableMaker, name: str, chunk_steps: int
) -> None:
    for has_final in (False, True):
        if name in (NEED_NONE if has_final else NEED_FINAL):
            continue
        table = make_table(1000, signature=SIGNATURE, chunk_steps=chunk_steps)
        with table.writer(patterns=[PATTERNS[name]]) as writer:
            play(writer, has_final=has_final)
        assert rewards(live(table)) == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], has_final
        assert check(table) == []


@pytest.mark.parametrize("chunk_steps", [1, 3, 64])
def test_the_last_transition_of_a_pattern_has_its_true_next_observation(
    make_table: TableMaker, chunk_steps: int
) -> None:
    table = make_table(1000, signature=SIGNATURE, chunk_steps=chunk_steps, item=PATTERNS["a transition"])
    with table.writer() as writer:
        play(writer, has_final=True)
    data = live(table).data
    expected = np.concatenate([np.arange(length) for length in LENGTHS])
    assert data["now"].tolist() == expected.tolist()
    assert data["next"].tolist() == (expected + 1).tolist()


@pytest.mark.parametrize("chunk_steps", [1, 3, 64])
def test_all_patterns_of_one_writer_yield_it_once_each(make_table: TableMaker, chunk_steps: int) -> None:
    names = ["the newest step", "where the reward is", "from the third step on"]
    table = make_table(1000, signature=SIGNATURE, chunk_steps=chunk_steps)
    with table.writer(patterns=[PATTERNS[name] for name in names]) as writer:
        play(writer, has_final=True)
    assert rewards(live(table)) == [float(e) for e in range(1, 7) for _ in names]

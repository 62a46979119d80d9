"""Of E episodes with reward only at the end, every window and pattern of a vector writer yields that reward E times."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import shmreplay as sr
from shmreplay.clients.writers.vector_writer import VectorWriter
from tests.support.tables import TableMaker, check, live

SIGNATURE = {
    "observation": sr.ArraySpec((), "int64"),
    "action": sr.ArraySpec((), "int64"),
    "reward": sr.ArraySpec((), "float32"),
    "terminated": sr.ArraySpec((), "bool"),
}
NUM_STREAMS = 5
RULES: dict[str, Any] = {
    "transition": sr.Transition(),
    "n-step": sr.NStep(3),
    "n-step with a stack": sr.NStep(5, {"observation": 2}),
    "sequence": sr.Sequence(4, 4),
    "episode": sr.Episode(),
    "unroll": sr.Unroll(4),
    "newest step": sr.Pattern({"reward": ("reward", -1)}),
    "at the end": sr.Pattern({"reward": ("reward", slice(-4, None))}, conditions=[sr.when.end_of_episode]),
}


def play(writer: VectorWriter, rng: np.random.Generator, num_steps: int) -> int:
    """Episodes of 5 to 11 steps, in every stream its own ones, whose last step alone has a reward; how many there were.

    As with next-step autoreset: the row after an end is none.
    """
    lengths = rng.integers(5, 12, NUM_STREAMS)
    at = np.zeros(NUM_STREAMS, np.int64)
    ended = 0
    for _ in range(num_steps):
        is_last = at == lengths - 1
        is_reset = at == lengths
        steps = {"observation": at, "action": at, "reward": np.float32(is_last | is_reset), "terminated": is_last}
        writer.append(steps, mask=~is_reset)
        writer.end_episodes(is_last, {"observation": at + 1})
        ended += int(is_last.sum())
        lengths[is_reset] = rng.integers(5, 12, int(is_reset.sum()))
        at = np.where(is_reset, 0, at + 1)
    # The episodes under way are ended too, without a reward.
    writer.end_episodes((at > 0) & (at <= lengths) & (writer.episode_steps > 0), {"observation": at})
    return ended


def rewards(batch: Any) -> NDArray[np.float32]:
    found, real = batch.data["reward"], batch.mask["reward"]
    if found.ndim == 2 and "next_observation" in batch.data:
        found, real = found[:, 0], real[:, 0]  # n-steps see it as often as they reach it: count references
    shown: NDArray[np.float32] = found[real]
    return shown


@pytest.mark.parametrize("chunk_steps", [1, 3, 64])
@pytest.mark.parametrize("name", RULES)
def test_a_reward_at_the_end_comes_once_an_episode(
    make_table: TableMaker, rng: np.random.Generator, name: str, chunk_steps: int
) -> None:
    table = make_table(2000, signature=SIGNATURE, item_steps=12, chunk_steps=chunk_steps)
    with table.vector_writer(NUM_STREAMS, patterns=[RULES[name]]) as writer:
        ended = play(writer, rng, 100)
    assert ended > 30
    shown = rewards(live(table))
    assert float(shown.sum()) == ended
    assert set(shown.tolist()) <= {0.0, 1.0}
    assert check(table) == []

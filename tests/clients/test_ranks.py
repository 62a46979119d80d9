"""Ranks: seeds of several learners are independent and repeatable; an impossible part is refused."""

from typing import Any

import numpy as np
import pytest

from shmreplay.clients.handles.randomness import Randomness
from shmreplay.clients.ranks import check_rank, seed_of_rank


def first(seed: Any) -> float:
    return float(Randomness(seed).uniforms(1)[0])


def test_each_rank_has_a_stream_of_its_own_and_the_same_in_every_run(seed: int) -> None:
    numbers = [first(seed_of_rank(seed, rank)) for rank in range(50)]
    assert len(set(numbers)) == 50
    assert numbers == [first(seed_of_rank(np.random.SeedSequence(seed), rank)) for rank in range(50)]
    assert first(seed) not in numbers
    assert first(seed_of_rank(seed + 1, 0)) not in numbers


def test_no_seed_stays_none() -> None:
    assert seed_of_rank(None, 3) is None


def test_streams_of_ranks_are_those_that_numpy_spawns(seed: int) -> None:
    """So they are as independent as numpy's are: `SeedSequence.spawn` makes them so."""
    children = np.random.SeedSequence(seed).spawn(1)[0].spawn(4)
    for rank, child in enumerate(children):
        assert seed_of_rank(seed, rank).generate_state(4).tolist() == child.generate_state(4).tolist()  # type: ignore[union-attr]


def test_no_rank_draws_what_a_forked_child_of_an_unranked_process_draws(seed: int) -> None:
    forked = np.random.SeedSequence(seed, spawn_key=(1,))  # as `Randomness` spawns: forks count from 1
    assert first(forked) not in [first(seed_of_rank(seed, rank)) for rank in range(50)]


def test_a_part_that_can_be_is_taken() -> None:
    assert check_rank("table 't'", (0, 1)) == (0, 1)
    assert check_rank("table 't'", [np.int64(3), 4]) == (3, 4)


@pytest.mark.parametrize(
    ("part", "error", "text"),
    [
        (3, TypeError, r"part is 3; expected \(rank, world_size\)$"),
        ((0, 1, 2), TypeError, r"expected \(rank, world_size\)$"),
        ((0.0, 2), TypeError, r"expected \(rank, world_size\) as integers"),
        ((True, 2), TypeError, "as integers"),
        ((2, 2), ValueError, r"part is \(2, 2\); expected \(rank, world_size\) with rank from 0 to 1"),
        ((-1, 2), ValueError, "with rank from 0 to 1"),
        ((0, 0), ValueError, "with world_size from 1 to 65536"),
        ((0, 65537), ValueError, "with world_size from 1 to 65536"),
    ],
)
def test_a_part_that_can_not_be_is_refused(part: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=f"table 't': .*{text}"):
        check_rank("table 't'", part)

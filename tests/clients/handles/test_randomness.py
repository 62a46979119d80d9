"""Randomness: repeatable with a seed, and different in every forked child."""

import os
import struct
from collections.abc import Callable

import numpy as np
import pytest

from shmreplay.clients.handles.randomness import Randomness

Draws = tuple[float, ...]


def draws(randomness: Randomness) -> Draws:
    return tuple(randomness.uniforms(3).tolist())


def in_child(work: Callable[[], Draws]) -> Draws:
    """What a forked child draws."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            numbers = work()
            os.write(theirs, struct.pack(f"{len(numbers)}d", *numbers))
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        told = pipe.read()
    os.waitpid(pid, 0)
    return struct.unpack(f"{len(told) // 8}d", told)


def test_a_seed_with_the_learner_s_progress_begins_other_draws_the_same_in_each_run() -> None:
    assert draws(Randomness((7, 100))) == draws(Randomness((7, 100)))
    assert len({draws(Randomness(seed)) for seed in (7, (7, 0), (7, 100), (7, 101))}) >= 3
    assert draws(Randomness((7, 100))) != draws(Randomness((7, 101)))


def test_a_generator_of_the_caller_s_goes_on_from_its_saved_state(seed: int) -> None:
    generator = np.random.default_rng(seed)
    first = Randomness(generator)
    draws(first)
    state = generator.bit_generator.state
    expected = [draws(first) for _ in range(3)]
    restored = np.random.default_rng()
    restored.bit_generator.state = state
    second = Randomness(restored)
    assert [draws(second) for _ in range(3)] == expected
    assert in_child(lambda: draws(second)) != draws(second)  # a child draws others
    assert first.for_pickle() is not None
    assert Randomness(np.random.Generator(np.random.PCG64(seed))).seeds(2) != [None, None]


def test_uniforms_are_of_the_size_asked_for_and_in_range() -> None:
    numbers = Randomness().uniforms(10_000)
    assert numbers.dtype == np.float64
    assert numbers.shape == (10_000,)
    assert 0 <= numbers.min() <= 0.01
    assert 0.99 <= numbers.max() < 1
    assert Randomness().uniforms(0).tolist() == []


def test_a_seed_repeats_itself_and_no_seed_does_not(seed: int) -> None:
    assert draws(Randomness(seed)) == draws(Randomness(seed)) == draws(Randomness(np.random.SeedSequence(seed)))
    assert draws(Randomness(seed)) != draws(Randomness(seed + 1))
    assert draws(Randomness()) != draws(Randomness())
    assert draws(Randomness([seed, 1])) != draws(Randomness([seed, 2]))
    with pytest.raises(TypeError):
        Randomness("seed")


@pytest.mark.parametrize("is_seeded", [False, True])
def test_children_and_grandchildren_draw_differently(seed: int, is_seeded: bool) -> None:
    randomness = Randomness(seed if is_seeded else None)
    before = draws(randomness)
    children = [in_child(lambda: draws(randomness)) for _ in range(3)]
    grandchildren = [in_child(lambda: in_child(lambda: draws(randomness))) for _ in range(2)]
    siblings = in_child(lambda: in_child(lambda: draws(randomness)) and in_child(lambda: draws(randomness)))
    everyone = [before, *children, *grandchildren, siblings, draws(randomness)]
    assert len(set(everyone)) == len(everyone)


def test_the_parents_draws_do_not_hang_on_its_forks(seed: int) -> None:
    plain, forking = Randomness(seed), Randomness(seed)
    expected = [draws(plain), draws(plain)]
    found = [draws(forking)]
    in_child(lambda: draws(forking))
    found.append(draws(forking))
    assert found == expected


def test_a_seeded_childs_draws_follow_from_seed_and_place_in_the_family(seed: int) -> None:
    """Two generators of one seed go the same way through the same forks, however much the parent drew before."""
    one, two = Randomness(seed), Randomness(seed)
    two.uniforms(17)
    told = in_child(lambda: (*draws(one), *draws(two)))
    assert told[:3] == told[3:]


def test_a_generator_made_in_a_child_is_that_of_its_seed(seed: int) -> None:
    assert in_child(lambda: draws(Randomness(seed))) == draws(Randomness(seed))
    assert in_child(lambda: draws(Randomness())) != in_child(lambda: draws(Randomness()))


def test_a_child_draws_on_from_where_it_is(seed: int) -> None:
    """Only the first call after a fork begins a new sequence."""
    randomness = Randomness(seed)
    told = in_child(lambda: (*draws(randomness), *draws(randomness)))
    assert told[:3] != told[3:]

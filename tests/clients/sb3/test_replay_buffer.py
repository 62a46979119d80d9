"""ReplayBuffer: all transitions are those of SB3's own buffers, told the same; refusals, copies, warnings."""

import copy
import pickle
import re
from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")

from gymnasium import spaces
from stable_baselines3.common import buffers

import shmreplay as sr
from shmreplay.clients.sb3 import DictReplayBuffer, ReplayBuffer
from shmreplay.estimates import estimate
from tests.clients.sb3.conftest import MakeBuffer
from tests.clients.sb3.streams import CONTINUOUS, DICT, DISCRETE, IMAGE, VECTOR, stream
from tests.support.samples import sorted_rows

CASES: dict[str, tuple[Any, Any, int]] = {
    "vector": (VECTOR, CONTINUOUS, 3),
    "image": (IMAGE, DISCRETE, 1),
    "dict": (DICT, spaces.MultiDiscrete([3, 4]), 2),
    "discrete": (spaces.Discrete(1000), spaces.MultiBinary(3), 2),
}


def everything(buffer: Any) -> Any:
    """All that one of SB3's buffers has, as samples."""
    num = buffer.size()
    places, environments = np.divmod(np.arange(num * buffer.n_envs), buffer.n_envs)
    draws = iter([environments])
    randint, np.random.randint = np.random.randint, lambda *_, **__: next(draws)  # type: ignore[assignment]
    try:
        return buffer._get_samples(places)
    finally:
        np.random.randint = randint


def all_of(buffer: ReplayBuffer) -> Any:
    """All that one of ours has, as samples."""
    buffer.flush()
    return buffer._samples(buffer.table.get(buffer.table.keys()), None)


@pytest.mark.parametrize("handles_timeouts", [True, False])
@pytest.mark.parametrize("case", sorted(CASES))
def test_it_has_the_transitions_of_sb3_s_own(
    make_buffer: MakeBuffer, rng: np.random.Generator, case: str, handles_timeouts: bool
) -> None:
    observation_space, action_space, num_envs = CASES[case]
    kind = buffers.DictReplayBuffer if case == "dict" else buffers.ReplayBuffer
    options = {"n_envs": num_envs, "handle_timeout_termination": handles_timeouts}
    theirs: Any = kind(300, observation_space, action_space, "cpu", **options)
    ours = make_buffer(ReplayBuffer, 300, observation_space, action_space, steps_per_episode=1, **options)
    for told in stream(observation_space, action_space, num_envs, 150, rng):
        theirs.add(*copy.deepcopy(told))
        ours.add(*told)
        assert ours.size() == theirs.size()
    expected, found = everything(theirs), all_of(ours)
    assert found._fields == expected._fields
    assert sorted_rows(found) == sorted_rows(expected)
    drawn = ours.sample(50)
    assert type(drawn) is type(expected)
    for ours_of, theirs_of in zip(drawn[1:5], theirs.sample(50)[1:5], strict=True):
        if not isinstance(ours_of, dict):
            assert ours_of.dtype == theirs_of.dtype
            assert ours_of.shape == theirs_of.shape
    assert set(sorted_rows(drawn)) <= set(sorted_rows(expected))


@pytest.mark.parametrize("num_envs", [1, 3])
def test_n_steps_are_those_of_sb3_s_own_to_the_last_bit(
    make_buffer: MakeBuffer, rng: np.random.Generator, num_envs: int
) -> None:
    options = {"n_envs": num_envs, "n_steps": 3, "gamma": 0.97}
    theirs: Any = buffers.NStepReplayBuffer(450, VECTOR, CONTINUOUS, "cpu", **options)
    ours = make_buffer(ReplayBuffer, 450, VECTOR, CONTINUOUS, steps_per_episode=1, **options)
    for told in stream(VECTOR, CONTINUOUS, num_envs, 450 // num_envs - 1, rng):
        theirs.add(*told)
        ours.add(*told)
    assert sorted_rows(all_of(ours)) == sorted_rows(everything(theirs))


def test_n_steps_of_dict_observations_which_sb3_refuses(make_buffer: MakeBuffer, rng: np.random.Generator) -> None:
    ours = make_buffer(DictReplayBuffer, 100, DICT, DISCRETE, n_envs=2, n_steps=2, gamma=0.5, steps_per_episode=1)
    told = list(stream(DICT, DISCRETE, 2, 50, rng))
    for step in told:
        ours.add(*step)
    found = all_of(ours)
    expected = {}  # (image, environment, step): return, discount
    for t, (obs, _, _, rewards, over, _) in enumerate(told):
        for i in range(2):
            goes_on = not over[i] and t + 1 < len(told)
            returned = rewards[i] + 0.5 * told[t + 1][3][i] if goes_on else rewards[i]
            expected[obs["image"][i].tobytes()] = (returned, 0.25 if goes_on else 0.5)
    assert len(found.rewards) == len(expected) == 100
    for image, returned, discount in zip(found.observations["image"], found.rewards, found.discounts, strict=True):
        assert expected[image.numpy().tobytes()] == pytest.approx((returned.item(), discount.item()))


@pytest.mark.parametrize("at_start", ["zeros", "repeat"])
def test_stacks_of_frames_are_stored_once_and_shown_whole(
    make_buffer: MakeBuffer, rng: np.random.Generator, at_start: str
) -> None:
    frames, shape = 4, (1, 6, 6)
    space = spaces.Box(0, 255, (frames, 6, 6), np.uint8)
    theirs = buffers.ReplayBuffer(100, space, DISCRETE, "cpu")
    ours = make_buffer(ReplayBuffer, 100, space, DISCRETE, frames=frames, at_start=at_start, steps_per_episode=1)

    def begun() -> Any:
        frame = rng.integers(0, 255, shape, np.uint8)
        return np.repeat(frame, frames, 0) if at_start == "repeat" else np.concatenate([np.zeros((3, 6, 6)), frame])

    stack = begun()
    for t in range(90):
        following = np.concatenate([stack[1:], rng.integers(0, 255, shape, np.uint8)]).astype(np.uint8)
        over, silent = t % 7 == 6, t % 31 == 30  # a silent end is one that nobody tells
        infos = [{"TimeLimit.truncated": bool(t % 2)}] if over else [{}]
        told: Any = (stack[None], following[None], np.array([t % 4]), np.array([t / 8]), np.array([over]), infos)
        theirs.add(*told)
        ours.add(*told)
        stack = begun().astype(np.uint8) if over or silent else following
    assert sorted_rows(all_of(ours)) == sorted_rows(everything(theirs))
    assert ours.table.spec.signature["observation"].shape == shape


def test_an_empty_buffer_says_so_and_the_first_transition_can_be_drawn_at_once() -> None:
    buffer = ReplayBuffer(100, VECTOR, CONTINUOUS, "cpu")
    assert buffer.size() == 0
    with pytest.raises(ValueError, match=r"sample\(5\) of an empty buffer"):
        buffer.sample(5)
    told = next(stream(VECTOR, CONTINUOUS, 1, 1, np.random.default_rng(1)))
    buffer.add(*told)
    drawn = buffer.sample(5)
    assert (drawn.next_observations.numpy() == told[1]).all()
    buffer.reset()
    assert buffer.size() == 0
    buffer.close()
    buffer.close()


@pytest.mark.parametrize("options", [{}, {"n_steps": 3}, {"frames": 2}], ids=["plain", "n-step", "frames"])
def test_a_private_buffer_is_copied_and_pickled_with_its_rows(
    rng: np.random.Generator, options: dict[str, Any]
) -> None:
    space = spaces.Box(0, 255, (2, 3), np.uint8) if "frames" in options else VECTOR
    buffer = ReplayBuffer(60, space, CONTINUOUS, "cpu", n_envs=2, steps_per_episode=1, **options)
    if "frames" in options:  # of random frames a stack never goes on, so each is an episode
        told = [(*step[:4], np.ones(2, np.bool_), step[5]) for step in stream(space, CONTINUOUS, 2, 50, rng)]
        for step in told:
            for whole in step[:2]:
                whole[:, 0] = 0
    else:
        told = list(stream(space, CONTINUOUS, 2, 50, rng))
    for step in told:
        buffer.add(*step)
    expected = sorted_rows(all_of(buffer))
    copied = copy.deepcopy(buffer)
    loaded = pickle.loads(pickle.dumps(copied))
    copied.close()
    assert loaded.size() == buffer.size() == 30
    if "frames" not in options:
        assert sorted_rows(all_of(loaded)) == expected
    loaded.add(*told[0])
    loaded.flush()
    assert loaded.size() == 30
    for each in (buffer, loaded):
        each.close()


def test_a_buffer_at_an_address_outlives_its_script_and_takes_no_other_size(
    make_buffer: MakeBuffer, rng: np.random.Generator, caplog: pytest.LogCaptureFixture
) -> None:
    first = make_buffer(ReplayBuffer, 100, VECTOR, CONTINUOUS, n_envs=2, table="outlives")
    for told in stream(VECTOR, CONTINUOUS, 2, 10, rng):
        first.add(*told)
    caplog.set_level("INFO", "shmreplay")
    saved = pickle.dumps(first)
    assert "they stay in the table 'outlives'" in caplog.text
    first.close()  # flushes
    again = pickle.loads(saved)
    assert again.size() == 10
    other = make_buffer(ReplayBuffer, 100, VECTOR, CONTINUOUS, n_envs=1, table="outlives")  # an actor's
    assert other.size() == 20
    other.add(*next(stream(VECTOR, CONTINUOUS, 1, 1, rng)))
    other.flush()
    assert len(again.table) == 21
    wrong = make_buffer(ReplayBuffer, 200, VECTOR, CONTINUOUS, n_envs=2, table="outlives")
    with pytest.raises(ValueError, match=r"made with other arguments .*max_size: is 100, asked for 200"):
        wrong.sample(1)
    again.close()


def test_short_episodes_are_told(rng: np.random.Generator) -> None:
    space = spaces.Box(0, 255, (1, 64, 64), np.uint8)
    buffer = ReplayBuffer(1000, space, CONTINUOUS, "cpu")
    for told in stream(space, CONTINUOUS, 1, 1200, rng):
        buffer.add(*(*told[:4], np.ones(1, np.bool_), told[5]))
    with pytest.warns(UserWarning, match=r"holds \d+ of 1000 transitions and is full.*steps_per_episode"):
        buffer.sample(1)
    buffer.sample(1)
    buffer.close()


def test_a_limiter_that_admits_nothing_ends_the_call_by_its_name(
    make_buffer: MakeBuffer, rng: np.random.Generator
) -> None:
    buffer = make_buffer(
        ReplayBuffer, 100, VECTOR, CONTINUOUS, rate_limiter=sr.rate_limiters.MinSize(10), timeout_s=0.01
    )
    buffer.add(*next(stream(VECTOR, CONTINUOUS, 1, 1, rng)))
    with pytest.raises(sr.RateLimitTimeout):
        buffer.sample(1)


def test_what_it_is_not_is_said() -> None:
    buffer = ReplayBuffer(100, VECTOR, CONTINUOUS, "cpu")
    with pytest.raises(AttributeError, match=re.escape("in a table, not in arrays; buffer.table.get(")):
        _ = buffer.observations
    with pytest.raises(AttributeError, match="has no array of dones"):
        buffer.dones[0]
    with pytest.raises(AttributeError, match=r"has no 'whatever'$"):
        _ = buffer.whatever
    with pytest.raises(NotImplementedError, match="has no places"):
        buffer._get_samples(np.zeros(1, np.int64))
    with pytest.raises(TypeError, match=r"observation space is Text.*expected one of a fixed shape"):
        ReplayBuffer(10, spaces.Text(3), CONTINUOUS)
    with pytest.raises(TypeError, match="expected a Dict"):
        DictReplayBuffer(10, VECTOR, CONTINUOUS)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="frames is 2, but an observation has shape"):
        ReplayBuffer(10, VECTOR, CONTINUOUS, frames=2)
    with pytest.raises(ValueError, match="frames is 2, but observations are a dict"):
        ReplayBuffer(10, DICT, CONTINUOUS, frames=2)
    with pytest.raises(ValueError, match="steps_per_episode is 0"):
        ReplayBuffer(10, VECTOR, CONTINUOUS, steps_per_episode=0)


@pytest.mark.parametrize(("frames", "most"), [(1, 0.52), (4, 0.14)])
def test_a_million_steps_of_atari_take_half_the_memory_or_an_eighth(frames: int, most: float) -> None:
    space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    buffer = ReplayBuffer(10**6, space, spaces.Discrete(6), "cpu", n_envs=8, frames=frames)
    planned = estimate([buffer._transitions.spec])
    theirs = 10**6 * (2 * 4 * 84 * 84 + 8 + 3 * 4)  # both observations; action; reward, done and timeout
    assert planned.total_bytes < most * theirs

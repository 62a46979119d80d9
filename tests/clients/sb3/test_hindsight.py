"""HerReplayBuffer beside Stable-Baselines3's own: the same transitions, goals and weights from the same draws."""

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

sb3 = pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")

import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.her import HerReplayBuffer as TheirBuffer

import shmreplay as sr
from shmreplay.clients.sb3 import HerReplayBuffer
from shmreplay.estimates import estimate
from tests.clients.sb3.conftest import MakeBuffer
from tests.clients.sb3.streams import CONTINUOUS, Told

GOAL = spaces.Box(-1000, 1000, (2,), np.float32)
SPACE = spaces.Dict({"observation": GOAL, "achieved_goal": GOAL, "desired_goal": GOAL})
STRATEGIES = ["future", "final", "episode"]


class Rewards:
    """What the buffers ask of a vector environment: a reward that depends on both goals."""

    def get_attr(self, name: str, indices: Any = None) -> list[Any]:
        assert name == "spec"
        return [None]

    def env_method(self, name: str, achieved: Any, desired: Any, infos: Any, indices: Any) -> list[Any]:
        assert (name, indices, len(infos)) == ("compute_reward", [0], len(achieved))
        return [-np.abs(achieved - desired).sum(axis=1)]


def observed(episodes: NDArray[Any], steps: NDArray[Any]) -> dict[str, Any]:
    achieved = np.stack([episodes, steps], axis=1).astype(np.float32)
    return {"observation": achieved + 0.5, "achieved_goal": achieved, "desired_goal": np.full_like(achieved, 7)}


def goal_stream(num_envs: int, num_steps: int, rng: np.random.Generator) -> Iterator[Told]:
    """Episodes of 1 to 8 steps. An achieved goal is (the episode's number, the step), each episode's own."""
    episodes, steps = np.arange(num_envs), np.zeros(num_envs, np.int64)
    ends = rng.integers(1, 9, num_envs)
    for _ in range(num_steps):
        row, following = observed(episodes, steps), observed(episodes, steps + 1)
        steps = steps + 1
        over = steps == ends
        infos = [{"TimeLimit.truncated": bool(rng.random() < 0.5)} if end else {} for end in over]
        actions = rng.uniform(-1, 1, (num_envs, 2))
        yield row, following, actions, rng.normal(size=num_envs).astype(np.float32), over, infos
        episodes, steps = np.where(over, episodes + num_envs, episodes), np.where(over, 0, steps)
        ends = np.where(over, rng.integers(1, 9, num_envs), ends)


def options(**changed: Any) -> dict[str, Any]:
    return {"env": Rewards(), "max_episode_steps": 8, "steps_per_episode": 1, **changed}


def places_of(buffer: HerReplayBuffer) -> dict[bytes, int]:
    """The key of each transition, by its observation."""
    keys = buffer.table.keys()
    rows = buffer.table.get(keys).data["observation"]["observation"]
    return {row.tobytes(): key for row, key in zip(rows, keys.tolist(), strict=True)}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_equal_draws_give_equal_samples_to_the_last_bit(
    make_buffer: MakeBuffer, rng: np.random.Generator, strategy: str
) -> None:
    ours = make_buffer(HerReplayBuffer, 3000, SPACE, CONTINUOUS, n_envs=3, **options(goal_selection_strategy=strategy))
    theirs = TheirBuffer(3000, SPACE, CONTINUOUS, Rewards(), "cpu", 3, goal_selection_strategy=strategy)
    for told in goal_stream(3, 100, rng):
        ours.add(*told)
        theirs.add(*told)
    key_of = places_of(ours)
    assert len(key_of) == (theirs.ep_length > 0).sum()
    assert ours.size() * 3 <= 300 < ours.size() * 3 + 3
    seed = int(rng.integers(2**31))
    np.random.seed(seed)
    expected = theirs.sample(250)
    np.random.seed(seed)
    drawn = np.random.choice(np.flatnonzero(theirs.ep_length > 0), size=250, replace=True)  # before it draws goals
    places, environments = np.unravel_index(drawn, theirs.ep_length.shape)
    rows = theirs.observations["observation"][places, environments]
    keys = np.array([key_of[row.tobytes()] for row in rows])
    found = ours._samples(ours.table.get(np.concatenate([keys[200:], keys[:200]])), None)
    for name in expected._fields[:5]:
        expected_part, found_part = getattr(expected, name), getattr(found, name)
        if isinstance(expected_part, dict):
            assert all(torch.equal(expected_part[key], found_part[key]) for key in expected_part)
        else:
            assert torch.equal(expected_part, found_part), name


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_goals_are_what_their_own_episode_achieves(
    make_buffer: MakeBuffer, rng: np.random.Generator, strategy: str
) -> None:
    buffer = make_buffer(
        HerReplayBuffer, 1000, SPACE, CONTINUOUS, n_envs=2, **options(goal_selection_strategy=strategy)
    )
    last: dict[float, float] = {}  # an episode's last step
    for told in goal_stream(2, 200, rng):
        buffer.add(*told)
        last.update(told[1]["achieved_goal"].tolist())
    samples = buffer.sample(500)
    goals, achieved = samples.observations["desired_goal"].numpy(), samples.next_observations["achieved_goal"].numpy()
    assert torch.equal(samples.observations["desired_goal"], samples.next_observations["desired_goal"])
    assert (goals[:100] == 7).all()  # one of five keeps its own
    goals, achieved = goals[100:], achieved[100:]
    assert (goals[:, 0] == achieved[:, 0]).all()
    lasts = np.array([last[episode] for episode in goals[:, 0].tolist()])
    lowest = {"future": achieved[:, 1], "final": lasts, "episode": np.ones(400)}[strategy]
    assert ((goals[:, 1] >= lowest) & (goals[:, 1] <= lasts)).all()
    for seen, bound in ((goals[:, 1] - lowest, 0), (lasts - goals[:, 1], 0)):  # both ends are drawn
        assert (seen == bound).any()
    np.testing.assert_array_equal(samples.rewards[100:, 0].numpy(), -np.abs(goals - achieved).sum(axis=1))


class SameDraws(HerReplayBuffer):
    """Draws the rows that SB3's own buffer would draw, by the same random numbers; of one environment."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._transitions.seed = lambda: 0  # the global generator stays as it is

    def sample(self, batch_size: int, env: Any = None) -> Any:
        keys = self.table.keys()  # in the order in which they were added
        drawn = keys[np.random.choice(np.arange(len(keys)), size=batch_size, replace=True)]
        num_virtual = int(self.her_ratio * batch_size)
        return self._samples(self.table.get(np.concatenate([drawn[num_virtual:], drawn[:num_virtual]])), env)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["DQN", "SAC"])
def test_equal_draws_train_equally_to_the_last_bit(kind: str) -> None:
    torch.set_num_threads(1)  # small networks: several threads only wait for each other

    def weights(buffer: Any) -> dict[str, torch.Tensor]:
        envs = make_vec_env(lambda: BitFlippingEnv(n_bits=4, continuous=kind == "SAC", max_steps=7), 1, seed=3)
        model = getattr(sb3, kind)(
            "MultiInputPolicy",
            envs,
            seed=1,
            learning_starts=20,
            batch_size=16,
            train_freq=1,
            policy_kwargs={"net_arch": [16]},
            device="cpu",
            replay_buffer_class=buffer,
            replay_buffer_kwargs={"max_episode_steps": 7} if buffer is SameDraws else {},
        )
        model.learn(300)
        if buffer is SameDraws:
            model.replay_buffer.close()
        return dict(model.policy.state_dict())

    expected, found = weights(TheirBuffer), weights(SameDraws)
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def add_step(buffer: HerReplayBuffer, t: int, is_over: bool = False) -> None:
    """Adds the step from t to t + 1 of one environment."""
    here, following = ({name: np.full((1, 2), at, np.float32) for name in SPACE.spaces} for at in (t, t + 1))
    buffer.add(here, following, np.zeros((1, 2)), np.zeros(1), np.array([is_over]), [{}])


def test_a_transition_can_be_drawn_from_the_end_of_its_episode_on(make_buffer: MakeBuffer) -> None:
    buffer = make_buffer(HerReplayBuffer, 100, SPACE, CONTINUOUS, **options())
    for t in range(4):
        add_step(buffer, t)
        assert (buffer.size(), len(buffer.table)) == (t + 1, 0)
    with pytest.raises(RuntimeError, match="no episode has ended yet, so there is nothing to sample"):
        buffer.sample(4)
    add_step(buffer, 4, is_over=True)
    assert len(buffer.table) == buffer.size() == 5
    buffer.sample(4)
    buffer.truncate_last_trajectory()  # nothing is under way: no warning
    add_step(buffer, 0)
    with pytest.warns(UserWarning, match="the episodes under way end here"):
        buffer.truncate_last_trajectory()
    assert len(buffer.table) == 6


def test_of_longer_episodes_transitions_can_be_drawn_while_they_last(make_buffer: MakeBuffer) -> None:
    buffer = make_buffer(HerReplayBuffer, 100, SPACE, CONTINUOUS, **options(max_episode_steps=3))
    for t in range(10):
        add_step(buffer, t)
    assert (len(buffer.table), buffer.size()) == (7, 10)
    goals = buffer.table.get(buffer.table.keys()).data["goals"][..., 0]
    np.testing.assert_array_equal(goals, np.arange(7)[:, None] + [1, 2, 3])


def test_it_is_pickled_with_its_rows_and_without_its_environment(rng: np.random.Generator) -> None:
    buffer = HerReplayBuffer(200, SPACE, CONTINUOUS, device="cpu", **options())
    for told in goal_stream(1, 100, rng):
        buffer.add(*told)
    loaded = pickle.loads(pickle.dumps(buffer))
    batches = [each.table.get(each.table.keys()) for each in (buffer, loaded)]
    assert len(batches[0]) == 100
    for name in ("reward", "goals", "action"):
        np.testing.assert_array_equal(batches[1].data[name], batches[0].data[name])
    with pytest.raises(ValueError, match=r"HerReplayBuffer: it has no env to compute rewards; call set_env\(env\)"):
        loaded.sample(10)
    loaded.set_env(Rewards())
    loaded.sample(10)
    buffer.close()
    loaded.close()


def test_a_learner_draws_the_episodes_of_other_processes(server: sr.Server, rng: np.random.Generator) -> None:
    at = options(address=server.address, table="goals")
    actor, learner = (HerReplayBuffer(100, SPACE, CONTINUOUS, device="cpu", **at) for _ in range(2))
    for told in goal_stream(1, 20, rng):
        actor.add(*told)
    samples = learner.sample(50)
    assert (samples.observations["desired_goal"][10:, 0] == samples.observations["achieved_goal"][10:, 0]).all()
    for buffer in (actor, learner):
        buffer.close()
    with server.client() as client:
        client.drop_tables(["goals"])


@pytest.mark.parametrize(("longest", "num_streams"), [(8, 1024), (1000, 65)])
def test_long_windows_at_an_address_do_not_take_gigabytes(longest: int, num_streams: int) -> None:
    buffer = HerReplayBuffer(
        20_000, SPACE, CONTINUOUS, device="cpu", **options(address="/nowhere.sock", max_episode_steps=longest)
    )
    spec = buffer._transitions.spec
    assert spec.max_streams == num_streams
    assert estimate([spec]).total_bytes < 32 * 2**20


@pytest.mark.parametrize(
    ("space", "changed", "error", "text"),
    [
        (spaces.Dict({"observation": GOAL}), {}, ValueError, "has no achieved_goal, desired_goal; expected"),
        (GOAL, {}, TypeError, "expected a Dict"),
        (SPACE, {"copy_info_dict": True}, ValueError, "a table stores no infos, which are Python objects"),
        (SPACE, {"goal_selection_strategy": "past"}, ValueError, "is 'past'; expected one of future, final, episode"),
        (SPACE, {"n_sampled_goal": -1}, ValueError, "n_sampled_goal is -1; expected"),
        (SPACE, {"n_steps": 3}, ValueError, "'n_steps': 3} given; expected 1 of each"),
        (SPACE, {"max_episode_steps": -2}, ValueError, "max_episode_steps is -2; expected"),
    ],
)
def test_what_it_does_not_take_is_said(space: Any, changed: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        HerReplayBuffer(100, space, CONTINUOUS, device="cpu", **options(**changed))

"""Final observations of same-step resets, in every form that environments give them in, or an error that says how."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import concatenate, create_empty_array

from shmreplay.clients.gymnasium import VectorRecorder, signature
from shmreplay.clients.gymnasium.final_observations import final_observations
from tests.clients.gymnasium.conftest import OBSERVATION, Counting, actions_of, expected, transitions

NUM_ENVS, LENGTH = 3, 2
Infos = dict[str, Any]


def given(infos: Infos) -> Any:
    return infos["final_obs"]


def batched(infos: Infos) -> Any:
    """As environments on an accelerator have them: the structure of the space with arrays of all environments."""
    whole = [obs if obs is not None else OBSERVATION.sample() for obs in infos["final_obs"]]
    empty: Any = create_empty_array(OBSERVATION, NUM_ENVS)
    return concatenate(OBSERVATION, whole, empty)


def by_column(infos: Infos) -> Any:
    """A dict of arrays of objects, with None for environments that go on."""
    found = infos["final_obs"]
    return {
        "where": np.array([None if obs is None else obs["where"] for obs in found] + [None], object)[:-1],
        "flags": [None if obs is None else obs["flags"].tolist() for obs in found],
        "parts": [None if obs is None else list(obs["parts"]) for obs in found],
    }


FORMS: dict[str, Callable[[Infos], Any]] = {
    "as gymnasium": lambda infos: infos,
    "without a mask": lambda infos: {"final_obs": given(infos)},
    "before 1.0": lambda infos: {"final_observation": given(infos), "_final_observation": infos["_final_obs"]},
    "a list": lambda infos: {"final_obs": list(given(infos))},
    "a dict of arrays": lambda infos: {**infos, "final_obs": batched(infos)},
    "a dict of objects": lambda infos: {**infos, "final_obs": by_column(infos)},
    "a dict for each": lambda infos: [{} if obs is None else {"final_obs": obs} for obs in given(infos)],
}


class Giving(gym.vector.VectorWrapper[Any, Any, Any, Any, Any]):
    """Environments that end one after the other, and give their final observations in another form."""

    def __init__(self, form: Callable[[Infos], Any]) -> None:
        makers: Any = [lambda i=i: Counting(i, LENGTH + i, False) for i in range(NUM_ENVS)]
        super().__init__(gym.vector.SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP))
        self._form = form

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
        *rest, infos = self.env.step(actions)
        return (*rest, self._form(infos) if "final_obs" in infos else infos)


def play(envs: Any, steps: int) -> None:
    observation, _ = envs.reset()
    for _ in range(steps):
        observation, *_ = envs.step(actions_of(observation["where"]))


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_rows(table_of: Callable[..., Any], form: str) -> None:
    envs = Giving(FORMS[form])
    table = table_of(signature(envs))
    with table.vector_writer(NUM_ENVS) as writer:
        recorded = VectorRecorder(envs, writer)
        play(recorded, 12)
        recorded.close()
    whole = [
        row
        for i in range(NUM_ENVS)
        for row in expected(i, 12 // (LENGTH + i), LENGTH + i, lambda e, t: [e % 10, t % 20])
    ]
    assert sorted(transitions(table)) == sorted(whole)


def test_an_environment_that_keeps_none_says_so_and_can_be_reset(table_of: Callable[..., Any]) -> None:
    """The rows of that step end the episodes without an outcome; no step of the next episode gets into them."""
    envs = Giving(lambda _: {"score": 3})
    table = table_of(signature(envs))
    with table.vector_writer(NUM_ENVS) as writer:
        recorded = VectorRecorder(envs, writer)
        with pytest.raises(ValueError, match="VectorRecorder: environment 0 reset itself") as raised:
            play(recorded, 12)
        assert str(raised.value) == (
            "VectorRecorder: environment 0 reset itself in the step that ended its episode, but infos has no "
            "'final_obs' but ['score']; expected the final observations in infos['final_obs'], for all environments: a "
            "list or array of objects with one observation each, or the structure of the observation space with arrays "
            "[num_envs, ...]; use another autoreset mode if the environment does not keep them"
        )
        play(recorded, 1)
        recorded.close()
    assert {row[:3] for row in transitions(table)} == {(0, 0, 0), (1, 0, 0), (2, 0, 0), (0, 2, 0), (1, 1, 0), (2, 1, 0)}


PAIR = spaces.Tuple([spaces.Box(0, 9, (2,), np.float32), spaces.Discrete(5)])


@pytest.mark.parametrize(
    ("space", "infos", "text"),
    [
        (PAIR, {}, "infos has no 'final_obs' but []"),
        (PAIR, [{}, {"x": 1}], "infos has no 'final_obs' but ['x']"),
        (PAIR, {"final_obs": 3}, "infos['final_obs'] is int, not 2 observations"),
        (PAIR, {"final_obs": [None]}, "infos['final_obs'] is 1 entries, not 2 observations"),
        (PAIR, {"final_obs": [None, None]}, "infos['final_obs'][1] is None, not a tuple of 2"),
        (PAIR, {"final_obs": [None, (1, 2, 3)]}, "infos['final_obs'][1] is (1, 2, 3), not a tuple of 2"),
        (PAIR, {"final_obs": ([[0, 0], [0]], [0, 1])}, "infos['final_obs'][0][1] is [0], not an array of shape [2]"),
        (PAIR, {"final_obs": ([[0, 0]] * 2, [0, 1.5])}, "infos['final_obs'][1][1] has dtype float64, not int64"),
        (PAIR, {"final_obs": [None, ("ab", 1)]}, "infos['final_obs'][1][0] is 'ab', not an array of shape [2]"),
        (PAIR, {"final_obs": [1, 2], "_final_obs": [True, False]}, "infos['_final_obs'][1] is False"),
        (spaces.Dict({"a": PAIR}), {"final_obs": {"b": [1, 2]}}, "infos['final_obs'] has no 'a'"),
        (spaces.Dict({"a": PAIR}), {"final_obs": [0, {"b": 1}]}, "['final_obs'][1] is {'b': 1}, not a dict of 'a'"),
        (spaces.Text(3), {"final_obs": ["a", 7]}, "infos['final_obs'][1] is 7, not a str"),
        (spaces.Text(3), {"final_obs": "ab"}, "infos['final_obs'] is str, not 2 observations"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(space: spaces.Space[Any], infos: Any, text: str) -> None:
    with pytest.raises(ValueError, match="environment 1 reset itself") as raised:
        final_observations(infos, space, np.array([False, True]))
    assert f"{text}; expected" in str(raised.value)


def test_a_tuple_is_the_structure_where_the_space_is_one() -> None:
    """Also where there are as many environments as parts."""
    over = np.array([True, True])
    each = [(np.zeros(2, np.float32), 1), (np.ones(2, np.float32), 2)]
    empty: Any = create_empty_array(PAIR, 2)
    whole = concatenate(PAIR, each, empty)
    assert isinstance(whole, tuple)
    for form in (whole, each, np.array([*each, None], object)[:-1]):
        found = final_observations({"final_obs": form}, PAIR, over)
        assert [[part.tolist() for part in observation] for observation in found] == [[[0, 0], 1], [[1, 1], 2]]

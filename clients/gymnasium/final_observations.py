"""The final observations of environments that reset themselves in the step that ends their episode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

NAMES = ("final_obs", "final_observation")  # gymnasium's name, and that of its versions before 1.0
EXPECTED = (
    "expected the final observations in infos['final_obs'], for all environments: a list or array of objects with one "
    "observation each, or the structure of the observation space with arrays [num_envs, ...]; use another autoreset "
    "mode if the environment does not keep them"
)


def final_observations(infos: Any, space: spaces.Space[Any], over: NDArray[np.bool_]) -> list[Any]:
    """Returns the final observation of each environment that is over, in order.

    Args:
        infos: of the step: a dict, or a list of one for each environment, as `DictInfoToList` makes it.
        space: of a single observation.
        over: bool `[num_envs]`.

    Raises:
        ValueError: they are not in there; the text says what is missing, and what is expected.
    """
    numbers = np.flatnonzero(over).tolist()
    name, given, there = _find(infos, len(over))
    if name is None:
        others = sorted(map(str, infos[numbers[0]] if isinstance(infos, (list, tuple)) else infos))
        _refuse(numbers[0], f"infos has no 'final_obs' but {others!r:.100}")
    if there is not None:
        for number in numbers:
            if not there[number]:
                _refuse(number, f"infos['_{name}'][{number}] is False")
    return [_observation_of(number, given, space, len(over), f"infos[{name!r}]") for number in numbers]


def _find(infos: Any, num_envs: int) -> tuple[str | None, Any, Any]:
    """The name of the entry that has them, the entry, and its mask; None for what there is not."""
    if isinstance(infos, (list, tuple)):
        infos = {name: [info.get(name) for info in infos] for name in NAMES if any(name in info for info in infos)}
    name = next((name for name in NAMES if name in infos), None)
    there = infos.get(f"_{name}")
    return name, infos.get(name), there if there is not None and len(there) == num_envs else None


def _observation_of(number: int, given: Any, space: spaces.Space[Any], num_envs: int, where: str) -> Any:
    """The observation of one environment, or the part of it that `space` is, out of what is given for all."""
    if isinstance(space, spaces.Dict) and isinstance(given, Mapping):
        if lacking := sorted(space.spaces.keys() - given.keys()):
            _refuse(number, f"{where} has no {lacking[0]!r}")
        return {
            name: _observation_of(number, given[name], part, num_envs, f"{where}[{name!r}]")
            for name, part in space.spaces.items()
        }
    if isinstance(space, spaces.Tuple) and isinstance(given, tuple) and len(given) == len(space.spaces):
        return tuple(
            _observation_of(number, given[i], part, num_envs, f"{where}[{i}]") for i, part in enumerate(space.spaces)
        )
    if not hasattr(given, "__len__") or isinstance(given, (Mapping, str)) or len(given) != num_envs:
        shown = f"{len(given)} entries" if isinstance(given, (list, tuple, np.ndarray)) else type(given).__name__
        _refuse(number, f"{where} is {shown}, not {num_envs} observations")
    return _checked(number, given[number], space, f"{where}[{number}]")


def _checked(number: int, value: Any, space: spaces.Space[Any], where: str) -> Any:
    """Returns an observation as arrays of its space's structure."""
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping) or value.keys() != space.spaces.keys():
            _refuse(number, f"{where} is {value!r:.60}, not a dict of {', '.join(map(repr, space.spaces))}")
        return {name: _checked(number, value[name], part, f"{where}[{name!r}]") for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        if not isinstance(value, (tuple, list)) or len(value) != len(space.spaces):
            _refuse(number, f"{where} is {value!r:.60}, not a tuple of {len(space.spaces)}")
        return tuple(_checked(number, value[i], part, f"{where}[{i}]") for i, part in enumerate(space.spaces))
    if isinstance(space, spaces.Text):
        if not isinstance(value, str):
            _refuse(number, f"{where} is {value!r:.60}, not a str")
        return value
    array = np.asarray(value)
    if array.dtype.hasobject or array.shape != space.shape:
        _refuse(number, f"{where} is {value!r:.60}, not an array of shape {list(space.shape or ())}")
    if array.dtype.kind == "f" and np.dtype(space.dtype).kind != "f":
        _refuse(number, f"{where} has dtype {array.dtype}, not {np.dtype(space.dtype)}")
    return array


def _refuse(number: int, why: str) -> NoReturn:
    raise ValueError(
        f"VectorRecorder: environment {number} reset itself in the step that ended its episode, but {why}; {EXPECTED}"
    )

"""A plugin of pytest that runs Stable-Baselines3's own tests with our buffers in the places of its own.

scripts/sb3_tests.py runs it in the folder of their sources. The tables of all buffers lie on one server.
"""

import itertools
import re
from typing import Any

import pytest
import stable_baselines3
from stable_baselines3 import her
from stable_baselines3.common import buffers, off_policy_algorithm

import shmreplay as sr
from shmreplay.clients.sb3 import DictReplayBuffer, HerReplayBuffer, ReplayBuffer

# Tests that are left out, and why.
LEFT_OUT = {
    r"PPO|A2C|on_policy|rollout|Rollout": "on-policy: no replay buffer",
    r"test_truncate_last_trajectory": "compares the arrays",
    r"test_performance_her": "asks one seed for 0.9; of five, their own buffer reaches 0.24 to 0.98",
    r"test_nstep_early|test_nstep_no_term|test_match_normal_buffer": "draw by place, `_get_samples`",
    r"test_buffer_dtypes": "reads the arrays' dtypes, and samples a buffer that it only calls full",
    r"test_save_load_replay_buffer": "compares the arrays of a loaded buffer",
}

LARGEST = 20_000  # transitions of a buffer with hindsight

_names = (f"buffer-{i}" for i in itertools.count())
_server = sr.Server()


class OurReplayBuffer(ReplayBuffer):
    """Its table is on this process's server, under a new name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, address=_server.address, table=next(_names), **kwargs)


class OurDictReplayBuffer(DictReplayBuffer):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, address=_server.address, table=next(_names), **kwargs)


class OurNStepReplayBuffer(OurReplayBuffer):
    def __init__(self, *args: Any, n_steps: int = 3, gamma: float = 0.99, **kwargs: Any) -> None:
        super().__init__(*args, n_steps=n_steps, gamma=gamma, **kwargs)


class OurHerReplayBuffer(HerReplayBuffer):
    """Without the infos, which a table does not store, and which the tests' environment does not look at.

    It has room for what the tests add: the million images that are the default take gigabytes, which a table reserves.
    """

    def __init__(self, buffer_size: int, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("copy_info_dict", None)
        super().__init__(min(buffer_size, LARGEST), *args, address=_server.address, table=next(_names), **kwargs)


for _module in (buffers, off_policy_algorithm):
    _module.ReplayBuffer = OurReplayBuffer
    _module.DictReplayBuffer = OurDictReplayBuffer
    _module.NStepReplayBuffer = OurNStepReplayBuffer
for _module in (stable_baselines3, her, her.her_replay_buffer):
    _module.HerReplayBuffer = OurHerReplayBuffer


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left = [item for item in items if any(re.search(pattern, item.nodeid) for pattern in LEFT_OUT)]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Drops the tables of the test that ended."""
    with _server.client() as client:
        if names := list(client.tables()):
            client.drop_tables(names)


def pytest_unconfigure() -> None:
    _server.close()

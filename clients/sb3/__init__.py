"""Replay buffers of Stable-Baselines3 over tables: `replay_buffer_class=` of DQN, SAC, TD3, DDPG and those like them.

Reading order: `replay_buffer`, `prioritized`, `hindsight`. Their tables and rows: `shmreplay.clients.transitions`.
"""

import importlib.util

if importlib.util.find_spec("stable_baselines3") is None:
    raise ImportError(
        "shmreplay.clients.sb3 has replay buffers for Stable-Baselines3, and stable_baselines3 is not installed; "
        "install it: pip install 'shmreplay[sb3]'"
    )

from shmreplay.clients.sb3.hindsight import HerReplayBuffer
from shmreplay.clients.sb3.prioritized import PrioritizedReplayBuffer, PrioritizedReplayBufferSamples
from shmreplay.clients.sb3.replay_buffer import DictReplayBuffer, ReplayBuffer

__all__ = [
    "DictReplayBuffer",
    "HerReplayBuffer",
    "PrioritizedReplayBuffer",
    "PrioritizedReplayBufferSamples",
    "ReplayBuffer",
]

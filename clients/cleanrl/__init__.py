"""Replay buffers for CleanRL's scripts: change the import of `ReplayBuffer` or `PrioritizedReplayBuffer`. Needs torch.

Reading order: `replay_buffer` (of most scripts), `rainbow` (of rainbow_atari.py).
"""

import importlib.util

if importlib.util.find_spec("torch") is None:
    raise ImportError(
        "shmreplay.clients.cleanrl has replay buffers for scripts with PyTorch, and torch is not installed; "
        "install it: pip install 'shmreplay[cleanrl]'"
    )

from shmreplay.clients.cleanrl.rainbow import PrioritizedBatch, PrioritizedReplayBuffer
from shmreplay.clients.cleanrl.replay_buffer import ReplayBuffer, ReplayBufferSamples

__all__ = ["PrioritizedBatch", "PrioritizedReplayBuffer", "ReplayBuffer", "ReplayBufferSamples"]

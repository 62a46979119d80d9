"""What PyTorch learners use: batches of tensors on their device, a data set, a replay buffer with TorchRL's calls.

Reading order: `batch`, `sampler` (makes the batches), `host`, `staging` and `gather` (the ways to the device, called
transports), `choice` (picks one), `targets`, `dataset`, `replay_buffer`. Only `device_tensors` calls torch.cuda, and
nothing here uses CUDA before a sampler for a GPU is made.
"""

import importlib.util

if importlib.util.find_spec("torch") is None:
    raise ImportError(
        "shmreplay.clients.torch gives PyTorch learners their batches, and torch is not installed; "
        "install it: pip install 'shmreplay[torch]'"
    )

from shmreplay.clients.torch.batch import TorchBatch
from shmreplay.clients.torch.dataset import ReplayDataset
from shmreplay.clients.torch.info import TransferInfo
from shmreplay.clients.torch.replay_buffer import TorchReplayBuffer
from shmreplay.clients.torch.sampler import TorchSampler
from shmreplay.clients.torch.targets import TorchTargets, n_step_targets
from shmreplay.clients.torch.views import view_tensors

__all__ = [
    "ReplayDataset",
    "TorchBatch",
    "TorchReplayBuffer",
    "TorchSampler",
    "TorchTargets",
    "TransferInfo",
    "n_step_targets",
    "view_tensors",
]

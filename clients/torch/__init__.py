"""What PyTorch learners hold: batches of tensors on their device, a data set, a replay buffer with TorchRL's calls.

Reading order: `batch` (what they get), `sampler` (from whom), `host`, `staging` and `gather` (the ways to the device),
`choice` (which one, and why), `targets`, `dataset`, `replay_buffer`. What is torch.cuda's own is in `device_tensors`
alone, and nothing here touches CUDA before a sampler for a GPU is made.
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

"""n-step targets of a batch of tensors, as tensors on the batch's device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shmreplay.clients.torch.batch import TorchBatch
from shmreplay.columns.signature import Signature
from shmreplay.rules import targets


class TorchTargets(NamedTuple):
    """What `n_step_targets` returns, on the batch's device: `[B, *shape]` in torch's default dtype for rewards of that
    shape, num_steps int64 `[B]`."""

    returns: Tensor
    discounts: Tensor
    num_steps: Tensor


def n_step_targets(
    batch: TorchBatch, gamma: float, *, reward: str = "reward", terminated: str = "terminated"
) -> TorchTargets:
    """The target of item i is `returns[i] + discounts[i] * V(next_observation[i])`: see `shmreplay.n_step_targets`.

    Rewards, flags and masks, which are small, are processed on the host. For a batch on a GPU, the caller therefore
    waits for its stream.

    Raises:
        ValueError: as by `shmreplay.n_step_targets`.
    """
    found = targets.n_step_targets(_on_host(batch, (reward, terminated)), gamma, reward=reward, terminated=terminated)
    dtype = torch.get_default_dtype()
    return TorchTargets(
        torch.from_numpy(found.returns).to(batch.device, dtype),
        torch.from_numpy(found.discounts).to(batch.device, dtype),
        torch.from_numpy(found.num_steps).to(batch.device),
    )


@dataclass(frozen=True)
class _OnHost:
    """The parts of a batch that targets are computed from, in host memory."""

    data: Any
    mask: Any
    time_major: bool
    _signature: Signature


def _on_host(batch: TorchBatch, names: tuple[str, ...]) -> _OnHost:
    data = batch.data
    if isinstance(data, Mapping):
        is_tensor = {name: name in names and isinstance(column, Tensor) for name, column in data.items()}
        data = {name: column.detach().cpu() if is_tensor[name] else column for name, column in data.items()}
    masks = [batch._mask(i, torch.device("cpu")) for i in range(len(batch._parts.masks))]
    return _OnHost(data, batch._unflatten(masks), batch.time_major, batch._form.signature)

"""Chooses the way that batches take to their device."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import torch

from shmreplay.base.checks import check_choice
from shmreplay.clients.batches.sample_options import SampleOptions
from shmreplay.clients.cuda.device import open_device
from shmreplay.clients.cuda.errors import CudaUnavailable
from shmreplay.clients.samplers.sampler import Source
from shmreplay.clients.torch.device_tensors import DeviceTensors
from shmreplay.clients.torch.gather import GatherTransport, why_not_gather
from shmreplay.clients.torch.host import HostTransport
from shmreplay.clients.torch.staging import StagingTransport
from shmreplay.clients.torch.transport import Transport

Transfer: TypeAlias = Literal["auto", "gather", "staging", "pageable"]
TRANSFERS: tuple[Transfer, ...] = get_args(Transfer)
ASKED_FOR = "it was asked for"


def open_transport(
    source: Source,
    options: SampleOptions,
    prefetch: int,
    device: torch.device,
    transfer: Transfer,
) -> Transport:
    """Returns the best transport for the device, or the one asked for.

    Raises:
        ValueError: `transfer` is unknown, or impossible for the device or the options.
        CudaUnavailable: the device is a GPU that torch does not see, or the transport asked for is not possible there.
    """
    check_choice(source.where, "transfer", transfer, TRANSFERS)
    if device.type != "cuda":
        return _without_cuda(source, prefetch, device, transfer)
    no_gather = why_not_gather(source, options)
    if transfer == "gather" and no_gather is not None:
        raise ValueError(f"{source.where}: transfer is 'gather', but {no_gather}; leave transfer out, or the option")
    tensors = DeviceTensors(device)
    if transfer == "pageable":
        return HostTransport(source, prefetch, tensors.device, ASKED_FOR)
    try:
        gpu = open_device(tensors.device.index), tensors
    except CudaUnavailable as error:  # torch can use the GPU, but with another maker's driver
        if transfer != "auto":
            raise
        return HostTransport(source, prefetch, tensors.device, str(error))
    why = ASKED_FOR if transfer == "staging" else no_gather or ""
    staging = StagingTransport(source, prefetch, gpu, why, transfer == "staging")
    if transfer == "staging" or no_gather is not None:
        return staging
    return GatherTransport(source, options, gpu, staging, transfer == "gather")


def _without_cuda(source: Source, prefetch: int, device: torch.device, transfer: Transfer) -> HostTransport:
    if transfer in ("gather", "staging"):
        raise ValueError(
            f"{source.where}: transfer is {transfer!r}, but device is {str(device)!r}; only an NVIDIA GPU takes "
            "batches that way, such as device='cuda:0': leave transfer out"
        )
    if device.type == "cpu":
        return HostTransport(source, prefetch, device, "the learner is on the CPU")
    return HostTransport(source, prefetch, device, f"device {str(device)!r} is not an NVIDIA GPU")

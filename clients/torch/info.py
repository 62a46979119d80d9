"""TransferInfo: what `TorchSampler.info()` returns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TransferInfo:
    """How a sampler's batches get to their device.

    Attributes:
        device: where they go.
        transfer: the way of the newest batch: "gather", "staging" or "pageable"; "none": batches stay on the CPU.
        why: the reason for that way, in one sentence.
        batches: number of batches returned so far.
        gathered_bytes: bytes that this process copied from the table into its own memory, for batches so far.
        sent_bytes: bytes copied from there to the device.
        read_bytes: bytes that the device read directly from the table.
        pin_state: page lock of the table's data segment: "none" (it does not get one), "waiting", "registering",
            "registered", "refused" or "closed".
        pin_reason: why the page lock was refused; otherwise "".
    """

    device: str
    transfer: str
    why: str
    batches: int
    gathered_bytes: int
    sent_bytes: int
    read_bytes: int
    pin_state: str
    pin_reason: str

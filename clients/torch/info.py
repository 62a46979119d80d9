"""TransferInfo: what `TorchSampler.info()` returns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TransferInfo:
    """How a sampler's batches get to their device.

    Attributes:
        device: where they go.
        transfer: by which way the newest did: "gather", "staging" or "pageable"; "none": they stay on the CPU.
        why: in a sentence, why that one.
        batches: handed out so far.
        gathered_bytes: of them, what this process' cores copied from the table into memory of its own.
        sent_bytes: what was copied from there to the device.
        read_bytes: what the device read where it lies in the table.
        pin_state: of the table's data segment: "none" (it is not to be page-locked), "waiting", "registering",
            "registered", "refused" or "closed".
        pin_reason: why it was refused; else "".
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

"""The errors of learners with a GPU. A learner that can do without a GPU catches both and goes on."""

from __future__ import annotations

from enum import IntEnum

from shmreplay.errors import ShmReplayError


class Result(IntEnum):
    """The answers of the driver (CUresult in cuda.h) that code here acts on."""

    SUCCESS = 0
    INVALID_VALUE = 1
    NOT_INITIALIZED = 3
    NO_DEVICE = 100
    NOT_READY = 600
    HOST_MEMORY_ALREADY_REGISTERED = 712
    NOT_SUPPORTED = 801


class CudaUnavailable(ShmReplayError):
    """This process cannot use a GPU.

    Attributes:
        reason: why not, and what could be done about it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"CUDA cannot be used here: {self.reason}"


class CudaError(ShmReplayError):
    """The driver refused a call.

    Attributes:
        call: the driver's function.
        code: what it returned, a CUresult.
        name: the driver's name for the code, such as "CUDA_ERROR_OUT_OF_MEMORY".
    """

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(call, code, name)
        self.call = call
        self.code = code
        self.name = name

    def __str__(self) -> str:
        return f"{self.call} failed with {self.name} ({self.code})"

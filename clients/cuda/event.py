"""Event: a place in a stream of a GPU, and whether the GPU has reached it."""

from __future__ import annotations

import time
from ctypes import byref, c_void_p

from shmreplay.clients.cuda.device import Device
from shmreplay.clients.cuda.errors import CudaUnavailable, Result

_DISABLE_TIMING = 2
# The driver's own wait has no timeout and ignores Ctrl-C. So `wait` polls, with pauses that grow with the time it has
# waited: it is late by at most an eighth of the wait and a millisecond, apart from the first pause.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _PART = 20e-6, 1e-3, 8


class Event:
    """An event, which counts as done until it is recorded.

    Its methods raise the same errors as those of `Device`, and errors of the copies before the event.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        handle = c_void_p()
        device.call("cuEventCreate", byref(handle), _DISABLE_TIMING)
        self._handle: c_void_p | None = handle

    @property
    def handle(self) -> c_void_p:
        """The driver's handle. Raises CudaUnavailable after `destroy`."""
        if self._handle is None:
            raise CudaUnavailable("this event is destroyed; make another one")
        return self._handle

    def record(self, stream: int) -> None:
        """Puts it after everything that the stream has been given so far."""
        self._device.call("cuEventRecord", self.handle, stream)

    def is_done(self) -> bool:
        """Whether the GPU has done everything before the last `record`. True if there was no `record`."""
        code = self._device.result("cuEventQuery", self.handle)
        if code not in (Result.SUCCESS, Result.NOT_READY):
            raise self._device.driver.error("cuEventQuery", code)
        return code == Result.SUCCESS

    def hold_up(self, stream: int) -> None:
        """Makes all later work of the stream wait for the last `record`. The caller does not wait."""
        self._device.call("cuStreamWaitEvent", stream, self.handle, 0)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until it is done. Returns False if it is not after `timeout_s` seconds (None: no limit).

        Ctrl-C ends the wait.
        """
        began = time.monotonic()
        while not self.is_done():
            waited = time.monotonic() - began
            if timeout_s is not None and waited >= timeout_s:
                return False
            pause = min(max(waited / _PART, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
            time.sleep(pause if timeout_s is None else min(pause, timeout_s - waited))
        return True

    def destroy(self) -> None:
        """Destroys it, done or not. Idempotent. Does nothing in a forked child."""
        handle, self._handle = self._handle, None
        if handle is not None and self._device.driver.is_own and not self._device.is_closed:
            self._device.call("cuEventDestroy_v2", handle)

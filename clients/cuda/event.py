"""Event: a place in a stream of a GPU, and whether the GPU has come by it."""

from __future__ import annotations

import time
from ctypes import byref, c_void_p
from typing import TYPE_CHECKING

from shmreplay.clients.cuda.errors import CudaUnavailable, Result

if TYPE_CHECKING:
    from shmreplay.clients.cuda.device import Device

_DISABLE_TIMING = 2
# The driver's own wait has no bound and hears no Ctrl-C, so `wait` asks again and again, after pauses that are a part
# of what it has waited: but for the first pause it is late by an eighth of its wait at most, and by a millisecond.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _PART = 20e-6, 1e-3, 8


class Event:
    """Made by `Device.event_create`. Raises what the device's methods raise; an error of the copies before it too."""

    def __init__(self, device: Device) -> None:
        self._device = device
        handle = c_void_p()
        device.call("cuEventCreate", byref(handle), _DISABLE_TIMING)
        self._handle: c_void_p | None = handle

    @property
    def handle(self) -> c_void_p:
        """The driver's. Raises CudaUnavailable after `destroy`."""
        if self._handle is None:
            raise CudaUnavailable("this event is destroyed; make another one")
        return self._handle

    def record(self, stream: int) -> None:
        """From now on it stands behind what the stream has been given so far."""
        self._device.call("cuEventRecord", self.handle, stream)

    def is_done(self) -> bool:
        """Whether the GPU has done what came before the last `record`; True where there was none."""
        code = self._device.result("cuEventQuery", self.handle)
        if code not in (Result.SUCCESS, Result.NOT_READY):
            raise self._device.driver.error("cuEventQuery", code)
        return code == Result.SUCCESS

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until it is done, and says whether it is: False after `timeout_s` seconds (None: no bound).

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
        """Lets go of it, done or not. Idempotent; nothing in a forked child."""
        handle, self._handle = self._handle, None
        if handle is not None and self._device.driver.is_own and not self._device.is_closed:
            self._device.call("cuEventDestroy_v2", handle)

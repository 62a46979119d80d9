"""Device: one GPU, as far as batches go there: page-locked memory, streams, events and copies."""

from __future__ import annotations

import logging
from ctypes import byref, c_int, c_uint64, c_void_p
from enum import IntEnum
from types import TracebackType
from typing import TYPE_CHECKING, Any

from shmreplay.clients.cuda.errors import CudaUnavailable, Result
from shmreplay.clients.cuda.event import Event

if TYPE_CHECKING:
    from shmreplay.clients.cuda.driver import Driver

logger = logging.getLogger("shmreplay")

_PORTABLE, _DEVICEMAP = 1, 2  # of cuMemHostRegister and cuMemHostAlloc: for all contexts, and in the GPU's page tables
_STREAM_NON_BLOCKING = 1  # does not wait for the legacy default stream


class Attribute(IntEnum):
    """Those of a GPU (CUdevice_attribute in cuda.h) that decide how batches get there; each is 0 or 1."""

    CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM = 91  # page-locked memory has one address for processor and GPU
    HOST_REGISTER_SUPPORTED = 99  # memory that is there can be page-locked
    PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES = 100  # it reads any memory by the processor's page tables
    READ_ONLY_HOST_REGISTER_SUPPORTED = 113  # so can memory that is mapped for reading only


class Device:
    """One GPU, by its primary context. Made by `Driver.device`; a context manager.

    Any thread may call: each call makes the context current for itself alone. Addresses are integers, of the processor
    unless a name says device; a stream is its handle, 0 the default one. All methods but `close` raise CudaError if
    the driver refuses, and CudaUnavailable after `close` and in a forked child, where `close` does nothing.
    """

    def __init__(self, driver: Driver, ordinal: int) -> None:
        """Raises CudaError if the GPU gives no context."""
        handle, context = c_int(), c_void_p()
        driver.call("cuDeviceGet", byref(handle), ordinal)
        driver.call("cuDevicePrimaryCtxRetain", byref(context), handle)
        self._driver = driver
        self._handle = handle
        self._context: c_void_p | None = context
        self.ordinal = ordinal

    @property
    def driver(self) -> Driver:
        """The driver that it is of."""
        return self._driver

    def again(self) -> Device:
        """Another handle of the same GPU, for who may outlive this one. Raises CudaError as the first one did."""
        return Device(self._driver, self.ordinal)

    @property
    def name(self) -> str:
        """The maker's name for it."""
        return self._driver.name(self.ordinal)

    def has(self, attribute: Attribute) -> bool:
        """Whether it has what the attribute is about; not, if its driver is too old to know."""
        value = c_int()
        code = self._driver.result("cuDeviceGetAttribute", byref(value), attribute, self._handle)
        if code not in (Result.SUCCESS, Result.INVALID_VALUE):
            raise self._driver.error("cuDeviceGetAttribute", code)
        return code == Result.SUCCESS and value.value != 0

    # --- memory of the host --------------------------------------------------------------------------------------

    def register(self, address: int, num_bytes: int) -> None:
        """Page-locks memory where it lies and maps it for this GPU and all others.

        Whole pages, of which none may be registered already, by whomever in this process. It has to stay mapped until
        `unregister`.
        """
        self.call("cuMemHostRegister_v2", address, num_bytes, _PORTABLE | _DEVICEMAP)

    def unregister(self, address: int) -> None:
        """Undoes the `register` that began at the address."""
        self.call("cuMemHostUnregister", address)

    def host_alloc(self, num_bytes: int) -> int:
        """The address of new page-locked memory, which begins at a page."""
        address = c_void_p()
        self.call("cuMemHostAlloc", byref(address), num_bytes, _PORTABLE | _DEVICEMAP)
        return address.value or 0

    def host_free(self, address: int) -> None:
        """Gives back what `host_alloc` gave. No copy may be under way there."""
        self.call("cuMemFreeHost", address)

    # --- memory of the GPU, and copies ---------------------------------------------------------------------------

    def alloc(self, num_bytes: int) -> int:
        """The device address of new memory of the GPU."""
        address = c_uint64()
        self.call("cuMemAlloc_v2", byref(address), num_bytes)
        return address.value

    def free(self, device_address: int) -> None:
        """Gives back what `alloc` gave."""
        self.call("cuMemFree_v2", device_address)

    def copy_to_device_async(self, device_address: int, address: int, num_bytes: int, stream: int) -> None:
        """Has the stream copy to the GPU. From page-locked memory it returns at once, and the bytes are read later:
        they have to stay as they are until an event recorded behind the copy is done. Both ends of the source lie in
        one registration."""
        self.call("cuMemcpyHtoDAsync_v2", device_address, address, num_bytes, stream)

    # --- streams and events --------------------------------------------------------------------------------------

    def stream_create(self) -> int:
        """A new stream, which waits for no other one unless told to."""
        stream = c_void_p()
        self.call("cuStreamCreate", byref(stream), _STREAM_NON_BLOCKING)
        return stream.value or 0

    def stream_destroy(self, stream: int) -> None:
        """Lets go of a stream. What it has been given it still does."""
        self.call("cuStreamDestroy_v2", stream)

    def stream_wait(self, stream: int, event: Event) -> None:
        """Has what the stream is given from now on wait for the event's last record. The caller does not wait."""
        self.call("cuStreamWaitEvent", stream, event.handle, 0)

    def event_create(self) -> Event:
        """A new event, done until it is recorded."""
        return Event(self)

    # --- the end -------------------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._context is None

    def close(self) -> None:
        """Lets go of the context; it goes with the last one who has it, and with it what is left in it. Idempotent.

        A driver that refuses that, as one whose GPU failed does, is told of in the log: nobody could do anything else.
        """
        context, self._context = self._context, None
        if context is not None and self._driver.is_own:
            name = "cuDevicePrimaryCtxRelease_v2"
            if code := self._driver.result(name, self._handle):
                logger.warning("GPU %d: %s", self.ordinal, self._driver.error(name, code))

    def __enter__(self) -> Device:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function of the driver with this GPU's context current; afterwards the caller's is, as before."""
        if code := self.result(name, *arguments):
            raise self._driver.error(name, code)

    def result(self, name: str, *arguments: Any) -> int:
        """The same, for who looks at the CUresult: see `Driver.result`."""
        if (context := self._context) is None:
            raise CudaUnavailable(f"this handle of GPU {self.ordinal} is closed; make another one")
        return self._driver.result_within(context, name, *arguments)

    def __repr__(self) -> str:
        return f"<GPU {self.ordinal}{' closed' if self.is_closed else ''}>"

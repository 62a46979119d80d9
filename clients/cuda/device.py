"""Device: one GPU, as far as batches need it: page-locked memory, streams and copies."""

from __future__ import annotations

import logging
from ctypes import byref, c_int, c_uint64, c_void_p
from enum import IntEnum
from types import TracebackType
from typing import Any

from shmreplay.clients.cuda.driver import Driver
from shmreplay.clients.cuda.errors import CudaError, CudaUnavailable, Result

logger = logging.getLogger("shmreplay")

_PORTABLE, _DEVICEMAP = 1, 2  # of cuMemHostRegister and cuMemHostAlloc: for all contexts, and in the GPU's page tables
_STREAM_NON_BLOCKING = 1  # does not wait for the legacy default stream


class Attribute(IntEnum):
    """The attributes of a GPU (CUdevice_attribute in cuda.h) that decide how batches get there; each is 0 or 1."""

    CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM = 91  # page-locked memory has one address for processor and GPU
    HOST_REGISTER_SUPPORTED = 99  # existing memory can be page-locked


class Device:
    """One GPU, by its primary context. Made by `open_device`; a context manager.

    Any thread may call its methods: each call makes the context current only for itself. Addresses are integers, in
    the processor's memory unless a name says device. A stream is given by its handle; 0 is the default stream. All
    methods except `close` raise CudaError if the driver refuses, and CudaUnavailable after `close` and in a forked
    child. In a forked child `close` does nothing.
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
        """The driver that it was opened with."""
        return self._driver

    def again(self) -> Device:
        """Another handle of the same GPU, for an object that may outlive this one. Raises CudaError as `__init__`."""
        return Device(self._driver, self.ordinal)

    @property
    def name(self) -> str:
        """The maker's name for it."""
        return self._driver.name(self.ordinal)

    def has(self, attribute: Attribute) -> bool:
        """Whether the GPU has an attribute. False if its driver is too old to know it."""
        value = c_int()
        code = self._driver.result("cuDeviceGetAttribute", byref(value), attribute, self._handle)
        if code not in (Result.SUCCESS, Result.INVALID_VALUE):
            raise self._driver.error("cuDeviceGetAttribute", code)
        return code == Result.SUCCESS and value.value != 0

    # --- memory of the host --------------------------------------------------------------------------------------

    def register(self, address: int, num_bytes: int) -> None:
        """Page-locks memory where it lies and maps it for this GPU and all others.

        The memory must consist of whole pages, none of which is registered in this process already. It must stay mapped
        until `unregister`.
        """
        self.call("cuMemHostRegister_v2", address, num_bytes, _PORTABLE | _DEVICEMAP)

    def unregister(self, address: int) -> None:
        """Undoes the `register` that began at the address."""
        self.call("cuMemHostUnregister", address)

    def host_alloc(self, num_bytes: int) -> int:
        """Allocates page-locked memory. Returns its address, which is the beginning of a page."""
        address = c_void_p()
        self.call("cuMemHostAlloc", byref(address), num_bytes, _PORTABLE | _DEVICEMAP)
        return address.value or 0

    def host_free(self, address: int) -> None:
        """Frees what `host_alloc` allocated. No copy out of it may be running."""
        self.call("cuMemFreeHost", address)

    # --- memory of the GPU, and copies ---------------------------------------------------------------------------

    def alloc(self, num_bytes: int) -> int:
        """Allocates memory of the GPU. Returns its device address."""
        address = c_uint64()
        self.call("cuMemAlloc_v2", byref(address), num_bytes)
        return address.value

    def free(self, device_address: int) -> None:
        """Frees what `alloc` allocated."""
        self.call("cuMemFree_v2", device_address)

    def copy_to_device_async(self, device_address: int, address: int, num_bytes: int, stream: int) -> None:
        """Has the stream copy bytes to the GPU.

        If the source is page-locked, the call returns at once and the bytes are read later: they must not change until
        an event recorded after the copy is done. The source must lie within one registration.
        """
        self.call("cuMemcpyHtoDAsync_v2", device_address, address, num_bytes, stream)

    # --- streams -------------------------------------------------------------------------------------------------

    def stream_create(self) -> int:
        """Creates a stream, which waits for no other stream unless told to. Returns its handle."""
        stream = c_void_p()
        self.call("cuStreamCreate", byref(stream), _STREAM_NON_BLOCKING)
        return stream.value or 0

    def stream_destroy(self, stream: int) -> None:
        """Destroys a stream. Work that it was given before is still done."""
        self.call("cuStreamDestroy_v2", stream)

    # --- the end -------------------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._context is None

    def close(self) -> None:
        """Releases the context. Its last user destroys it, with all that is left in it. Idempotent.

        If the driver refuses, as after its GPU has failed, that is logged: a caller could not do anything about it.
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
        """Calls a function of the driver with this GPU's context current, then restores the caller's context."""
        if code := self.result(name, *arguments):
            raise self._driver.error(name, code)

    def result(self, name: str, *arguments: Any) -> int:
        """As `call`, but returns the CUresult: see `Driver.result`."""
        if (context := self._context) is None:
            raise CudaUnavailable(f"this handle of GPU {self.ordinal} is closed; make another one")
        return self._driver.result_within(context, name, *arguments)

    def __repr__(self) -> str:
        return f"<GPU {self.ordinal}{' closed' if self.is_closed else ''}>"


def open_device(ordinal: int = 0, driver: Driver | None = None) -> Device:
    """GPU number `ordinal` of those that this process may use, as PyTorch counts them. Close it, or use `with`.

    The first one makes the GPU's primary context, the one that PyTorch and JAX use too: some hundred MB of device
    memory and a few tenths of a second, unless they have made it already.

    Args:
        ordinal: the number.
        driver: None opens one.

    Raises:
        CudaUnavailable: there is no usable driver, no such GPU, or the GPU gives no context.
    """
    driver = driver or Driver.open()
    if not 0 <= ordinal < driver.num_devices:
        raise CudaUnavailable(f"there is no GPU {ordinal}; the driver shows {driver.num_devices}, counted from 0")
    try:
        return Device(driver, ordinal)
    except CudaError as error:
        raise CudaUnavailable(f"GPU {ordinal} gives no context: {error}") from error

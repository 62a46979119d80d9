"""Driver: the functions of libcuda that shmreplay calls. No other module knows the library.

They are functions of the driver, not of the runtime: the runtime keeps an error until somebody asks for it, so an error
caused here could be reported after a kernel of another library. A learner makes a few of these calls for each batch.
Each costs one to two microseconds in addition to its work, and releases the GIL.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p, create_string_buffer
from typing import Any

from shmreplay.clients.cuda.errors import CudaError, CudaUnavailable, Result
from shmreplay.clients.link.connection import fork_count

LIBRARY = "libcuda.so.1"

# By the names that the library exports. cuda.h leaves out the _v2 at the end.
_PARAMETERS: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuDevicePrimaryCtxRelease_v2": (c_int,),
    "cuCtxPushCurrent_v2": (c_void_p,),
    "cuCtxPopCurrent_v2": (POINTER(c_void_p),),
    "cuMemHostRegister_v2": (c_void_p, c_size_t, c_uint),
    "cuMemHostUnregister": (c_void_p,),
    "cuMemHostAlloc": (POINTER(c_void_p), c_size_t, c_uint),
    "cuMemFreeHost": (c_void_p,),
    "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemcpyHtoDAsync_v2": (c_uint64, c_void_p, c_size_t, c_void_p),
    "cuStreamCreate": (POINTER(c_void_p), c_uint),
    "cuStreamDestroy_v2": (c_void_p,),
    "cuStreamWaitEvent": (c_void_p, c_void_p, c_uint),
    "cuEventCreate": (POINTER(c_void_p), c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventQuery": (c_void_p,),
    "cuEventDestroy_v2": (c_void_p,),
}


class Driver:
    """The driver of this process, ready for use. Safe to use from threads; not usable in a forked child."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Does not initialise the library, unlike `open`. Raises AttributeError if the library lacks a function."""
        self._functions = {name: _function(library, name) for name in _PARAMETERS}
        self._push, self._pop = self._functions["cuCtxPushCurrent_v2"], self._functions["cuCtxPopCurrent_v2"]
        self._popped = byref(c_void_p())  # where every call puts the context that it pops; nobody reads it
        self._fork_count = fork_count()

    @classmethod
    def open(cls) -> Driver:
        """Loads and initialises libcuda, which takes some 10 to 100 ms the first time. Makes no context.

        Raises:
            CudaUnavailable: there is no driver, it is too old or fails, it has no GPU, or this process was forked
                from one that uses CUDA.
        """
        try:
            driver = cls(ctypes.CDLL(LIBRARY))
        except OSError as error:
            raise CudaUnavailable(f"no NVIDIA driver can be loaded ({error})") from error
        except AttributeError as error:
            raise CudaUnavailable(f"the NVIDIA driver is too old: {error}; one of CUDA 11 or later has it") from error
        code = driver.result("cuInit", 0)
        if code == Result.NOT_INITIALIZED:
            raise CudaUnavailable(
                "this process was forked from one that uses CUDA, which does not outlive a fork; start it by 'spawn'"
            )
        if code == Result.NO_DEVICE or (code == Result.SUCCESS and driver.num_devices == 0):
            raise CudaUnavailable("the NVIDIA driver shows no GPU; see CUDA_VISIBLE_DEVICES, and --gpus of containers")
        if code != Result.SUCCESS:
            raise CudaUnavailable(f"the NVIDIA driver does not start: {driver.error('cuInit', code)}")
        return driver

    @property
    def is_own(self) -> bool:
        """Whether this process opened it, and not a parent before a fork."""
        return self._fork_count == fork_count()

    @property
    def version(self) -> str:
        """The newest CUDA version that the driver supports, such as "13.0"."""
        number = c_int()
        self.call("cuDriverGetVersion", byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}"

    @property
    def num_devices(self) -> int:
        """GPUs that this process may use."""
        number = c_int()
        self.call("cuDeviceGetCount", byref(number))
        return number.value

    def name(self, ordinal: int) -> str:
        """The maker's name for a GPU. Raises CudaError if there is no GPU of that number."""
        handle, text = c_int(), create_string_buffer(256)
        self.call("cuDeviceGet", byref(handle), ordinal)
        self.call("cuDeviceGetName", text, len(text), handle)
        return text.value.decode()

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function. Raises CudaError unless it succeeds, CudaUnavailable in a forked child."""
        if code := self.result(name, *arguments):
            raise self.error(name, code)

    def result(self, name: str, *arguments: Any) -> int:
        """Calls a function, and returns its CUresult. Raises CudaUnavailable in a forked child."""
        self._check_own()
        code: int = self._functions[name](*arguments)
        return code

    def result_within(self, context: c_void_p, name: str, *arguments: Any) -> int:
        """As `result`, with a context current for the call. Raises CudaError if it cannot be made current."""
        self._check_own()
        code: int = self._push(context)
        if code != Result.SUCCESS:
            raise self.error("cuCtxPushCurrent", code)
        try:
            code = self._functions[name](*arguments)
        finally:
            self._pop(self._popped)
        return code

    def _check_own(self) -> None:
        if self._fork_count != fork_count():
            raise CudaUnavailable("the driver was opened before this process was forked; open it anew in a spawned one")

    def error(self, name: str, code: int) -> CudaError:
        """The exception for a CUresult of a function."""
        text = c_char_p()
        known = self._functions["cuGetErrorName"](code, byref(text)) == Result.SUCCESS and text.value is not None
        return CudaError(name.removesuffix("_v2"), code, (text.value or b"").decode() if known else "an unknown error")


def _function(library: ctypes.CDLL, name: str) -> Any:
    function = getattr(library, name)
    function.argtypes = _PARAMETERS[name]
    function.restype = c_int
    return function

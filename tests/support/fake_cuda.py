"""FakeCuda: a libcuda without a GPU. Code in this process that opens the driver gets it in place of the real one.

The library has the real one's name (its SONAME), so it has only to be there first: `dlopen` takes it for the real one.
"Memory of the GPU" is the host's. A folder of tests takes the fixture `cuda` by importing it into its conftest.
"""

import atexit
import ctypes
import functools
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from shmreplay.clients.cuda.device import Device, open_device
from shmreplay.clients.cuda.driver import LIBRARY

FLAGS = ("-std=c++20", "-O0", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{LIBRARY}")
KINDS = ("registered", "pinned", "device_memory", "streams", "events", "contexts")


class FakeCuda:
    """What the driver of a test has, refuses and does when. Fresh, it has one GPU that can do everything."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        for name in ("calls", "copied", "num", "faults", "pending"):
            self._function(name).restype = ctypes.c_uint64
        for name in ("last_fault", "registered", "log"):
            self._function(name).restype = ctypes.c_char_p

    def _function(self, name: str) -> Any:
        return getattr(self._library, f"fake_{name}")

    def reset(self, is_there: bool = True) -> None:
        """As it is fresh; or as a machine without a GPU is."""
        self._function("reset")(int(is_there))

    # --- what it does --------------------------------------------------------------------------------------------

    def set_devices(self, count: int) -> None:
        """How many GPUs it shows."""
        self._function("set_devices")(count)

    def set_init_result(self, code: int) -> None:
        """What its initialisation answers."""
        self._function("set_init_result")(code)

    def set_attribute(self, attribute: int, value: int) -> None:
        """What its GPUs say of themselves."""
        self._function("set_attribute")(attribute, value)

    def refuse(self, call: str, code: int, nth: int = 0) -> None:
        """Has the n-th next call of a function, or every one of them (0), answer a CUresult and do nothing."""
        self._function("refuse")(call.encode(), ctypes.c_int64(nth), code)

    def limit_registrations(self, num_bytes: int = 2**64 - 1, in_all: int = 2**64 - 1) -> None:
        """Refuses registrations of more than this many bytes per call or in all, as for lack of memory."""
        self._function("set_register_limit")(ctypes.c_uint64(num_bytes))
        self._function("set_register_budget")(ctypes.c_uint64(in_all))

    def delay(self, seconds: float | None) -> None:
        """Does the work of streams so long after it was given; None: when `run` says so."""
        self._function("set_delay_us")(ctypes.c_int64(-1 if seconds is None else round(seconds * 1e6)))

    def run(self, n: int = -1) -> None:
        """Does the first n pieces of the streams' work that waits: copies and records of events. Negative: all."""
        self._function("run")(ctypes.c_int64(n))

    # --- what it saw ---------------------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """Pieces of work that wait."""
        return int(self._function("pending")())

    def calls(self, name: str) -> int:
        """How often a function was called, forked children left out."""
        return int(self._function("calls")(name.encode()))

    def copied(self, kind: str) -> int:
        """Bytes that copies were asked for whose end on the host was "registered", "pinned" or "pageable"."""
        return int(self._function("copied")(kind.encode()))

    def log(self) -> list[tuple[str, int]]:
        """The calls since the last look: name and answer."""
        lines = [line.split() for line in self._function("log")().decode().splitlines()]
        return [(name, int(code)) for name, code in lines]

    @property
    def registered(self) -> list[tuple[int, int]]:
        """Address and bytes of each registered piece, by address."""
        lines = [line.split() for line in self._function("registered")().decode().splitlines()]
        return [(int(address), int(size)) for address, size in lines]

    @property
    def left(self) -> dict[str, int]:
        """What was taken and not given back, by its kind."""
        counts = {kind: int(self._function("num")(kind.encode())) for kind in KINDS}
        return {kind: count for kind, count in counts.items() if count > 0}

    @property
    def faults(self) -> tuple[int, str]:
        """How often a client did what it must never do, and what that was the last time."""
        return int(self._function("faults")()), self._function("last_fault")().decode()


@functools.cache
def built() -> pathlib.Path:
    """The library's file, compiled once in this process, in a folder that is removed when the process ends."""
    folder = tempfile.mkdtemp(prefix="shmreplay-fake-cuda-")
    atexit.register(shutil.rmtree, folder)
    file = pathlib.Path(folder, LIBRARY)
    source = pathlib.Path(__file__).with_name("fake_cuda.cc")
    compiler = os.environ.get("CXX") or "g++"
    subprocess.run([compiler, *FLAGS, str(source), "-o", str(file)], check=True)
    return file


@functools.cache
def library() -> FakeCuda:
    """The fake, built and loaded once in this process. Skips the test where the process has a real driver already."""
    if not _is_fake(LIBRARY):
        ctypes.CDLL(str(built()))
    if not _is_fake(LIBRARY):
        pytest.skip("a real driver is loaded in this process: its place is taken")
    return FakeCuda(ctypes.CDLL(LIBRARY))


def _is_fake(name: str) -> bool:
    """Whether a library of this name is loaded, and is ours. It loads none."""
    try:
        return hasattr(ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW), "fake_reset")
    except OSError:
        return False


@pytest.fixture
def cuda() -> Iterator[FakeCuda]:
    """A fake driver with one GPU. Nothing of it may be left at the end, nor anything done that must never be."""
    fake = library()
    fake.reset()
    yield fake
    left, faults = fake.left, fake.faults
    fake.reset(is_there=False)  # for other tests of this process
    assert faults == (0, "")
    assert left == {}


@pytest.fixture
def device(cuda: FakeCuda) -> Iterator[Device]:
    """Its GPU."""
    with open_device() as found:
        yield found

"""When Python exits, nothing stays page-locked, even if a program did not close it, and no thread delays the exit."""

import os
import subprocess
import sys

import pytest

from tests.support.fake_cuda import built
from tests.support.repository import ROOT

CODE = """
import atexit, ctypes, threading
libcuda = ctypes.CDLL("libcuda.so.1")
atexit.register(lambda: print(libcuda.fake_num(b"registered"), libcuda.fake_faults()))  # runs last, since it came first

from shmreplay.clients.cuda.device import Device, open_device
from shmreplay.clients.cuda.page_locks import hold_pages
from tests.clients.cuda.test_page_locks import Segment

begun, register = threading.Event(), Device.register
def noted(device, address, num_bytes):
    register(device, address, num_bytes)
    begun.set()
Device.register = noted
hold = hold_pages(open_device(), Segment())
assert begun.wait(100)
"""


@pytest.mark.parametrize("rest", ["assert hold.wait(100)", "raise SystemExit(0)", "del hold"])
def test_nothing_is_registered_when_python_has_ended(rest: str) -> None:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    env |= {"LD_LIBRARY_PATH": str(built().parent), "FAKE_CUDA_IS_THERE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CODE + rest], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 0\n", "")

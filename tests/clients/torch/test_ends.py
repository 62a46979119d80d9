"""Ends of processes with samplers for a GPU: no memory is freed while a thread still has the GPU read it."""

import os
import subprocess
import sys

import pytest

from tests.support.repository import ROOT

pytest.importorskip("torch")

SCRIPT = """
import atexit

def tell():  # the first to be registered is the last to run
    calls = [name for name, _ in fake.log()]
    print(calls.count("cuMemHostUnregister"), calls[calls.index("cuMemHostUnregister") :].count("cuEventQuery"))
    print(len(fake.registered), fake.faults)

atexit.register(tell)

import numpy as np
import shmreplay as sr
from shmreplay.clients.torch import TorchSampler, choice
from tests.support.fake_cuda import library
from tests.clients.torch.host_tensors import HostTensors

fake = library()
fake.reset()
choice.DeviceTensors = HostTensors
server = sr.Server([sr.Table("t", {"x": sr.ArraySpec((64,), "int64")}, 100, max_streams=8, max_sessions=8)])
table = server.client().table("t")
table.insert_batch({"x": np.ones((10, 64), np.int64)})
sampler = TorchSampler(table, 8, device="cuda:0", transfer="gather")
for _ in range(5):
    next(sampler)
assert sampler.info().transfer == "gather"
fake.delay(0.3)
while fake.pending == 0:  # the thread goes on with another batch, for which the GPU takes its time
    next(sampler)
"""


@pytest.mark.slow
@pytest.mark.long
def test_python_may_end_with_a_sampler_open() -> None:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["1 0", "0 (0, '')"]

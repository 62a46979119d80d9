"""shmreplay doctor says which GPUs a learner finds, and uses no memory of them."""

import os
import subprocess
import sys

from tests.support.fake_cuda import built


def gpus(**variables: str) -> str:
    """What it says of GPUs."""
    env = {**os.environ, "LD_LIBRARY_PATH": str(built().parent), **variables}
    command = [sys.executable, "-m", "shmreplay.clients.cli.main", "doctor"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True, cwd="/")
    return next(line for line in done.stdout.splitlines() if line.startswith("GPUs:"))


def test_it_names_the_gpus_that_are_there() -> None:
    assert gpus(FAKE_CUDA_IS_THERE="1") == "GPUs:           fake GPU 0; CUDA 13.2"


def test_it_makes_no_context_on_them() -> None:
    there = {"FAKE_CUDA_IS_THERE": "1", "FAKE_CUDA_REFUSES": "cuDevicePrimaryCtxRetain"}
    assert gpus(**there) == "GPUs:           fake GPU 0; CUDA 13.2"


def test_where_there_is_none_it_says_why() -> None:
    assert gpus().startswith("GPUs:           none: the NVIDIA driver shows no GPU; see CUDA_VISIBLE_DEVICES")

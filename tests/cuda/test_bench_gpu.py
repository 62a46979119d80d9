"""python -m bench.gpu: it says that it was skipped where there is no GPU, and makes its table where there is one."""

import os
import pathlib
import subprocess
import sys

from tests.cuda.fake_cuda import built

ROOT = pathlib.Path(__file__).resolve().parents[2]
SMALL = ("--mib", "8", "--copy-mib", "2", "--only", "registration", "copies", "neighbours")


def run(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """From the root, which PYTHONSAFEPATH would hide."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    command = [sys.executable, "-m", "bench.gpu", *arguments]
    return subprocess.run(command, cwd=ROOT, env={**env, **variables}, capture_output=True, text=True, check=False)


def test_without_a_gpu_it_says_that_it_was_skipped() -> None:
    done = run(CUDA_VISIBLE_DEVICES="")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("SKIPPED, nothing was measured. CUDA can not be used here: ")


def test_with_a_driver_it_makes_its_table() -> None:
    done = run(*SMALL, LD_LIBRARY_PATH=str(built().parent), FAKE_CUDA_IS_THERE="1")
    assert done.stderr == ""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines() if line[0] == "|"]
    found = {check: (what, verdict) for check, what, _, verdict in rows[2:]}
    assert found["attributes"][0].startswith("fake GPU 0, CUDA 13.2: CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM (91) 1, ")
    read_only = "by default CUDA_ERROR_INVALID_VALUE, with READ_ONLY CUDA_ERROR_INVALID_VALUE; the next call goes on"
    assert found["register memory that is mapped for reading only"] == (read_only, "kept")
    assert found["page-lock 8.0 MiB of small pages as a learner does"][0].startswith("registered in ")
    assert found["map, lock, unlock and unmap 100 times"][1] == "kept"
    both = ("the other one registered, this one registered", "kept")
    assert found["two processes page-lock the same 2.0 MiB"] == both
    assert found["kill -9 one that has it page-locked, and lock it here"][1] == "kept"
    # a fake has no times to be judged by
    assert {check for check, (_, verdict) in found.items() if verdict == "NOT KEPT"} <= {"copy 2.0 MiB to the GPU"}


def test_a_rule_that_is_not_kept_is_its_status() -> None:
    refused = {"FAKE_CUDA_IS_THERE": "1", "FAKE_CUDA_REFUSES": "cuMemHostRegister_v2"}
    done = run("--mib", "8", "--only", "registration", LD_LIBRARY_PATH=str(built().parent), **refused)
    assert done.returncode == 1
    reason = "cuMemHostRegister failed with CUDA_ERROR_NOT_SUPPORTED (801)"
    assert f"| map, lock, unlock and unmap 100 times | refused in round 0: {reason}" in done.stdout
    assert f"| refused: {reason} | falls back | kept |" in done.stdout
    assert "| stable | NOT KEPT |" in done.stdout

"""python -m bench.gpu: it says that it was skipped where there is no GPU, and makes its table where there is one."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from tests.support.fake_cuda import built
from tests.support.repository import ROOT

SMALL = ("--mib", "8", "--copy-mib", "2", "--only", "registration", "copies", "neighbours")


# A GPU's tensors are the host's there, and nothing is measured for long.
WITHOUT_A_GPU = """
from bench.gpu import batches
from bench.gpu.__main__ import main
from shmreplay.clients.torch import choice
from tests.clients.torch.host_tensors import HostTensors

choice.DeviceTensors = HostTensors
batches.WINDOW_S, batches.BATCH, batches.SMALL_BATCH = 0.2, 64, 64
raise SystemExit(main(["--items", "100", "--only", "batches"]))
"""


def run(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return python("-m", "bench.gpu", *arguments, **variables)


def python(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """From the root, which PYTHONSAFEPATH would hide."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, env={**env, **variables}, capture_output=True, text=True, check=False)


def table(text: str) -> dict[str, tuple[str, str]]:
    """What was found and the verdict, by check."""
    rows = [line.split(" | ") for line in text.splitlines()[2:] if line.startswith("|")]
    return {check[2:]: (found, verdict.removesuffix("|").strip()) for check, found, _, verdict in rows}


def test_without_a_gpu_it_says_that_it_was_skipped() -> None:
    done = run(CUDA_VISIBLE_DEVICES="")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("SKIPPED, nothing was measured. CUDA cannot be used here: ")


@pytest.mark.long
def test_with_a_driver_it_makes_its_table(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "gpu.json"
    done = run(*SMALL, "--json", str(file), LD_LIBRARY_PATH=str(built().parent), FAKE_CUDA_IS_THERE="1")
    assert done.stderr == ""
    found = table(done.stdout)
    written = json.loads(file.read_text())
    assert [finding["check"] for finding in written["findings"]] == list(found)
    assert "processor" in written["machine"]
    assert found["attributes"][0].startswith("fake GPU 0, CUDA 13.2: CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM (91) 1, ")
    read_only = "by default CUDA_ERROR_INVALID_VALUE, with READ_ONLY CUDA_ERROR_INVALID_VALUE; the next call goes on"
    assert found["register memory that is mapped for reading only"] == (read_only, "kept")
    assert found["page-lock 8.0 MiB of small pages as a learner does"][0].startswith("registered in ")
    assert found["map, lock, unlock and unmap 100 times"][1] == "kept"
    both = ("the other one registered, this one registered", "kept")
    assert found["two processes page-lock the same 2.0 MiB"] == both
    assert found["kill -9 one that has it page-locked, and lock it here"][1] == "kept"
    calls = found["calls of another process while this one page-locks 8.0 MiB"][0]
    assert re.fullmatch(r"[1-9]\d* times an alloc and a free, \d+\.\d ms at most; this one registered", calls)
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


def test_a_check_that_fails_ends_its_part_alone() -> None:
    refused = {"FAKE_CUDA_IS_THERE": "1", "FAKE_CUDA_REFUSES": "cuMemAlloc_v2"}
    only = ("--mib", "8", "--copy-mib", "2", "--only", "registration", "copies")
    done = run(*only, LD_LIBRARY_PATH=str(built().parent), **refused)
    assert done.returncode == 1
    found = table(done.stdout)
    reason = "cuMemAlloc failed with CUDA_ERROR_NOT_SUPPORTED (801)"
    assert found["what is left of registration"] == (f"CudaError: {reason}", "NOT KEPT")
    assert found["copy 2.0 MiB to the GPU"] == (f"skipped: {reason}", "")


@pytest.mark.long
def test_the_ways_of_a_pytorch_learner_are_side_by_side() -> None:
    pytest.importorskip("torch")
    done = python("-c", WITHOUT_A_GPU, LD_LIBRARY_PATH=str(built().parent), FAKE_CUDA_IS_THERE="1")
    assert (done.returncode, done.stderr) == (0, "")
    found = table(done.stdout)
    assert list(found) == [
        "a tensor over registered memory, and torch after a refusal",
        "64 frames of 28,224 B a batch",
        "gather while a writer overwrites at full speed",
        "64 rows of 64 B a batch",
    ]
    gather, staging, pageable, *ratios = found["64 frames of 28,224 B a batch"][0].split("; ")
    assert "/s, " in gather
    assert " 0 B gathered, " in gather
    # 1.7 MiB a batch, those among them that were made ahead of the few that a slow host had time for.
    moved = r"[\d.]+ [KM]iB"
    assert re.search(rf" {moved} read$", gather)
    assert re.search(rf" {moved} gathered, {moved} sent, 0 B read$", staging)
    assert re.search(rf" {moved} gathered, 0 B sent, 0 B read$", pageable)
    assert [ratio.split()[::4] for ratio in ratios] == [["gather", "staging"], ["staging", "pageable"]]
    torn, verdict = found["gather while a writer overwrites at full speed"]
    assert torn.startswith("0 of ")
    assert verdict == "kept"

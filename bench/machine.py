"""Facts about the machine, which are stored with the results."""

import importlib.metadata
import os
import pathlib
import platform
import subprocess

import numpy as np

from bench.limits.native import compiler_version
from shmreplay.segments.page_policy import why_no_huge_pages
from shmreplay.segments.segment import SHARED_MEMORY

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIBRARY = ("shmreplay", "daemon", "clients", "CMakeLists.txt", "pyproject.toml")


def facts() -> dict[str, str]:
    """The facts that a reader needs to judge the numbers, or to repeat the run."""
    return {**host(), "compiler of the limits": compiler_version()}


def host() -> dict[str, str]:
    """The facts except the compiler, which only the limits need."""
    return {
        "processor": processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "huge pages in segments": why_no_huge_pages(SHARED_MEMORY) or "yes",
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "shmreplay": importlib.metadata.version("shmreplay"),
        "commit": commit(),
    }


def load() -> str:
    """The load: how many tasks ran or wanted to, on average over the last minute. Above 1, other tasks ran as well."""
    return f"{os.getloadavg()[0]:.1f}"


def available_bytes() -> int:
    """Bytes of memory that a process could get now."""
    for line in pathlib.Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/meminfo says nothing of available memory")


def processor() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def commit() -> str:
    """The commit of the working tree, and whether the library's files differ from it; "unknown" without git."""
    git = ["git", "-C", str(ROOT)]
    try:
        head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
        status = subprocess.run(
            [*git, "status", "--porcelain", "--", *LIBRARY], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + (" with changes" if status.stdout else "")

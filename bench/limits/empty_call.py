"""What it costs to call into C++ at all."""

import importlib.util
import pathlib
import sysconfig
import time
from typing import Any

from bench.contender import Absent, Contender
from bench.limits.native import build

FLAGS = ("-fvisibility=hidden", "-fno-strict-aliasing", "-DNB_COMPACT_ASSERTIONS", "-w")  # as nanobind's own build


def empty_call() -> Contender | Absent:
    """Calls, from Python, a bound function that takes as many arguments as `insert` and does nothing."""
    try:
        nothing = _module().nothing
    except ImportError:
        return Absent("an empty nanobind call needs nanobind, which only builds need")

    def run(n: int) -> int:
        start = time.monotonic_ns()
        for _ in range(n):
            nothing(None, None, None, None)
        return time.monotonic_ns() - start

    return Contender("empty nanobind call of four arguments", "limit", run)


def _module() -> Any:
    import nanobind

    sources = pathlib.Path(nanobind.source_dir())
    python, robin_map = sysconfig.get_paths()["include"], sources.parent / "ext" / "robin_map" / "include"
    includes = [part for folder in (python, nanobind.include_dir(), robin_map) for part in ("-isystem", str(folder))]
    library = build("empty_call", *FLAGS, *includes, str(sources / "nb_combined.cpp"))
    spec = importlib.util.spec_from_file_location("empty_call", library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

"""C++ next to these files, compiled when it is asked for and kept in build/bench as long as it does not change."""

import ctypes
import functools
import hashlib
import os
import pathlib
import subprocess
import sysconfig
import tempfile

import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parent
BUILD = FOLDER.parents[1] / "build" / "bench"
FLAGS = ("-std=c++20", "-O3", "-DNDEBUG", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra", "-Werror")


def load(stem: str) -> ctypes.CDLL:
    """The library of `stem`.cc. Its functions are called without the GIL."""
    return ctypes.CDLL(str(build(stem)))


def load_with_python(stem: str) -> ctypes.PyDLL:
    """The library of `stem`.cc, which may include Python's and NumPy's headers. Called with the GIL."""
    python = sysconfig.get_paths()["include"]
    return ctypes.PyDLL(str(build(stem, "-isystem", python, "-isystem", np.get_include())))


def build(stem: str, *flags: str) -> pathlib.Path:
    """Compiles `stem`.cc unless a library of the same source, flags and compiler is there.

    Raises:
        RuntimeError: no compiler, or it refuses the file; with what it said.
    """
    source = FOLDER / f"{stem}.cc"
    command = [compiler(), *FLAGS, *flags, str(source)]
    made_of = [*command, compiler_version(), source.read_text(encoding="utf-8")]
    library = BUILD / f"{stem}-{hashlib.sha256(repr(made_of).encode()).hexdigest()[:16]}.so"
    if library.exists():
        return library
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        fresh = pathlib.Path(folder, library.name)
        done = subprocess.run([*command, "-o", str(fresh)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
        os.replace(fresh, library)  # whole or not at all, should two runs build at once
    return library


def compiler() -> str:
    """The C++ compiler: $CXX, else g++."""
    return os.environ.get("CXX") or "g++"


@functools.cache
def compiler_version() -> str:
    """The first line of what the compiler says of itself."""
    try:
        done = subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise RuntimeError(f"the limits need a C++ compiler: {error}; install g++ or set CXX") from error
    return done.stdout.splitlines()[0]

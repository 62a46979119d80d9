"""Compiles the C++ files in this folder when they are needed. Libraries are kept in build/bench."""

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
    """Loads the library of `stem`.cc. Its functions are called without the GIL."""
    return ctypes.CDLL(str(build(stem)))


def load_with_python(stem: str) -> ctypes.PyDLL:
    """Loads the library of `stem`.cc, which may use the C APIs of Python and NumPy. Calls keep the GIL."""
    python = sysconfig.get_paths()["include"]
    return ctypes.PyDLL(str(build(stem, "-isystem", python, "-isystem", np.get_include())))


def build(stem: str, *flags: str) -> pathlib.Path:
    """Compiles `stem`.cc unless a library of the same source, flags and compiler exists.

    Raises:
        RuntimeError: there is no compiler, or it refuses the file; the text has its output.
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
        os.replace(fresh, library)  # atomic, in case two runs build at the same time
    return library


def compiler() -> str:
    """The C++ compiler: $CXX, or g++."""
    return os.environ.get("CXX") or "g++"


@functools.cache
def compiler_version() -> str:
    """The first line of the compiler's version text."""
    try:
        done = subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise RuntimeError(f"the limits need a C++ compiler: {error}; install g++ or set CXX") from error
    return done.stdout.splitlines()[0]

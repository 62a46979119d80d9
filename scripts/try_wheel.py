"""Installs a wheel in a clean virtual environment without a compiler, and runs the README's example from it.

usage: try_wheel.py WHEEL README

Exit status 0 when the wheel installs from binary packages alone, its commands start, the first Python example of the
README that imports shmreplay runs as written, and no segment is left in /dev/shm.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import venv

EXAMPLE_TIMEOUT_S = 300  # a watchdog, not a limit on speed


def readme_example(readme: pathlib.Path) -> str:
    """Returns the first ```python block that imports shmreplay. Raises SystemExit if there is none."""
    for block in re.findall(r"^```python\n(.*?)^```", readme.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        if re.search(r"^(import|from) shmreplay", block, re.MULTILINE):
            return str(block)
    raise SystemExit(f"{readme} has no ```python block that imports shmreplay; the quick start must be one")


def segments_of(pid: int) -> list[str]:
    """Names of the shared-memory objects that an embedded server of that process made and left."""
    return sorted(name for name in os.listdir("/dev/shm") if name.startswith(f"shmreplay.embedded-{pid}-"))


def bare_environment(bin_folder: pathlib.Path) -> dict[str, str]:
    """An environment whose PATH has only the virtual environment: no compiler, no make, nothing of the repository."""
    # Variables that stay: pip's own, and the mark by which a CI run finds processes that were left behind.
    prefixes = ("PIP_", "SHMREPLAY_CI_")
    kept = {name: value for name, value in os.environ.items() if name.startswith(prefixes) or name in {"HOME", "LANG"}}
    env = {**kept, "PATH": str(bin_folder), "CC": "/bin/false", "CXX": "/bin/false"}
    for compiler in ("cc", "c++", "gcc", "g++", "clang", "make"):
        if found := shutil.which(compiler, path=env["PATH"]):
            raise SystemExit(f"the environment is not bare: {found}")
    return env


def try_wheel(wheel: pathlib.Path, readme: pathlib.Path) -> None:
    """Raises CalledProcessError, TimeoutExpired or SystemExit at the first failure."""
    with tempfile.TemporaryDirectory(prefix="shmreplay-wheel-") as folder:
        home = pathlib.Path(folder)
        venv.create(home / "venv", with_pip=True)
        bin_folder = home / "venv" / "bin"
        env = bare_environment(bin_folder)
        example = home / "example.py"
        example.write_text(readme_example(readme), encoding="utf-8")

        def run(*command: str) -> int:
            """Runs a command to its end, and returns the pid that it had."""
            print("+", *command, flush=True)
            with subprocess.Popen(command, cwd=home, env=env, stdin=subprocess.DEVNULL) as process:
                try:
                    status = process.wait(EXAMPLE_TIMEOUT_S)
                finally:
                    process.kill()  # does nothing to an ended process; ends one that hangs, which would be waited for
            if status != 0:
                raise subprocess.CalledProcessError(status, command)
            return process.pid

        python = str(bin_folder / "python")
        run(python, "-m", "pip", "install", "-qq", "--only-binary=:all:", str(wheel.resolve()))
        run(str(bin_folder / "shmreplayd"), "--version")
        run(str(bin_folder / "shmreplay"), "--version")
        pid = run(python, str(example))
    if left := segments_of(pid):
        raise SystemExit(f"left in /dev/shm by the README's example: {', '.join(left)}")


if __name__ == "__main__":
    try:
        try_wheel(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise SystemExit(f"the wheel does not work in a clean environment: {error}") from None

"""Compare shmreplay/_core.pyi with the built binding, by mypy's stubtest.

usage: stubtest.py        (build/typing must be laid out: see typing_tree.py)

Exit status 1 when a name is missing on either side or a signature differs.
"""

import os
import re
import subprocess
import sys

# Said of every function that nanobind makes: they are of its own type, which stubtest does not take for a function.
NOT_A_FUNCTION = re.compile(r"^shmreplay\._core\.\w+ is not a function$")


def differences() -> list[str]:
    """The lines of stubtest that mean something."""
    line = [sys.executable, "-m", "mypy.stubtest", "shmreplay._core", "--concise"]
    env = os.environ | {"MYPYPATH": "build/typing"}
    done = subprocess.run(
        [*line, "--mypy-config-file", "pyproject.toml"], env=env, capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines() + done.stderr.splitlines()
    if done.returncode != 0 and not lines:
        return [f"stubtest ended with status {done.returncode} and said nothing"]
    return [text for text in lines if done.returncode != 0 and not NOT_A_FUNCTION.match(text)]


if __name__ == "__main__":
    found = differences()
    print("\n".join(found), end="\n" if found else "")
    sys.exit(bool(found))

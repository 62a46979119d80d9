"""Compares shmreplay/_core.pyi with the built binding, by mypy's stubtest.

usage: stubtest.py        (build/typing must be laid out: see typing_tree.py)

Exit status 1 when a name is missing on either side or a signature differs.
"""

import os
import re
import subprocess
import sys

# stubtest reports these for everything that nanobind makes: its functions and its metaclass have their own types, and a
# class that only the module can instantiate has an __init__ that takes any arguments and refuses them.
OF_NANOBIND = re.compile(
    r"^shmreplay\._core\.\w+("
    r" is not a function"
    r"| is a disjoint base at runtime, but isn't marked with @disjoint_base in the stub"
    r"| is inconsistent, metaclass differs"
    r'|\.__init__ is inconsistent, stub does not have \*args parameter "args"'
    r")$"
)


def differences() -> list[str]:
    """The lines of stubtest's output that report real differences."""
    line = [sys.executable, "-m", "mypy.stubtest", "shmreplay._core", "--concise"]
    env = os.environ | {"MYPYPATH": "build/typing"}
    done = subprocess.run(
        [*line, "--mypy-config-file", "pyproject.toml"], env=env, capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines() + done.stderr.splitlines()
    if done.returncode != 0 and not lines:
        return [f"stubtest ended with status {done.returncode} and said nothing"]
    return [text for text in lines if done.returncode != 0 and not OF_NANOBIND.match(text)]


if __name__ == "__main__":
    found = differences()
    print("\n".join(found), end="\n" if found else "")
    sys.exit(bool(found))

"""Prints the requirements that pyproject.toml states, so that the Makefile need not repeat them.

usage: requirements.py GROUP...     build | runtime | the name of an extra

"build" includes cmake and ninja: scikit-build-core fetches them by itself only in an isolated build.
"""

import pathlib
import sys

if sys.version_info >= (3, 11):
    import tomllib
else:  # Python 3.10 has no TOML reader, but every pip brings one
    from pip._vendor import tomli as tomllib

BUILD_TOOLS = ("cmake", "ninja")


def requirements(group: str) -> list[str]:
    """The requirement strings of one group; KeyError if pyproject.toml has no such extra."""
    pyproject = tomllib.loads((pathlib.Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    extras: dict[str, list[str]] = pyproject["project"]["optional-dependencies"]
    if group == "build":
        tools = [line for line in extras["dev"] if line.startswith(BUILD_TOOLS)]
        return [*pyproject["build-system"]["requires"], *tools]
    if group == "runtime":
        return list(pyproject["project"]["dependencies"])
    return extras[group]


if __name__ == "__main__":
    print("\n".join(line for group in sys.argv[1:] for line in requirements(group)))

"""Lays the package out as in the wheel, with links, for tools that read files and do not use import hooks.

usage: typing_tree.py FOLDER        (made anew each time)

An editable install is an import hook, but mypy and stubtest look for files. The layout is the map in pyproject.toml, so
these tools check what a user installs.
"""

import pathlib
import shutil
import sys

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

ROOT = pathlib.Path(__file__).resolve().parents[1]


def lay_out(target: pathlib.Path) -> None:
    """Links every mapped file into `target`, one by one, because two mapped folders may share a parent."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    shutil.rmtree(target, ignore_errors=True)
    for source, place in pyproject["tool"]["scikit-build"]["wheel"]["force-include"].items():
        for file in sorted((ROOT / source).rglob("*")):
            if file.suffix in {".py", ".pyi", ".typed"}:
                link = target / place / file.relative_to(ROOT / source)
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(file)


if __name__ == "__main__":
    lay_out(pathlib.Path(sys.argv[1]))

"""A wheel, and a virtual environment that has it and nothing else that was not declared."""

import importlib.metadata
import os
import pathlib
import subprocess
import sys
import venv
from collections.abc import Callable

import pytest
from packaging.requirements import Requirement

from tests.support.repository import ROOT

# Runs a command from `/`, where no source folder can stand in for the package.
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The wheel that SHMREPLAY_WHEEL names, or the one in that folder, as a release has it; else one of the sources.

    That takes minutes the first time, seconds when little has changed since.

    Its build folder is its own: that of the editable install may have been filled by an isolated build, whose paths to
    cmake and nanobind are gone by now.
    """
    if named := os.environ.get("SHMREPLAY_WHEEL"):
        there = sorted(pathlib.Path(named).glob("shmreplay-*.whl")) if os.path.isdir(named) else [pathlib.Path(named)]
        if there:  # the folder is empty where the wheel could not be built
            return there[0]
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    build += ["-C", f"build-dir={ROOT / 'build' / 'wheel-of-tests'}", str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.glob("shmreplay-*.whl")
    return path


@pytest.fixture(scope="session")
def clean_venv(wheel: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A fresh virtual environment with the wheel; its declared dependencies are links to those that run the tests.

    So no download, and a package that is imported but not declared is missing here as it would be for a user.
    """
    folder = tmp_path_factory.mktemp("clean") / "venv"
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True)
    (site_packages,) = (folder / "lib").glob("python*/site-packages")
    for requirement in map(Requirement, importlib.metadata.requires("shmreplay") or []):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            link_distribution(requirement.name, site_packages)
    return folder


def link_distribution(name: str, site_packages: pathlib.Path) -> None:
    """Link all that an installed distribution put into site-packages."""
    distribution = importlib.metadata.distribution(name)
    for top in {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}:
        (site_packages / top).symlink_to(pathlib.Path(str(distribution.locate_file(top))))


@pytest.fixture(scope="session")
def run_clean(clean_venv: pathlib.Path) -> Run:
    """run_clean(command, *arguments, **variables): a command of the clean environment, run from `/`."""

    def run(command: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        line = [str(clean_venv / "bin" / command), *arguments]
        return subprocess.run(line, cwd="/", env=env | variables, capture_output=True, text=True, check=False)

    return run

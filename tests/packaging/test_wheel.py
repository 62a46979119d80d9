"""What a user gets from the wheel: one importable name, two commands, and nothing from the repository besides."""

import importlib.metadata
import pathlib
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]  # the first of these tests waits for the compiler
VERSION = importlib.metadata.version("shmreplay")


@pytest.fixture(scope="module")
def names(wheel: pathlib.Path) -> list[str]:
    """Every file in the wheel."""
    return zipfile.ZipFile(wheel).namelist()


def test_top_level_of_the_wheel_is_the_package_and_its_metadata(names: list[str]) -> None:
    assert {name.split("/")[0] for name in names} == {"shmreplay", f"shmreplay-{VERSION}.dist-info"}


def test_wheel_holds_the_binding_its_stub_and_the_typing_marker(names: list[str]) -> None:
    assert {"shmreplay/_core.pyi", "shmreplay/py.typed"} <= set(names)
    assert len([name for name in names if name.startswith("shmreplay/_core.") and name.endswith(".so")]) == 1


def test_wheel_holds_no_sources_of_the_core(names: list[str]) -> None:
    assert [name for name in names if name.endswith((".cc", ".h")) or name.startswith("shmreplay/core/")] == []


def test_wheel_holds_the_unit_files_that_a_service_is_installed_from(names: list[str]) -> None:
    folder = "shmreplay/daemon/systemd"
    files = {"system/shmreplayd.service", "system/shmreplayd.socket", "system/sysusers.conf", "system/tmpfiles.conf"}
    files |= {"system/shmreplayd.toml", "user/shmreplayd.service", "user/shmreplayd.socket", "user/shmreplayd.toml"}
    found = {name.removeprefix(f"{folder}/") for name in names if name.startswith(folder) and not name.endswith("/")}
    assert found == files


def test_wheel_holds_the_alert_rules_and_the_dashboard(names: list[str]) -> None:
    assert {"shmreplay/daemon/monitoring/alerts.yml", "shmreplay/daemon/monitoring/dashboard.json"} <= set(names)


def test_wheel_holds_the_page(names: list[str]) -> None:
    folder = pathlib.Path(__file__).parents[2] / "daemon" / "web" / "browser"
    files = {f"shmreplay/daemon/web/browser/{file.name}" for file in folder.iterdir()}
    assert "shmreplay/daemon/web/browser/index.html" in files
    assert files <= set(names)


def test_wheel_carries_the_licence(wheel: pathlib.Path, names: list[str]) -> None:
    (path,) = [name for name in names if name.endswith("/LICENSE")]
    assert b"Apache License" in zipfile.ZipFile(wheel).read(path)


@pytest.mark.parametrize("module", ["shmreplay", "shmreplay._core", "shmreplay.daemon", "shmreplay.clients"])
def test_installed_package_imports_with_declared_dependencies_alone(run_clean: Run, module: str) -> None:
    done = run_clean("python", "-c", f"import {module}")
    assert done.returncode == 0, done.stderr


def test_the_package_names_the_version_of_its_metadata(run_clean: Run) -> None:
    done = run_clean("python", "-c", "import shmreplay; print(shmreplay.__version__)")
    assert done.stdout == f"{VERSION}\n", done.stderr


@pytest.mark.parametrize("module", ["daemon", "clients", "bench", "tests", "core", "_core"])
def test_folders_of_the_repository_are_no_importable_names(run_clean: Run, module: str) -> None:
    done = run_clean("python", "-c", f"import {module}")
    assert done.returncode == 1
    assert f"ModuleNotFoundError: No module named '{module}'" in done.stderr


@pytest.mark.parametrize("module", ["daemon", "clients", "bench", "tests"])
def test_an_editable_install_adds_no_importable_names_either(module: str, tmp_path: pathlib.Path) -> None:
    line = [sys.executable, "-c", f"import {module}"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert f"ModuleNotFoundError: No module named '{module}'" in done.stderr


@pytest.mark.parametrize("command", ["shmreplayd", "shmreplay"])
def test_commands_tell_their_version(run_clean: Run, command: str) -> None:
    done = run_clean(command, "--version")
    assert done.returncode == 0, done.stderr
    assert VERSION in done.stdout


def test_a_missing_core_explains_itself_with_a_command(
    run_clean: Run, clean_venv: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (package,) = (clean_venv / "lib").glob("python*/site-packages/shmreplay")
    shutil.copytree(package, tmp_path / "shmreplay", ignore=shutil.ignore_patterns("*.so"))
    done = run_clean("python", "-c", "import shmreplay", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    last_words = done.stderr[done.stderr.rindex("ImportError: ") :]
    assert "native core could not be loaded" in last_words
    assert "pip install" in last_words


def test_a_clone_that_hides_the_installed_package_says_only_that(
    run_clean: Run, clean_venv: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (package,) = (clean_venv / "lib").glob("python*/site-packages/shmreplay")
    shutil.copytree(package, tmp_path / "shmreplay", ignore=shutil.ignore_patterns("*.so"))
    (tmp_path / "pyproject.toml").touch()
    done = run_clean("python", "-c", "import shmreplay", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: the source folder {tmp_path / 'shmreplay'} hides the installed shmreplay: run outside "
        f"{tmp_path}, with scripts that lie outside it too, or set PYTHONSAFEPATH=1 (or python -P; Python 3.11 or "
        "later)"
    )

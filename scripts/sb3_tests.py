"""Runs Stable-Baselines3's own tests with replay buffers of shmreplay in the places of its own.

usage: sb3_tests.py FOLDER [NAME ...]

pip downloads the sdist of the installed release into the folder, once. NAMEs are files of its tests, such as test_run;
without one, all that concern replay buffers run. Exit status: that of pytest; 3 if there is no sdist. What is left out,
and why, is in tests/support/sb3_plugin.py.
"""

import importlib.metadata
import os
import pathlib
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
NAMES = (
    "test_run",
    "test_spaces",
    "test_vec_normalize",
    "test_dict_env",
    "test_deterministic",
    "test_save_load",
    "test_n_step_replay",
    "test_buffers",
    "test_her",
)
NO_SDIST = 3


def sources(folder: pathlib.Path) -> pathlib.Path:
    """The unpacked sdist of the installed release. Raises CalledProcessError if pip cannot download it."""
    release = importlib.metadata.version("stable-baselines3")
    unpacked = folder / f"stable_baselines3-{release}"
    if not unpacked.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-qq", "download", "--dest", str(folder)]
        only = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", f"stable-baselines3=={release}"]
        subprocess.run([*pip, *only], check=True)
        with tarfile.open(folder / f"stable_baselines3-{release}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    return unpacked


def main() -> int:
    folder, *names = sys.argv[1:]
    try:
        unpacked = sources(pathlib.Path(folder).resolve())
    except subprocess.CalledProcessError as error:
        print(f"sb3_tests: no sdist of stable-baselines3: {error}", file=sys.stderr)
        return NO_SDIST
    # Without the library's sources, so that the installed ones are tested; with the plugin's.
    if (unpacked / "stable_baselines3").is_dir():
        (unpacked / "stable_baselines3").rename(unpacked / "sources")
    files = [f"tests/{name}.py" for name in names or NAMES]
    env = {**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    options = ["-q", "-c", os.devnull, "--rootdir", ".", "-p", "no:cacheprovider", "-p", "tests.support.sb3_plugin"]
    return subprocess.run([sys.executable, "-m", "pytest", *options, *files], cwd=unpacked, env=env).returncode


if __name__ == "__main__":
    sys.exit(main())

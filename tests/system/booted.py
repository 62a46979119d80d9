"""A systemd for one test: process 1 of new namespaces, on a root that shows this machine read-only."""

import contextlib
import importlib
import os
import pathlib
import secrets
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator

import pytest

from shmreplay import _core
from tests.support.daemons import wait_for_end
from tests.support.waiting import WAIT_S

CGROUPS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
TOOLS = ("unshare", "nsenter", "pivot_root", "systemctl", "systemd-sysusers", "systemd-tmpfiles", "journalctl")


def why_not() -> str | None:
    """Why no systemd can be booted here; None if one can."""
    missing = [tool for tool in TOOLS if shutil.which(tool, path="/usr/sbin:/usr/bin") is None]
    if missing:
        return f"there is no {missing[0]}"
    if os.geteuid() != 0:
        return "it takes root"
    return None if _cgroup2() else "there is no cgroup2"


def _cgroup2() -> pathlib.Path | None:
    return next((pathlib.Path(path) for path in CGROUPS if os.path.exists(f"{path}/cgroup.procs")), None)


class Booted:
    """What runs there, and how to run more."""

    def __init__(self, folder: pathlib.Path, files: pathlib.Path) -> None:
        """`files` is copied to its /etc."""
        (folder / "root").mkdir()
        package = copy_package(folder / "package")
        here = [str(each) for each in (folder / "root", files, package, sys.base_prefix, sysconfig.get_path("purelib"))]
        cgroup2 = _cgroup2()
        assert cgroup2 is not None
        self._cgroup = cgroup2 / f"shmreplay-test-{secrets.token_hex(6)}"
        self._cgroup.mkdir()
        enter = f'echo $$ > {self._cgroup}/cgroup.procs && exec "$@"'
        unshare = ["unshare", "--cgroup", "--pid", "--fork", "--mount", "--uts", "--ipc", "--net", "--kill-child"]
        boot = pathlib.Path(__file__).with_name("boot.sh")
        self._process = subprocess.Popen(
            ["sh", "-c", enter, "sh", *unshare, str(boot), *here],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait(self) -> None:
        """Returns once its start is over; fails the test if it ends instead."""
        while self._process.poll() is None:
            if self.pid and self.run("systemctl", "is-system-running", "--wait").stdout.strip() in (
                "running",
                "degraded",
            ):
                return
        assert self._process.stdout is not None
        pytest.fail(f"systemd did not start: {self._process.stdout.read()}")

    @property
    def pid(self) -> int:
        """Its process 1, as it is known here; 0 while there is none."""
        with open(f"/proc/{self._process.pid}/task/{self._process.pid}/children", encoding="ascii") as file:
            found = file.read().split()
        return int(found[0]) if found else 0

    def command(self, *command: str) -> list[str]:
        """What runs a command in there."""
        return ["nsenter", "--target", str(self.pid), "--mount", "--pid", "--root", "--wd", *command]

    def run(self, *command: str, check: bool = False) -> "subprocess.CompletedProcess[str]":
        """Runs a command in there to its end."""
        ran = subprocess.run(self.command(*command), capture_output=True, text=True, check=False, timeout=WAIT_S)
        assert ran.returncode == 0 or not check, f"{command}: {ran.stdout}{ran.stderr}{self.journal()}"
        return ran

    def show(self, name: str) -> str:
        """A property of the service."""
        return self.run("systemctl", "show", "--value", "-p", name, "shmreplayd").stdout.strip()

    def journal(self) -> str:
        return self.run("journalctl", "--no-pager", "-o", "short-monotonic").stdout

    def end(self) -> None:
        """Ends all that runs there."""
        if pid := self.pid if self._process.poll() is None else 0:
            os.kill(pid, signal.SIGKILL)
            wait_for_end(pid)
        self._process.communicate(timeout=WAIT_S)
        for path, _, _ in os.walk(self._cgroup, topdown=False):
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(path)


def copy_package(folder: pathlib.Path) -> pathlib.Path:
    """shmreplay as a wheel lays it out, in a folder to import from."""
    ignored = shutil.ignore_patterns("__pycache__", "*.cc", "*.h", "systemd")
    package = folder / "shmreplay"
    for module, place in (("shmreplay", package), ("shmreplay.daemon", package / "daemon"),
                          ("shmreplay.clients", package / "clients")):  # fmt: skip
        file = importlib.import_module(module).__file__
        assert file is not None
        shutil.copytree(os.path.dirname(file), place, dirs_exist_ok=True, ignore=ignored)
    shutil.copy(_core.__file__, package)
    return folder


@contextlib.contextmanager
def booted(folder: pathlib.Path, files: pathlib.Path) -> Iterator[Booted]:
    """One that has started, and is ended afterwards."""
    machine = Booted(folder, files)
    try:
        machine.wait()
        yield machine
    finally:
        machine.end()

"""Namespaces of a test's own, which end with the processes in them: of mounts, for file systems, and of pids."""

import ctypes
import os
import shutil
import subprocess
import sys

import pytest

CLONE_NEWNS = 0x20000
MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 2, 4, 0x4000, 0x40000


def in_own_mounts(mounts: str) -> tuple[str, ...]:
    """What goes before a command, so that it runs in a namespace where that shell line was run first."""
    return ("unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "sh")


def can_mount(mounts: str) -> bool:
    """Whether this user may run this line in a new namespace."""
    if shutil.which("unshare") is None or shutil.which("mount") is None:
        return False
    return subprocess.run([*in_own_mounts(mounts), "true"], capture_output=True, check=False).returncode == 0


def take_own_shm() -> None:
    """Gives this process, and those that it starts from now on, a /dev/shm of their own. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    _succeed(libc.unshare(CLONE_NEWNS))
    _succeed(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
    _succeed(libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", MS_NOSUID | MS_NODEV, b"mode=1777"))


def _succeed(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"no own /dev/shm: {os.strerror(ctypes.get_errno())}; run it with WORKERS=0")


# What goes before a command, so that it is process 1 of a pid namespace and all processes there end with it.
IN_OWN_PIDS = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child=SIGKILL")

# For a script that runs in its own pid namespace: the next process or thread gets this number, if it is free.
NEXT_PID = """
def next_is(pid):
    with open("/proc/sys/kernel/ns_last_pid", "w") as file:
        file.write(str(pid - 1))
"""


def _can_choose_pids() -> bool:
    choose = f"{NEXT_PID}\nnext_is(300)"
    command = [*IN_OWN_PIDS, sys.executable, "-c", choose]
    return shutil.which("unshare") is not None and subprocess.run(command, capture_output=True).returncode == 0


needs_own_pids = pytest.mark.skipif(
    not _can_choose_pids(), reason="this user cannot choose the pids of a namespace of its own"
)

HIDDEN_PROC = "mount -t proc -o hidepid=2 proc /proc"  # users see their own processes alone

needs_mount = pytest.mark.skipif(
    not can_mount("mount -t tmpfs -o size=1m tmpfs /mnt"),
    reason="this user cannot mount a tmpfs in a namespace of its own",
)
needs_hidden_proc = pytest.mark.skipif(
    not can_mount(HIDDEN_PROC), reason="this user cannot mount a /proc with hidepid=2 in a namespace of its own"
)

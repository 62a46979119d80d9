"""Other processes: whether they live, by the kernel's word, and their namespaces."""

from __future__ import annotations

import errno
import os

from shmreplay import _core

# What pidfd_open answers when no process has the number. ESRCH: nobody has it. ENOENT, or EINVAL before Linux 6.9: a
# thread has it, or a group of processes whose first one has ended.
_NO_PROCESS = (errno.ESRCH, errno.EINVAL, errno.ENOENT)


def open_process(pid: int, start_time: int) -> int:
    """Returns a new pidfd of a process that lives, or has not been waited for.

    Another process may have the pid by now: the start time tells. Where /proc hides that, the pid alone counts.

    Args:
        pid: of the process.
        start_time: clock ticks since boot; 0: unknown.

    Raises:
        ProcessLookupError: it has ended.
        OSError: the kernel gives no pidfd, as when this process has too many open files.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except OSError as error:
        if error.errno in _NO_PROCESS:
            raise ProcessLookupError(f"process {pid} has ended") from None
        check_start_time(pid, start_time)
        raise
    try:
        check_start_time(pid, start_time)
    except BaseException:
        os.close(pidfd)
        raise
    return pidfd


def check_start_time(pid: int, start_time: int) -> None:
    """Raises ProcessLookupError if whoever has the pid now started at another time; 0 stands for an unknown time."""
    now = _core.process_start_time(pid)
    if 0 not in (now, start_time) and now != start_time:
        raise ProcessLookupError(f"process {pid} has ended; another process has its pid")


def has_ended(pid: int, start_time: int) -> bool:
    """Whether a process has ended. Raises OSError as `open_process`."""
    try:
        os.close(open_process(pid, start_time))
    except ProcessLookupError:
        return True
    return False


def boot_id() -> str:
    """The kernel's name for the time since the last boot, without dashes.

    Raises OSError if it cannot be read; the text names the file, and what to do.
    """
    return _core.boot_id().replace("-", "")


def own_namespace(kind: str = "pid") -> int:
    """The inode of a namespace of this process; 0 for "time" if the kernel has none. Raises OSError as `boot_id`."""
    return _core.namespace_inode(kind)


def pid_namespace_of(pid: int) -> int | None:
    """The inode of another process' pid namespace; None if it cannot be read: /proc hides those of other users.

    Also None where /proc is that of another pid namespace, in which the pid is somebody else's.
    """
    try:
        if os.readlink("/proc/self") != str(os.getpid()):
            return None
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return None

"""Whether processes live."""

import errno
import os
import signal
import subprocess

import pytest

from shmreplay import _core
from shmreplay.base.processes import check_start_time, has_ended, open_process, own_namespace, pid_namespace_of
from tests.support.daemons import Run
from tests.support.namespaces import IN_OWN_PIDS, NEXT_PID, can_mount, in_own_mounts, needs_own_pids


def test_a_process_lives_until_it_has_been_waited_for() -> None:
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    start_time = _core.process_start_time(process.pid)
    assert not has_ended(process.pid, start_time)
    os.close(open_process(process.pid, 0))
    with pytest.raises(ProcessLookupError, match="another process has its pid"):
        open_process(process.pid, start_time - 1)
    assert has_ended(process.pid, start_time - 1)
    pidfd = open_process(process.pid, start_time)
    process.communicate()
    os.close(pidfd)
    with pytest.raises(ProcessLookupError, match=f"process {process.pid} has ended"):
        open_process(process.pid, start_time)
    assert has_ended(process.pid, 0)


# A process ends, and a thread gets its number.
A_THREAD_HAS_ITS_PID = f"""
import os, subprocess, sys, threading
from shmreplay import _core
from shmreplay.base.processes import has_ended
{NEXT_PID}
process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
start_time = _core.process_start_time(process.pid)
process.communicate()
done = threading.Event()
next_is(process.pid)
thread = threading.Thread(target=done.wait)
thread.start()
assert thread.native_id == process.pid
try:
    print(has_ended(process.pid, start_time), has_ended(process.pid, 0))
finally:
    done.set()
"""


@needs_own_pids
def test_a_thread_with_the_number_of_a_process_is_not_the_process(run_script: Run) -> None:
    assert run_script(A_THREAD_HAS_ITS_PID, wrapper=IN_OWN_PIDS).finish() == (0, "True True\n", "")


def test_a_group_that_outlives_its_first_process_is_not_the_process() -> None:
    first = subprocess.Popen(["sh", "-c", "sleep 1000 & exit"], start_new_session=True)
    start_time = _core.process_start_time(first.pid)
    first.wait()
    try:
        assert has_ended(first.pid, start_time)
        assert has_ended(first.pid, 0)
    finally:
        os.killpg(first.pid, signal.SIGKILL)  # it is there


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EINVAL, errno.ESRCH])
def test_every_kernels_word_for_no_such_process_is_understood(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(pid: int) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pidfd_open", refuse)
    assert has_ended(os.getpid(), 0)


def test_a_pidfd_that_cannot_be_had_says_nothing_of_a_process_but_its_start_time_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(pid: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pidfd_open", refuse)
    start_time = _core.process_start_time(os.getpid())
    with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
        has_ended(os.getpid(), start_time)
    assert has_ended(os.getpid(), start_time - 1)


def test_a_start_time_that_is_unknown_differs_from_none() -> None:
    check_start_time(os.getpid(), 0)
    check_start_time(2**22 + 1, 1)  # above any pid_max, so there is none to compare


def test_the_namespace_of_a_process_that_is_not_there_is_unknown() -> None:
    assert own_namespace() == pid_namespace_of(os.getpid()) == os.stat("/proc/self/ns/pid").st_ino
    assert pid_namespace_of(2**22 + 1) is None


TELL_BOOT = """
from shmreplay.base.processes import boot_id
try:
    boot_id()
except OSError as error:
    print(error)
"""
HIDDEN_SYS = "mount -t tmpfs -o size=4k tmpfs /proc/sys"


@pytest.mark.skipif(not can_mount(HIDDEN_SYS), reason="this user cannot hide /proc/sys")
def test_a_boot_that_is_hidden_is_an_error_with_the_file_and_what_to_do(run_script: Run) -> None:
    code, out, err = run_script(TELL_BOOT, wrapper=in_own_mounts(HIDDEN_SYS)).finish()
    assert (code, err) == (0, "")
    assert out.startswith("[Errno 2] /proc/sys/kernel/random/boot_id cannot be read")
    assert "mount all of /proc here" in out

"""What embedded daemons leave that were killed together with their parents: it goes, and nothing of the living does."""

import os
import pathlib
import secrets
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace

import psutil
import pytest

import shmreplay as sr
from shmreplay.daemon.process.leftovers import remove_leftovers
from shmreplay.daemon.process.parent import Parent
from shmreplay.segments.segment import SegmentStore, embedded_instance, lock_name, segment_names
from tests.support.daemons import Run, Script, wait_for_end
from tests.support.namespaces import IN_OWN_PIDS, NEXT_PID, needs_own_pids

SERVE = """
import os, signal, sys
import numpy as np
import shmreplay as sr
server = sr.Server([sr.Table("replay", {"x": np.zeros(3, np.float32)}, max_size=1000)])
table = server.client().table("replay")
"""


def left_by(script: Script) -> list[str]:
    """The files of the embedded daemon whose instance the script prints next."""
    instance = script.line()
    return sorted(name for name in os.listdir("/dev/shm") if name.split(".")[1:2] == [instance])


def kill_all(script: Script) -> None:
    """Ends all processes of the script's pid namespace at once, as the end of a container does."""
    [first] = psutil.Process(script.pid).children()
    script.close()
    wait_for_end(first.pid)


# The parent and its daemon are killed; then a thread gets the parent's pid.
A_THREAD_HAS_THE_PARENTS_PID = f"""
import os, signal, subprocess, sys, threading
import shmreplay as sr
{NEXT_PID}
serve = {SERVE!r} + "print(server.pid, flush=True); input()"
parent = subprocess.Popen([sys.executable, "-c", serve], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
daemon = int(parent.stdout.readline())
os.kill(daemon, signal.SIGSTOP)  # or it would clean up when its parent dies
parent.kill()
parent.wait()
os.kill(daemon, signal.SIGKILL)
os.waitpid(daemon, 0)  # it has been our child since its parent ended
left = [name for name in os.listdir("/dev/shm") if name.startswith("shmreplay.embedded-%d-" % parent.pid)]
assert len(left) == 3, left
done = threading.Event()
next_is(parent.pid)
thread = threading.Thread(target=done.wait)
thread.start()
assert thread.native_id == parent.pid
try:
    with sr.Server():
        print([name for name in left if os.path.exists("/dev/shm/" + name)])
finally:
    done.set()
"""


@needs_own_pids
def test_a_thread_with_the_pid_of_a_dead_parent_keeps_no_server_from_starting(run_script: Run) -> None:
    script = run_script(A_THREAD_HAS_THE_PARENTS_PID, wrapper=IN_OWN_PIDS)
    assert script.finish() == (0, "[]\n", "")


@needs_own_pids
@pytest.mark.long
def test_a_container_that_starts_again_removes_what_its_last_life_left(run_script: Run) -> None:
    """Its first process is process 1 in each life, and always lives."""
    serve = f"{SERVE}\nassert os.getpid() == 1\nprint(server._daemon._instance, flush=True)\ninput()"
    last: list[str] = []
    for _ in range(2):
        script = run_script(serve, wrapper=IN_OWN_PIDS)
        files = left_by(script)
        assert len(files) == 3
        assert [name for name in last if os.path.exists(f"/dev/shm/{name}")] == []
        kill_all(script)
        last = files
    with sr.Server():
        assert [name for name in last if os.path.exists(f"/dev/shm/{name}")] == []


# A process whose pid nobody has in the test's namespace, and which works on after its daemon was killed.
WORK_ON = f"""
import os, sys
{NEXT_PID}
next_is(int(sys.argv[1]))
pid = os.fork()
if pid:
    assert pid == int(sys.argv[1])
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
{SERVE}
os.kill(server.pid, signal.SIGKILL)
server._daemon.process.wait()
print(server._daemon._instance, flush=True)
input()
table.insert({{"x": np.ones(3, np.float32)}})
print(len(table), flush=True)
input()
os.kill(os.getpid(), signal.SIGKILL)
"""


@needs_own_pids
@pytest.mark.long
def test_a_server_of_another_container_leaves_those_of_the_living_alone(run_script: Run) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    script = run_script(WORK_ON, str(gone.pid), wrapper=IN_OWN_PIDS)
    files = left_by(script)
    with sr.Server():
        assert [name for name in files if os.path.exists(f"/dev/shm/{name}")] == files
    script.say()
    assert script.line() == "1"
    script.say()
    assert script.finish()[0] == 256 - signal.SIGKILL
    with sr.Server():
        assert [name for name in files if os.path.exists(f"/dev/shm/{name}")] == []


@pytest.fixture
def store() -> Iterator[SegmentStore]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield SegmentStore(folder)


def leave(store: SegmentStore, text: str) -> str:
    """Makes what a daemon that was killed left: its lock file with this text, and an arena."""
    instance = embedded_instance(1, secrets.token_hex(6))
    pathlib.Path(store.path(lock_name(instance))).write_text(text)
    for name in (segment_names(instance, "a").index, segment_names(instance, "a").data):
        os.close(store.create(name))
    return instance


@pytest.mark.parametrize("text", ["1\n/nowhere/1.sock\n", "1\n/nowhere/1.sock\nparent 1 of many\n"])
def test_leftovers_whose_parent_is_unknown_go_once_nobody_uses_them(store: SegmentStore, text: str) -> None:
    """As those of a version that did not write who the parent was."""
    instance = leave(store, text)
    fd = store.open(segment_names(instance, "a").data)
    remove_leftovers(store)
    assert store.locked_instances() == [instance]
    assert store.arenas(instance) == {"a": {"index", "data"}}
    os.close(fd)
    remove_leftovers(store)
    assert store.locked_instances() == []
    assert store.arenas(instance) == {}


def test_a_lock_file_that_is_not_written_yet_is_left_to_the_daemon_that_made_it(store: SegmentStore) -> None:
    instance = leave(store, "")
    remove_leftovers(store)
    assert store.locked_instances() == [instance]


def test_leftovers_that_cannot_be_removed_are_named_and_tried_again(
    store: SegmentStore, caplog: pytest.LogCaptureFixture
) -> None:
    instance = leave(store, f"1\n/nowhere/1.sock\n{replace(Parent.of(1), boot_id='0').line()}\n")
    path = store.path(segment_names(instance, "b").index)
    os.mkdir(path)
    remove_leftovers(store)
    assert f"the leftovers of the killed daemon {instance!r} stay: segment {path} cannot be removed" in caplog.text
    os.rmdir(path)
    remove_leftovers(store)
    assert store.locked_instances() == []

"""Groups M and N: deaths, locks, hangs, forks and trackers, as public bug reports of such buffers found them.

Covered elsewhere. M1 and M3, the killed holder of a lock (birdnet-team/birdnet#73, Project-HAMi/HAMi#2500), and M4,
what it left half-done: tests/native/deaths/crash_test.cc. M2, a killed reader (sysrepo/sysrepo#2033):
tests/system/test_held_things.py. M5, a sample that waits for ever without a word (verl-project/verl#7155) and M6, one
side is gone (google-deepmind/acme#213): `test_a_long_wait_is_logged_in_the_process_that_waits`,
`test_a_blocked_insert_names_what_is_missing_and_the_attached_processes`. M10, actors stopped in an insert
(pytorch/rl#2614):
tests/soak. N3, a fork after attach, N4, every start method, N9, pickles: tests/clients/handles/test_forks.py.
"""

import os
import signal

import pytest

import shmreplay as sr
from tests.support.daemons import DaemonProcess, Run, table, wait_for_end
from tests.support.waiting import eventually

TRAINER = """
import os, sys, time
import numpy as np
import shmreplay as sr
client = sr.connect(sys.argv[1])
table = client.table("replay")
step = {"x": np.ones(3, np.float32), "n": 1}
table.insert(step)
if os.fork() == 0:
    writer = table.writer(history=3)
    writer.append(step)
    print(os.getpid(), flush=True)
    while True:
        table.insert(step)
        time.sleep(0.01)
input()
"""


def sessions(client: sr.Client) -> list[int]:
    return sorted(entry["pid"] for entry in client.stats()["arenas"]["replay"]["sessions"])


@pytest.mark.crash
def test_what_children_of_a_killed_trainer_hold_comes_back_as_each_of_them_ends(
    daemon: DaemonProcess, client: sr.Client, run_script: Run
) -> None:
    """M9, the parent is killed and its children stay (joblib/loky#360)."""
    client.create_tables([table()])
    handle = client.table("replay")
    trainer = run_script(TRAINER, daemon.socket)
    child = int(trainer.line())
    try:
        os.kill(trainer.pid, signal.SIGKILL)
        eventually(lambda: sessions(client) == sorted([os.getpid(), child]))
        size = len(handle)
        eventually(lambda: len(handle) > size)  # the child goes on
    finally:
        os.kill(child, signal.SIGKILL)
    wait_for_end(child)
    eventually(lambda: sessions(client) == [os.getpid()])
    client.reset("replay")
    assert handle._arena.stats()["used_chunks"] == 0
    assert handle._arena.check() == []


COMES_AND_GOES = """
import os, sys
import numpy as np
import shmreplay as sr
for _ in range(40):
    pid = os.fork()
    if pid == 0:
        client = sr.connect(sys.argv[1])
        client.table("replay").insert({"x": np.ones(3, np.float32), "n": 1})
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
from multiprocessing import resource_tracker
assert resource_tracker._resource_tracker._pid is None
assert not {name.split(".")[0] for name in sys.modules} & {"torch", "cuda", "pycuda", "cupy"}
"""


def test_actors_that_come_and_go_unlink_nothing_and_no_tracker_is_started(
    daemon: DaemonProcess, client: sr.Client, run_script: Run
) -> None:
    """N1, Python's resource tracker unlinks a live segment; N6, an import that makes a CUDA context."""
    client.create_tables([table()])
    segments = daemon.segments()
    assert run_script(COMES_AND_GOES, daemon.socket).finish() == (0, "", "")
    assert daemon.segments() == segments
    assert len(client.table("replay")) == 40

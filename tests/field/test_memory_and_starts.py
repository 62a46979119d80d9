"""Groups I, J, K and L: sizes, limits, leftovers and permissions, as public bug reports of buffers found them.

Covered elsewhere. I1, the memory is not what was said (pytorch/rl#844): tests/shmreplay/tables/test_memory_used.py. I2,
out of memory late (ymd-h/cpprb#105), J1 and J2, a /dev/shm of 64 MB (pytorch/pytorch#5040):
tests/daemon/arenas/test_creation.py. I4, a cgroup's limit (kubernetes#125852):
tests/shmreplay/base/test_host_memory.py. J4, a segment truncated by somebody: the same file's
`test_a_segment_truncated_under_the_daemon_fails_its_arena_and_nothing_else`.
K2, a dead daemon's segment: `test_a_socket_that_nobody_listens_at_is_no_daemon`. K3, leaks of starts that were
killed: `test_many_cycles_of_start_and_kill_with_work_in_between_leave_shared_memory_as_it_was`. K5, another size
under the same name: `test_other_specs_under_a_name_are_refused_with_the_difference`. K7, killed between creation and
ready: `test_killing_the_daemon_in_the_middle_of_a_creation_leaves_nothing_to_the_next_one`. K8, a lock file without
its holder: `test_a_lock_file_that_nobody_holds_is_taken_over`. L3, world-writable segments, and L4, containers:
tests/daemon/arenas/test_access.py, `test_a_segment_open_to_everybody_is_not_adopted`.
"""

import os
import signal

import numpy as np
import pytest

import shmreplay as sr
from tests.support.daemons import DaemonProcess, Run, table, wait_for_end
from tests.support.waiting import eventually

STEP = {"x": np.ones(3, np.float32), "n": 7}

COUNT = """
import os, re, sys
import shmreplay as sr
client = sr.connect(sys.argv[1])
def counts():
    with open("/proc/self/maps") as maps:
        return len(os.listdir("/proc/self/fd")), sum("shmreplay." in line for line in maps)
print(*counts(), flush=True)
handles = [client.table(name) for name in sys.argv[2:]]
print(*counts(), flush=True)
handles.clear()
client.close()
del client
print(*counts(), flush=True)
"""


def test_a_table_costs_a_client_two_mappings_and_no_descriptor(
    daemon: DaemonProcess, client: sr.Client, run_script: Run
) -> None:
    """J6, "received 0 items of ancdata" (pytorch/pytorch#973), and J7, vm.max_map_count: hundreds of tables attach."""
    names = [f"t{i}" for i in range(20)]
    for name in names:
        client.create_tables([table(name, 10, max_sessions=4)])
    script = run_script(COUNT, daemon.socket, *names)
    before, attached, after = ([int(n) for n in script.line().split()] for _ in range(3))
    assert attached == [before[0], 2 * len(names)]
    assert after == [before[0] - 1, 0]  # the socket went with the client


INSERT_FOR_EVER = """
import sys
import numpy as np
import shmreplay as sr
table = sr.connect(sys.argv[1]).table("replay")
while True:
    table.insert({"x": np.ones(3, np.float32), "n": 1})
    print("inserted", flush=True)
"""


@pytest.mark.crash
def test_when_all_actors_are_killed_shared_memory_is_what_it_was(
    daemon: DaemonProcess, client: sr.Client, run_script: Run
) -> None:
    """J5, a /dev/shm that fills with what killed workers left (pytorch/pytorch#1355)."""
    client.create_tables([table()])
    there = memory_of(daemon)
    actors = [run_script(INSERT_FOR_EVER, daemon.socket) for _ in range(3)]
    for actor in actors:
        actor.line()
    for actor in actors:
        os.kill(actor.pid, signal.SIGKILL)
        wait_for_end(actor.pid)
    eventually(lambda: client.stats()["arenas"]["replay"]["sessions"] == [])
    assert memory_of(daemon) == there


def memory_of(daemon: DaemonProcess) -> dict[str, int]:
    """Bytes that each file of the daemon takes in shared memory."""
    paths = {name: daemon.store.path(name) for name in daemon.left_behind() if name != daemon.socket}
    return {name: os.stat(path).st_blocks * 512 for name, path in paths.items()}


def test_after_a_stop_nothing_of_the_old_data_can_be_sampled(daemon: DaemonProcess) -> None:
    """K6, files that are left mix old data with new (pytorch/rl#3321)."""
    with daemon.connect() as client:
        client.create_tables([table()])
        keys = [client.table("replay").insert(STEP) for _ in range(5)]
    assert daemon.stop() == 0
    daemon.start()
    with daemon.connect() as client:
        client.create_tables([table()])
        handle = client.table("replay")
        assert len(handle) == 0
        assert len(handle.get(keys)) == 0
        with pytest.raises(sr.RateLimitTimeout):
            handle.sample(1, timeout_s=0)
        assert handle.insert(STEP) not in keys

"""Python ends while threads of it are in a call: the process ends with its own exit code, and leaves nothing broken."""

from collections.abc import Callable

import numpy as np
import pytest

import shmreplay as sr
from tests.system.conftest import Script

Run = Callable[..., Script]
pytestmark = pytest.mark.usefixtures("nothing_left_by_this_test")

# Modules are taken down when no other thread gets the GIL any more: it is then that a call that waits is woken.
TAKE_AND_RETURN_TOO_LATE = """
import os, sys, threading, time
import shmreplay as sr

class Last:
    def __init__(self, address):
        self.os, self.table = os, sr.connect(address).table("queue")
        thread = threading.Thread(target=self.table.sample, args=(1,), daemon=True)
        thread.start()
        while not self.table.info().blocked_samples:
            time.sleep(0.001)
        self.stat = os.open(f"/proc/self/task/{thread.native_id}/stat", os.O_RDONLY)

    def __del__(self):
        self.table.insert({"x": 1})
        while self.table.info().size or b") S" not in self.os.pread(self.stat, 64, 0):
            pass
        self.os.write(1, b"taken\\n")

last = Last(sys.argv[1])
"""


def test_a_daemon_thread_may_be_in_a_call_when_the_interpreter_ends(run_script: Run) -> None:
    queue = sr.Table.queue("queue", {"x": np.int64(0)}, 4, max_streams=8, max_sessions=8)
    with sr.Server(tables=[queue]) as server, server.client() as client:
        assert run_script(TAKE_AND_RETURN_TOO_LATE, server.address).finish() == (0, "taken\n", "")
        table = client.table("queue")
        assert (table.info().size, table.info().samples) == (0, 1)
        table.insert({"x": 2})
        assert table.sample(1).data["x"].tolist() == [2]


# The thread is blocked in the core, or has sampled as far ahead as it may; the sampler is a global, or a thread's own.
LEAVE_SAMPLERS = """
import sys, threading
import shmreplay as sr

client = sr.connect(sys.argv[1])
full, empty = client.table("full"), client.table("empty")
for n in range(20):
    full.insert({"x": n})

ahead, blocked = full.sampler(4), empty.sampler(4)
assert len(next(ahead)) == 4
waits = threading.Thread(target=lambda: next(blocked), daemon=True)
waits.start()
loops = threading.Thread(target=lambda: [None for _ in full.sampler(4, prefetch=1)], daemon=True)
loops.start()
while not empty.info().blocked_samples:
    pass
print("ends")
"""


def test_samplers_end_with_the_interpreter(run_script: Run) -> None:
    tables = [sr.Table(name, {"x": np.int64(0)}, 100, max_streams=8, max_sessions=8) for name in ("full", "empty")]
    with sr.Server(tables=tables) as server, server.client() as client:
        assert run_script(LEAVE_SAMPLERS, server.address).finish() == (0, "ends\n", "")
        table = client.table("full")
        assert len(table.sample(4)) == 4
        assert table._arena.check() == []

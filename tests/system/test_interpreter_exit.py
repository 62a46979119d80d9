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

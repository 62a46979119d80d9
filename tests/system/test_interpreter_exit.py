"""Python ends while threads of it are in a call: the process ends with its own exit code, and leaves nothing broken."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest

import shmreplay as sr
from tests.support.daemons import Run
from tests.support.waiting import WAIT_S, eventually

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


@pytest.mark.long
def test_a_daemon_thread_may_be_in_a_call_when_the_interpreter_ends(run_script: Run) -> None:
    queue = sr.Table.queue("queue", {"x": np.int64(0)}, 4, max_streams=8, max_sessions=8)
    with sr.Server(tables=[queue]) as server, server.client() as client:
        table = client.table("queue")
        table.insert({"x": 0})  # the first item of all: from then on a batch's arrays are made before the wait
        table.sample(1)
        assert run_script(TAKE_AND_RETURN_TOO_LATE, server.address).finish() == (0, "taken\n", "")
        assert (table.info().size, table.info().samples) == (0, 2)
        table.insert({"x": 2})
        assert table.sample(1).data["x"].tolist() == [2]


# A view that is never released, and an array of one that is gone, read when modules are taken down.
KEEP_VIEWS = """
import os, sys
import numpy as np
import shmreplay as sr

table = sr.connect(sys.argv[1]).table("replay")
for n in range(4):
    table.insert({"x": np.full(3, n)})
view = table.view(2)

class Last:
    def __init__(self):
        self.os, self.array = os, table.view(1)[0].data["x"]

    def __del__(self):
        self.os.write(1, b"whole\\n" if len(set(self.array.tolist())) == 1 else b"torn\\n")

last = Last()
"""


@pytest.mark.long
def test_views_and_their_arrays_may_be_held_when_the_interpreter_ends(run_script: Run) -> None:
    table = sr.Table("replay", {"x": sr.ArraySpec((3,), "int64")}, 10, max_streams=8, max_sessions=8)
    with sr.Server(tables=[table]) as server, server.client() as client:
        assert run_script(KEEP_VIEWS, server.address).finish() == (0, "whole\n", "")
        handle = client.table("replay")
        eventually(lambda: len(client.stats()["arenas"]["replay"]["sessions"]) == 1)
        assert handle._arena.check() == []
        assert len(handle) == 4


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


@pytest.mark.long
def test_samplers_end_with_the_interpreter(run_script: Run) -> None:
    tables = [sr.Table(name, {"x": np.int64(0)}, 100, max_streams=8, max_sessions=8) for name in ("full", "empty")]
    with sr.Server(tables=tables) as server, server.client() as client:
        assert run_script(LEAVE_SAMPLERS, server.address).finish() == (0, "ends\n", "")
        table = client.table("full")
        assert len(table.sample(4)) == 4
        assert table._arena.check() == []


# The last reference to a client goes in native code, and its end takes until Python no longer waits for anything.
DROP_IN_A_THREAD = """
import sys, threading, time
import shmreplay as sr

ends, is_dropped = threading.Event(), threading.Event()

class Slow:
    def __del__(self):
        is_dropped.set()
        ends.wait()
        for _ in range({rounds}):
            time.sleep(0)
        print("dropped", flush=True)

def table():
    found = sr.connect(sys.argv[1]).table("table")
    found._client.slow = Slow()
    return found

{work}
is_dropped.wait()
ends.set()
"""

LEAVE_A_SAMPLER = """
sampler = table().sampler(1, prefetch=1)
next(sampler)
del sampler
"""

DROP_A_TABLE = """
def drop():
    gone = table()
    del gone

threading.Thread(target=drop, daemon=True).start()
"""


@pytest.mark.parametrize(("work", "rounds", "said"), [(LEAVE_A_SAMPLER, 2000, "dropped\n"), (DROP_A_TABLE, 10**12, "")])
@pytest.mark.one_quick
def test_a_thread_may_drop_the_last_reference_when_the_interpreter_ends(
    run_script: Run, work: str, rounds: int, said: str
) -> None:
    """Python waits for a sampler's thread. It ends a daemon thread in the middle of that, within native code."""
    table = sr.Table("table", {"x": np.int64(0)}, 10, max_streams=8, max_sessions=8)
    with sr.Server(tables=[table]) as server, server.client() as client:
        client.table("table").insert({"x": 1})
        script = DROP_IN_A_THREAD.format(work=work, rounds=rounds)
        assert run_script(script, server.address).finish() == (0, said, "")


# A handler of atexit that runs after those of shmreplay: no thread samples ahead any more.
SAMPLE_AT_EXIT = """
import atexit, sys
atexit.register(lambda: print(len(next(sampler)), len(next(other))))
import shmreplay as sr

table = sr.connect(sys.argv[1]).table("table")
sampler, other = table.sampler(2, prefetch=1), table.sampler(3)
next(sampler)
"""


@pytest.mark.long
def test_a_sampler_goes_on_without_a_thread_while_the_interpreter_ends(run_script: Run) -> None:
    table = sr.Table("table", {"x": np.int64(0)}, 10, max_streams=8, max_sessions=8)
    with sr.Server(tables=[table]) as server, server.client() as client:
        client.table("table").insert({"x": 1})
        assert run_script(SAMPLE_AT_EXIT, server.address).finish() == (0, "2 3\n", "")


# As a user writes it who knows no `with`. multiprocessing joins the actor at exit, and the actor waits for a sample.
# A finalizer made before, as any library may have one, has all of them run behind that join.
RAISE_WITH_A_BLOCKED_ACTOR = """
import weakref
first = weakref.finalize(weakref.WeakSet(), int)
import contextlib, multiprocessing
import numpy as np
import shmreplay as sr

def act(address):
    with contextlib.suppress(sr.TableClosed):
        queue = sr.connect(address).table("queue")
        while True:
            queue.insert({"x": 1})

if __name__ == "__main__":
    server = sr.Server([sr.Table.queue("queue", {"x": np.int64(0)}, 4, max_streams=8, max_sessions=8)])
    queue = server.client().table("queue")
    actor = multiprocessing.get_context("spawn").Process(target=act, args=(server.address,))
    actor.start()
    while not queue.info().blocked_inserts:
        pass
    raise RuntimeError("the learner's")
"""


def test_a_script_that_raises_ends_its_server_and_so_its_blocked_actors(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(RAISE_WITH_A_BLOCKED_ACTOR, encoding="utf-8")
    ended = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=WAIT_S, cwd="/")
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "RuntimeError: the learner's"


# A child that was forked and ends as any interpreter does, with atexit's handlers.
FORK_WITH_A_SERVER = """
import os, sys
import numpy as np
import shmreplay as sr

server = sr.Server([sr.Table("table", {"x": np.int64(0)}, 4, max_streams=8, max_sessions=8)])
if (child := os.fork()) == 0:
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
table = server.client().table("table")
table.insert({"x": 1})
print(len(table))
"""


def test_a_forked_child_that_ends_leaves_the_server_alone(run_script: Run) -> None:
    assert run_script(FORK_WITH_A_SERVER).finish() == (0, "1\n", "")


def test_a_closed_server_leaves_nothing_to_be_done_at_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[object] = []
    monkeypatch.setattr("atexit.register", registered.append)
    monkeypatch.setattr("atexit.unregister", registered.remove)
    with sr.Server():
        assert len(registered) == 1
    assert registered == []
    sr.Server()  # collected at once
    assert registered == []

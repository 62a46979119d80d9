"""Clients of one process share its session in an arena, and end it with the last of them, however they come and go."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.link.attachments import Ending, Mapping, Mappings, mappings
from shmreplay.clients.link.connection import Reply
from tests.support.daemons import DaemonProcess, Run, table
from tests.support.rounds import rounds
from tests.support.waiting import WAIT_S, eventually

STEP = {"x": np.zeros(3, np.float32), "n": 1}


def come_and_go(daemon: DaemonProcess, times: int) -> None:
    for _ in range(times):
        with daemon.connect() as client:
            replay = client.table("replay")
            replay.insert(STEP)
            assert len(replay.sample(1)) == 1


@pytest.mark.parametrize("num_threads", [2, 4])
def test_no_client_ends_the_session_of_another_thread(daemon: DaemonProcess, num_threads: int) -> None:
    with daemon.connect() as other:
        other.create_tables([table()])
        with ThreadPoolExecutor(num_threads) as pool:
            for work in [pool.submit(come_and_go, daemon, rounds(20, 400)) for _ in range(num_threads)]:
                work.result(WAIT_S)
        assert mappings().by_identity == {}
        eventually(lambda: other.stats()["arenas"]["replay"]["sessions"] == [])


def test_answers_that_name_an_ended_session_are_asked_for_again(
    daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads have the daemon's answer with the session of a third, which ends it. The first has mapped it anew."""
    with daemon.connect() as first, daemon.connect() as second, daemon.connect() as third:
        third.create_tables([table()])
        third.table("replay")
        own, ask = mappings(), second._request
        late = first._request("open", takes_fds=True, table="replay")

        def answer_late(*arguments: Any, **options: Any) -> Reply:
            reply = ask(*arguments, **options)
            if third._held:
                third._detach_all()
                own.take(late, user=1)
            return reply

        monkeypatch.setattr(second, "_request", answer_late)
        second.table("replay").insert(STEP)
        (dead,) = (mapping for mapping in own.by_identity.values() if 1 in mapping.users)
        assert own.release(dead, user=1)
        own.ended(dead)


def test_a_handler_may_attach_while_dropped_arenas_are_forgotten() -> None:
    own, later = Mappings(), (2, 2, 2, 2)

    class Arena:
        """A signal comes during the look at it, and its handler attaches to another one."""

        dropped = True

        def table(self, index: int) -> "Arena":
            own.by_identity[later] = Mapping(cast(Any, self), "later", 2, 2)
            return self

    own.by_identity[1, 1, 1, 1] = Mapping(cast(Any, Arena()), "dropped", 1, 1)
    own._forget_dropped()
    assert list(own.by_identity) == [later]


def test_the_thread_that_ends_a_session_does_not_wait_for_itself() -> None:
    with pytest.raises(sr.ShmReplayError, match=r"ending its session in arena 'a' when a signal came; the handler"):
        Ending("a").wait()


# Signals at random moments of a thread that connects, attaches, works, asks and closes; the handler does the same.
AT_RANDOM = """
import random, signal, sys, time
import numpy as np
import shmreplay as sr

socket, seed, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
rng = random.Random(seed)
shared = sr.connect(socket)
step = {"x": np.zeros(3, np.float32), "n": 1}
num, refused = 0, 0

def act(client, what):
    if what == 0:
        client.tables()
    elif what == 1:
        client.table("replay").insert(step)
    elif what == 2:
        client.table("replay").sample(1, timeout_s=100)
    elif what == 3:
        with sr.connect(socket) as own:
            own.table("replay").insert(step)
    elif what == 4:
        client._detach_all()
    else:
        client.stats()

def once():
    global refused
    try:
        act(shared, rng.randrange(6))
    except sr.SessionLost:
        pass  # the session of a handle that is older than a _detach_all
    except sr.ShmReplayError as error:
        if "the handler cannot attach" not in str(error):
            raise
        refused += 1

def handler(number, frame):
    global num
    num += 1
    once()
    arm()

def arm():  # one signal at a time, so that the thread comes on in between
    signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.001, 0.005))

for what in (1, 2, 3, 4, 5, 0):  # the table has an item now, and all modules are imported
    act(shared, what)
signal.signal(signal.SIGALRM, handler)
arm()
end = time.monotonic() + seconds
while time.monotonic() < end:
    once()
signal.signal(signal.SIGALRM, signal.SIG_IGN)
shared.close()
print("done", num, refused)
"""


@pytest.mark.crash
def test_signal_handlers_at_random_moments_never_hang(daemon: DaemonProcess, run_script: Run, seed: int) -> None:
    with daemon.connect() as client:
        client.create_tables([table()])
        code, out, err = run_script(AT_RANDOM, daemon.socket, str(seed), str(rounds(2, 30))).finish()
        assert code == 0, err
        assert int(out.split()[1]) > 0
        eventually(lambda: client.stats()["arenas"]["replay"]["sessions"] == [])

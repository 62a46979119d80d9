"""Requests at the same time: of threads that share a client, and of a signal handler that came during one."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

import shmreplay as sr
from tests.support.children import Fork
from tests.support.daemons import DaemonProcess, Run, StartDaemon, table
from tests.support.waiting import WAIT_S

# A reset that never comes back.
STUCK = """
import asyncio, sys
from shmreplay.daemon.main import main
from shmreplay.daemon.arenas.registry import Registry
async def on_table(self, *arguments):
    await asyncio.Event().wait()
Registry.on_table = on_table
sys.exit(main())
"""

IN_A_HANDLER = """
import signal, sys
import shmreplay as sr

class Enough(Exception):
    pass

client = sr.connect(sys.argv[1])
client.create_tables([sr.Table("replay", {"n": sr.ArraySpec((), "int64")}, 10)])
done = []

def handler(number, frame):
    %s
    done.append(number)
    if len(done) == 10:
        raise Enough
    signal.setitimer(signal.ITIMER_REAL, 0.005)

signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.1)
try:
    client.reset("replay")  # never answered
except Enough:
    print("went on")
"""


@pytest.mark.parametrize(
    "action",
    [
        "client.tables()",
        "client.table('replay')",
        "client.table('replay').insert({'n': 1})",
        "client.close()",
        "client.table('replay') if len(done) % 2 else client._detach_all()",
    ],
)
@pytest.mark.one_quick
def test_a_signal_handler_uses_the_client_whose_request_it_interrupts(
    make_daemon: StartDaemon, run_script: Run, action: str
) -> None:
    daemon = make_daemon().start(source=STUCK)
    assert run_script(IN_A_HANDLER % action, daemon.socket).finish() == (0, "went on\n", "")
    assert daemon.stop() == 0


@pytest.mark.long
def test_a_request_that_is_not_answered_holds_up_no_other_thread_of_its_client(make_daemon: StartDaemon) -> None:
    daemon = make_daemon().start(source=STUCK)
    with daemon.connect() as client, ThreadPoolExecutor(1) as pool:
        client.create_tables([table()])
        stuck = pool.submit(client.reset, "replay")
        for _ in range(10):
            assert list(client.tables()) == ["replay"]
            client.table("replay")
        assert not stuck.done()
        assert daemon.stop() == 0
        with pytest.raises(sr.ShmReplayError):
            stuck.result(WAIT_S)


def test_one_free_socket_is_kept_however_many_threads_have_asked(daemon: DaemonProcess) -> None:
    with daemon.connect() as client:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: client.tables(), range(64)))
        client.tables()
        assert len(client.connection._free) == 1
        client.close()
        assert client.connection._free == []


@pytest.mark.long
def test_an_attach_that_waits_holds_up_no_client_of_another_daemon(make_daemon: StartDaemon) -> None:
    first, second = make_daemon().start(), make_daemon().start()
    with first.connect() as waiting, second.connect() as client, ThreadPoolExecutor(1) as pool:
        waiting.create_tables([table()])
        first.signal(signal.SIGSTOP)
        attach = pool.submit(waiting.table, "replay")
        client.create_tables([table("other")])
        for _ in range(5):
            with second.connect() as late:
                assert len(late.table("other")) == 0
        client.drop_table("other")
        assert not attach.done()
        first.signal(signal.SIGCONT)
        assert len(attach.result(WAIT_S)) == 0


def test_a_forked_child_holds_no_socket_of_its_parent(daemon: DaemonProcess, fork: Fork) -> None:
    with daemon.connect() as client:
        sockets = [line.sock.fileno() for line in client.connection._free]
        assert len(sockets) == 1
        closed = fork(lambda pipe: [line.sock.fileno() for line in client.connection._free]).result()
        assert closed == [-1]
        assert client.tables() == {}
        assert fork(lambda pipe: client.tables()).result() == {}
    assert os.path.exists(daemon.socket)

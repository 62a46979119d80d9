"""The daemon is killed while everybody works, or while it has somebody's request."""

import concurrent.futures
import os
import pathlib
import signal
import time
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from tests.support.children import Child, Fork, Work, fork
from tests.support.daemons import DaemonProcess, StartDaemon, table
from tests.support.rounds import rounds
from tests.support.tables import COLUMNS, numbers, step
from tests.support.waiting import WAIT_S, eventually

__all__ = ["fork"]
CYCLES = int(os.environ.get("SHMREPLAY_DAEMON_CYCLES", rounds(3, 6)))

# Kills itself while it has a request of that name.
DIES = """
import os, signal, sys
from shmreplay.daemon.control.commands import Commands
from shmreplay.daemon.main import main
run = Commands.run
async def run_or_die(self, request, caller):
    if request["command"] == "tables":
        os.kill(os.getpid(), signal.SIGKILL)
    return await run(self, request, caller)
Commands.run = run_or_die
sys.exit(main())
"""


@pytest.mark.crash
def test_a_request_that_daemons_die_with_is_repeated_until_one_lives(make_daemon: StartDaemon) -> None:
    daemon = make_daemon().start(source=DIES)
    with daemon.connect() as client, concurrent.futures.ThreadPoolExecutor(1) as pool:
        call = pool.submit(client.tables)
        assert daemon.wait() == -signal.SIGKILL
        daemon.start(source=DIES)
        assert daemon.wait() == -signal.SIGKILL  # this time on a connection that was made for the request
        daemon.start()
        assert call.result(WAIT_S) == {}


@pytest.mark.long
@pytest.mark.crash
def test_a_request_that_every_daemon_dies_of_is_an_error(make_daemon: StartDaemon) -> None:
    daemon = make_daemon().start(source=DIES)
    with daemon.connect() as client, concurrent.futures.ThreadPoolExecutor(1) as pool:
        call = pool.submit(client.tables)
        for _ in range(3):
            assert daemon.wait() == -signal.SIGKILL
            daemon.start(source=DIES)
        with pytest.raises(sr.DaemonUnavailable, match="closed the connection during tables; it was stopped or killed"):
            call.result(WAIT_S)


@pytest.mark.crash
def test_a_request_that_changes_something_is_not_repeated(make_daemon: StartDaemon) -> None:
    daemon = make_daemon().start(source=DIES.replace('"tables"', '"drop_table"'))
    with daemon.connect() as client:
        client.create_tables([table()])
        with pytest.raises(sr.DaemonUnavailable, match="closed the connection during drop_table"):
            client.drop_table("replay")
        assert daemon.wait() == -signal.SIGKILL
        daemon.start()
        assert list(client.tables()) == ["replay"]


@pytest.mark.long
@pytest.mark.crash
def test_what_is_not_repeated_goes_to_the_daemon_of_that_moment(
    make_daemon: StartDaemon, tmp_path: pathlib.Path
) -> None:
    daemon = make_daemon().start("--checkpoint-dir", str(tmp_path))
    with daemon.connect() as client:
        client.create_tables([table()])
        for _ in range(2):
            daemon.kill()
            daemon.start("--checkpoint-dir", str(tmp_path))
            assert os.path.exists(client.checkpoint())
        daemon.kill()
        daemon.start()
        client.drop_table("replay")
        assert client.tables() == {}
        daemon.kill()
        daemon.start()
        client.shutdown()
        assert daemon.wait() == 0


def act(client: sr.Client) -> Work:
    def work(pipe: Any) -> None:
        handle = client.table("replay")
        for n in range(10**9):
            handle.insert(step(n))
            if n % 1000 == 0:
                pipe.send(n)

    return work


def learn(client: sr.Client) -> Work:
    def work(pipe: Any) -> None:
        handle = client.table("replay")
        for n in range(10**9):
            batch = handle.sample(32)
            numbers(batch)
            handle.update_priorities(batch.keys, [1.0] * len(batch))
            if n % 20 == 0:
                pipe.send(n)

    return work


def all_get_on(children: list[Child]) -> None:
    """Each of them says something that it did after this call began."""
    for child in children:
        while child.has_something():
            child.receive()
        child.receive()


@pytest.mark.long
@pytest.mark.crash
def test_actors_and_learners_do_not_notice_that_the_daemon_dies_and_comes_back(
    daemon: DaemonProcess, client: sr.Client, fork: Fork
) -> None:
    client.create_tables(
        [sr.Table("replay", COLUMNS, 200_000, sampler=sr.selectors.Prioritized(0.6), max_streams=32, max_sessions=32)]
    )
    children = [fork(act(client)) for _ in range(8)] + [fork(learn(client)) for _ in range(2)]
    all_get_on(children)
    before = {entry["pid"] for entry in client.stats()["arenas"]["replay"]["sessions"]}
    segments = daemon.segments()
    for _ in range(2):
        daemon.kill()
        all_get_on(children)
        daemon.start()
        all_get_on(children)
    assert {entry["pid"] for entry in client.stats()["arenas"]["replay"]["sessions"]} == before
    assert daemon.segments() == segments
    client.create_tables(
        [sr.Table("replay", COLUMNS, 200_000, sampler=sr.selectors.Prioritized(0.6), max_streams=32, max_sessions=32)]
    )
    for child in children:
        child.kill()
    handle = client.table("replay")
    eventually(lambda: [e["pid"] for e in client.stats()["arenas"]["replay"]["sessions"]] == [os.getpid()])
    assert handle._arena.check() == []


@pytest.mark.long
@pytest.mark.crash
def test_many_cycles_of_start_and_kill_with_work_in_between_leave_shared_memory_as_it_was(
    make_daemon: StartDaemon,
) -> None:
    daemon = make_daemon().start()
    with sr.connect(daemon.socket, timeout_s=WAIT_S) as client:
        client.create_tables([table(max_size=CYCLES)])
        handle = client.table("replay")
        there = daemon.left_behind()
        for n in range(CYCLES):
            daemon.kill()
            handle.insert({"x": np.full(3, n, np.float32), "n": n})
            daemon.start()
            assert client.tables()["replay"]["size"] == n + 1
            assert daemon.left_behind() == there
    assert daemon.stop() == 0
    assert daemon.left_behind() == []


@pytest.mark.crash
def test_without_a_daemon_what_needs_it_is_an_error_after_the_timeout_and_the_rest_goes_on(
    daemon: DaemonProcess,
) -> None:
    with daemon.connect() as client:
        client.connection.timeout_s = 0.3
        client.create_tables([table("a"), table("b")])
        handle = client.table("a")
        daemon.kill()
        began = time.monotonic()
        with pytest.raises(sr.DaemonUnavailable, match=r"within 0\.3 s"):
            client.table("b")
        assert time.monotonic() - began >= 0.3
        handle.insert({"x": np.ones(3, np.float32), "n": 1})
        assert len(handle) == 1

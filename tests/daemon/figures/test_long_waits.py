"""The daemon's log of calls that wait for long, and of tables that lose their last writer or learner."""

import contextlib
import os
import re
import signal
from collections.abc import Iterator

import numpy as np
import pytest

import shmreplay as sr
from tests.support.daemons import DaemonProcess, Run, StartDaemon, table, wait_for_end
from tests.support.waiting import eventually
from tests.support.worker import WORK, Worker

IMPATIENT = """
import sys
from shmreplay.daemon.figures import long_waits
from shmreplay.daemon.main import main
long_waits.LOOK_S, long_waits.LONG_S, long_waits.QUIET_S = 0.05, 0.2, {quiet_s}
sys.exit(main())
"""


@pytest.fixture
def impatient(make_daemon: StartDaemon) -> DaemonProcess:
    """A daemon that calls a wait long after a fifth of a second, and has said all about a side of a table then."""
    daemon = make_daemon()
    return daemon.start(source=IMPATIENT.format(quiet_s=3600))


@pytest.fixture
def replay(impatient: DaemonProcess) -> Iterator[sr.Client]:
    """A client of it, with the table `replay`, which two items let be sampled."""
    with impatient.connect() as client:
        client.create_tables([table(rate_limiter=sr.rate_limiters.SampleToInsertRatio(1, 2, 2))])
        yield client


def lines(daemon: DaemonProcess, text: str) -> list[str]:
    return [line for line in daemon.log().splitlines() if text in line]


def waits(client: sr.Client) -> list[float]:
    """For how long each call that waits has waited."""
    return [wait["since_s"] for wait in client.stats()["arenas"]["replay"]["waits"]]


def some_looks_later(client: sr.Client) -> None:
    before = max(waits(client))
    eventually(lambda: max(waits(client)) > before + 0.3)


def test_a_long_wait_is_logged_once_with_its_process_and_reason(
    impatient: DaemonProcess, replay: sr.Client, run_script: Run
) -> None:
    learner = Worker(run_script(WORK, impatient.socket))
    learner.begin("table.sample(1)")
    eventually(lambda: bool(lines(impatient, "call has waited")))
    some_looks_later(replay)
    [line] = lines(impatient, "call has waited")
    assert re.search(
        rf"WARNING table 'replay': 1 call has waited to sample, of process {learner.pid} "
        r"\('python[\w.]*'\) for \d+ s: the table has 0 items, and min_size_to_sample is 2; "
        r"waiting for an insert, there was none yet; 1 process is attached$",
        line,
    ), line


@pytest.mark.one_quick
def test_both_sides_are_told_of_and_a_side_no_more_than_once_in_a_while(
    impatient: DaemonProcess, replay: sr.Client, run_script: Run
) -> None:
    writers = [Worker(run_script(WORK, impatient.socket)) for _ in range(2)]
    writers[0].begin("while True: table.insert(step)")
    eventually(lambda: bool(lines(impatient, "to insert, of process")))
    writers[1].begin("while True: table.insert(step)")
    eventually(lambda: len(waits(replay)) == 2 and min(waits(replay)) > 0.5)  # long enough, and some looks later
    [line] = lines(impatient, "to insert, of process")
    assert f"process {writers[0].pid} " in line
    assert "above max_diff" in line
    learner = Worker(run_script(WORK, impatient.socket))
    learner.begin("table.sample(1000)")
    for writer in writers:
        os.kill(writer.pid, 9)
    eventually(lambda: bool(lines(impatient, "to sample, of process")))


def test_a_table_without_writers_is_logged_with_the_calls_blocked_there(
    impatient: DaemonProcess, replay: sr.Client, run_script: Run
) -> None:
    one, other, learner = (Worker(run_script(WORK, impatient.socket)) for _ in range(3))
    for writer in (one, other):
        writer.do("table.insert(step)")
    learner.do("table.sample(1)")
    learner.begin("table.sample(1000)")
    eventually(lambda: bool(waits(replay)))
    one.do("client.close()")
    eventually(lambda: len(replay.stats()["arenas"]["replay"]["sessions"]) == 2)
    assert lines(impatient, "it is gone") == []
    os.kill(other.pid, 9)
    eventually(lambda: bool(lines(impatient, "it is gone")))
    [line] = lines(impatient, "it is gone")
    assert re.search(
        r"WARNING table 'replay': every process that has inserted into it is gone, and 1 call has waited to "
        rf"sample, of process {learner.pid} \('python[\w.]*'\) for \d+ s$",
        line,
    ), line


def test_a_last_learner_that_leaves_is_told_of_without_alarm_where_nobody_waits(
    impatient: DaemonProcess, replay: sr.Client, run_script: Run
) -> None:
    worker = Worker(run_script(WORK, impatient.socket))
    worker.do("table.insert(step); table.insert(step); table.sample(1)")
    worker.do("client.close()")
    eventually(lambda: len(lines(impatient, "it is gone")) == 2)
    written, read = lines(impatient, "it is gone")
    assert written.endswith("INFO table 'replay': every process that has inserted into it is gone")
    assert read.endswith("INFO table 'replay': every process that has sampled from it is gone")


@pytest.mark.crash
def test_a_last_writer_whose_session_a_client_gave_back_is_told_of_too(
    impatient: DaemonProcess, replay: sr.Client, run_script: Run
) -> None:
    writer = Worker(run_script(WORK, impatient.socket))
    writer.do("table.insert(step)")
    mine = replay.table("replay")
    impatient.signal(signal.SIGSTOP)
    os.kill(writer.pid, signal.SIGKILL)
    wait_for_end(writer.pid)
    with contextlib.ExitStack() as stack:
        for _ in range(8):  # all the streams that there are: the last is that of the dead process
            stack.enter_context(mine.writer(history=2)).append({"x": np.zeros(3, np.float32), "n": 1})
        assert [entry["pid"] for entry in mine._arena.sessions()] == [os.getpid()]
        impatient.signal(signal.SIGCONT)
        eventually(lambda: bool(lines(impatient, "every process that has inserted into it is gone")))
    assert lines(impatient, f"process {writer.pid} ")

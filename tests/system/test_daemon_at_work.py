"""Actors and learners that work while their daemon is killed, restarted, or stopped for good."""

import concurrent.futures
import os
import signal
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from tests.support.daemons import DaemonProcess, Run, table, wait_for_end
from tests.support.waiting import eventually

STEP = {"x": np.ones(3, np.float32), "n": 7}


def test_work_goes_on_without_the_daemon_and_with_the_next_one(daemon: DaemonProcess, client: sr.Client) -> None:
    client.create_tables([table()])
    handle = client.table("replay")
    keys = [handle.insert(STEP)]
    daemon.kill()
    keys.append(handle.insert(STEP))
    assert sorted(set(handle.sample(64).keys.tolist())) == sorted(keys)
    daemon.start()
    keys.append(handle.insert(STEP))
    with daemon.connect() as other:
        other.create_tables([table()])
        assert other.tables()["replay"]["size"] == 3
        assert other.table("replay").keys().tolist() == keys
        assert other.stats()["arenas"]["replay"]["sessions"][0]["pid"] == os.getpid()


@pytest.mark.parametrize("ending", ["stop", "drop"])
def test_the_end_of_a_table_wakes_the_calls_that_wait_in_it(
    daemon: DaemonProcess, client: sr.Client, ending: str
) -> None:
    client.create_tables([table("empty"), sr.Table.queue("full", {"n": np.int64(0)}, 1, max_streams=8)])
    empty, full = client.table("empty"), client.table("full")
    full.insert({"n": 1})
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        calls: list[concurrent.futures.Future[Any]] = [pool.submit(empty.sample, 1)]
        calls.append(pool.submit(full.insert, {"n": 2}))
        eventually(lambda: empty.info().blocked_samples == 1 and full.info().blocked_inserts == 1)
        if ending == "stop":
            assert daemon.stop() == 0
        else:
            client.drop_table("empty")
            client.drop_table("full")
        for call in calls:
            assert isinstance(call.exception(30), sr.TableClosed)


def test_a_reset_and_other_limits_reach_blocked_calls(client: sr.Client) -> None:
    client.create_tables([table(rate_limiter=sr.rate_limiters.MinSize(5))])
    handle = client.table("replay")
    handle.insert(STEP)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        call = pool.submit(handle.sample, 1)
        eventually(lambda: handle.info().blocked_samples == 1)
        client.set_rate_limiter("replay", sr.rate_limiters.MinSize(1))
        assert call.result(100).data["n"].tolist() == [7]
    client.pause("replay", inserts=False)
    with pytest.raises(sr.RateLimitTimeout, match="samples are paused"):
        handle.sample(1, timeout_s=0)
    client.resume("replay")
    assert len(handle.sample(1).keys) == 1
    client.reset("replay")
    assert len(handle) == 0


INSERT_FOR_EVER = """
import os, sys
import numpy as np
import shmreplay as sr
client = sr.connect(sys.argv[1])
table = client.table("replay")
step = {"x": np.ones(3, np.float32), "n": os.getpid()}
print(table.insert(step), flush=True)
while True:
    table.insert(step)
"""


@pytest.mark.long
@pytest.mark.crash
def test_actors_killed_at_any_moment_cost_nobody_anything(
    daemon: DaemonProcess, client: sr.Client, run_script: Run
) -> None:
    client.create_tables([table()])
    handle = client.table("replay")
    for _ in range(4):
        actors = [run_script(INSERT_FOR_EVER, daemon.socket) for _ in range(2)]
        for actor in actors:
            actor.line()
        batch = handle.sample(256)
        assert np.all(batch.data["x"] == 1)
        for actor in actors:
            os.kill(actor.pid, signal.SIGKILL)
            wait_for_end(actor.pid)
        handle.insert(STEP)
        eventually(lambda: len(client.stats()["arenas"]["replay"]["sessions"]) == 1)
    assert client._attach("replay").arena.check() == []
    assert len(handle) == 1000

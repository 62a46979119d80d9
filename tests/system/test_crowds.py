"""Many processes at once. `python -m bench.processes` has the figures; SHMREPLAY_CLIENTS=1000 attaches as many."""

import os
import pathlib
from typing import Any

import pytest

import shmreplay as sr
from tests.support.children import Fork, fork
from tests.support.rounds import rounds
from tests.support.tables import COLUMNS, check, numbers, step
from tests.support.waiting import WAIT_S, eventually

__all__ = ["fork"]
CLIENTS = int(os.environ.get("SHMREPLAY_CLIENTS", rounds(60, 150)))
BLOCKED = 40
SECONDS = 2.0


@pytest.fixture
def server() -> Any:
    with sr.Server() as server:
        yield server


@pytest.mark.slow
@pytest.mark.timeout(400 + CLIENTS)
def test_hundreds_of_forked_clients_are_attached_at_once_and_each_is_heard(server: sr.Server) -> None:
    options: dict[str, Any] = {"max_sessions": CLIENTS + 8, "max_streams": CLIENTS + 8}
    with server.client() as client:
        client.create_tables([sr.Table("replay", COLUMNS, CLIENTS, **options)])
        table = client.table("replay")
        table._arena.check()
        stay, leave = os.pipe()
        pids = [fork_one(client, n, stay, leave) for n in range(CLIENTS)]
        try:
            eventually(lambda: len(table) == CLIENTS)
            attached = {entry["pid"] for entry in client.stats()["arenas"]["replay"]["sessions"]}
            assert attached == {os.getpid(), *pids}
            assert sorted(numbers(table.get(table.keys())).tolist()) == list(range(CLIENTS))
        finally:
            os.close(leave)
            ends = {os.waitpid(pid, 0)[1] for pid in pids}
            os.close(stay)
        assert ends == {0}
        eventually(lambda: [e["pid"] for e in client.stats()["arenas"]["replay"]["sessions"]] == [os.getpid()])
        assert check(table) == []


def fork_one(client: sr.Client, number: int, stay: int, leave: int) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(leave)
            client.table("replay").insert(step(number), timeout_s=WAIT_S)
            os.read(stay, 1)
            code = 0
        finally:
            os._exit(code)
    return pid


def on_cpu_s(pid: int) -> float:
    """Seconds that a process has been on a processor, to the nanosecond."""
    return int(pathlib.Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9


@pytest.mark.skipif(not pathlib.Path("/proc/self/schedstat").exists(), reason="this kernel keeps no schedstat")
@pytest.mark.long
def test_blocked_clients_sleep(server: sr.Server, fork: Fork) -> None:
    with server.client() as client:
        client.create_tables([sr.Table("replay", COLUMNS, 10, max_sessions=BLOCKED + 8, max_streams=8)])
        table = client.table("replay")
        children = [fork(lambda pipe: numbers(client.table("replay").sample(1)).tolist()) for _ in range(BLOCKED)]
        eventually(lambda: table.info().blocked_samples == BLOCKED)
        pids = [child.pid for child in children]
        before = [on_cpu_s(pid) for pid in pids]
        with pytest.raises(sr.RateLimitTimeout):
            table.sample(1, timeout_s=SECONDS)
        burnt = sum(on_cpu_s(pid) for pid in pids) - sum(before)
        # Seconds of work, not of time: a client that spins for its slice alone would burn more than all of them may.
        assert burnt < 0.25 * SECONDS
        table.insert(step(3))
        assert [child.result() for child in children] == [[3]] * BLOCKED

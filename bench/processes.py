"""python -m bench.processes: what deaths and crowds cost. docs/reliability.md has the answers.

Four questions, each with its own daemon: whether actors and learners notice that the daemon dies; how long a process
that waits for the lock waits when its holder is killed; how much processor time blocked clients use; how many clients
can be attached.
"""

import argparse
import contextlib
import dataclasses
import json
import logging
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

import shmreplay as sr
from bench import machine
from bench.signature import signature
from bench.steps import SMALL
from bench.workloads.blocked import FIRST_REPORT_S, OF_A_CORE, blocked

STEP = {"observation": np.zeros(16, np.float32), "action": np.int64(0), "reward": np.float32(0)}


@dataclasses.dataclass(frozen=True)
class Size:
    """The sizes of the questions."""

    actors: int = 8
    learners: int = 2
    window_s: float = 5.0
    items: int = 10_000_000
    deaths: int = 20
    blocked: int = 200
    blocked_s: float = 10.0
    clients: int = 1000


QUICK = Size(window_s=1.0, items=100_000, deaths=5, blocked=50, blocked_s=3.0, clients=100)


@contextlib.contextmanager
def forked(works: Sequence[Callable[[], NoReturn]]) -> Iterator[list[int]]:
    """Forks a process for each work, yields their pids, and kills them at the end."""
    pids = []
    try:
        for work in works:
            pid = os.fork()
            if pid == 0:
                try:
                    work()
                finally:
                    os._exit(1)
            pids.append(pid)
        yield pids
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            os.waitpid(pid, 0)


@contextlib.contextmanager
def standalone() -> Iterator[tuple[str, Callable[[], None], Callable[[], None]]]:
    """Starts a shmreplayd. Yields its socket, and two functions that kill it and start it again."""
    with tempfile.TemporaryDirectory() as folder:
        socket = str(pathlib.Path(folder) / "bench.sock")
        command = [sys.executable, "-m", "shmreplay.daemon", "--socket", socket, "--instance", f"bench-{os.getpid()}"]
        running: list[subprocess.Popen[bytes]] = []

        def start() -> None:
            running.append(subprocess.Popen(command, cwd="/", stderr=subprocess.DEVNULL))
            sr.connect(socket, timeout_s=60).close()

        def kill() -> None:
            daemon = running.pop()
            daemon.kill()
            daemon.wait()

        start()
        try:
            yield socket, kill, start
        finally:
            running[-1].terminate()
            running[-1].wait()


def act(client: sr.Client) -> NoReturn:
    table = client.table("replay")
    while True:
        table.insert(STEP)


def learn(client: sr.Client) -> NoReturn:
    table = client.table("replay")
    while True:
        batch = table.sample(256)
        table.update_priorities(batch.keys, batch.priorities)


def rates_around_a_death(size: Size) -> dict[str, Any]:
    """Inserts and samples per second of actors and learners, with the daemon, without it, and with the next daemon."""
    spec = sr.Table("replay", STEP, 100_000, sampler=sr.selectors.Prioritized(0.6), max_streams=64, max_sessions=64)
    with standalone() as (socket, kill, start), sr.connect(socket, timeout_s=60) as client:
        client.create_tables([spec])
        table = client.table("replay")
        works = [lambda: act(client)] * size.actors + [lambda: learn(client)] * size.learners
        with forked(works):
            table.sample(1)
            time.sleep(size.window_s)  # all are attached and warm
            answer = {"with the daemon": rates(table, size.window_s)}
            kill()
            answer["the daemon is dead"] = rates(table, size.window_s)
            start()
            answer["with the next daemon"] = rates(table, size.window_s)
        return answer


def rates(table: Any, seconds: float) -> dict[str, int]:
    before, since = table.info(), time.monotonic()
    time.sleep(seconds)
    after, took = table.info(), time.monotonic() - since
    return {
        "inserts a second": round((after.inserts - before.inserts) / took),
        "samples a second": round((after.samples - before.samples) / took),
    }


def waits_for_a_dead_holder(size: Size) -> dict[str, Any]:
    """Milliseconds from the SIGKILL of a process inside the lock to the return of an insert that waits for it."""
    spec = sr.Table("replay", {"n": np.int64(0)}, size.items, sampler=sr.selectors.Prioritized(0.6), max_sessions=64)
    with sr.Server([spec], timeout_s=120) as server, server.client() as client:
        table = client.table("replay")
        for first in range(0, size.items, 100_000):
            table.insert_batch({"n": np.arange(first, min(first + 100_000, size.items))})
        waits: list[float] = []
        while len(waits) < size.deaths:
            with forked([lambda: hold(client)]) as [pid]:
                while (table._arena.lock_holder() or {}).get("pid") != pid:
                    time.sleep(0.001)
                os.kill(pid, signal.SIGSTOP)
                os.waitid(os.P_PID, pid, os.WSTOPPED)
                if (table._arena.lock_holder() or {}).get("pid") != pid:
                    continue
                killed = time.monotonic()
                os.kill(pid, signal.SIGKILL)
                table.insert({"n": 1})
                waits.append((time.monotonic() - killed) * 1e3)
        assert table._arena.stats()["recoveries"] >= size.deaths
    return {
        "items": size.items,
        "deaths": size.deaths,
        "median ms": round(statistics.median(waits), 2),
        "worst ms": round(max(waits), 2),
    }


def hold(client: sr.Client) -> NoReturn:
    arena = client._attach("replay").arena
    while True:
        arena.check()


def burnt_by_the_blocked(size: Size) -> dict[str, Any]:
    """Processor time of clients that wait for an item that nobody inserts, and of their daemon."""
    spec = sr.Table("replay", signature(SMALL), 100, max_sessions=size.blocked + 8, max_streams=8)
    with sr.Server([spec]) as server, server.client() as client:
        said = blocked(client, "replay", size.blocked, server.pid, FIRST_REPORT_S + 1)(size.blocked_s)
    return {"clients": size.blocked, "seconds": size.blocked_s, "percent of one core": round(said[OF_A_CORE.name], 3)}


def crowd(size: Size) -> dict[str, Any]:
    """How long many forked clients take to attach and to insert one item each."""
    spec = sr.Table("replay", STEP, size.clients, max_sessions=size.clients + 8, max_streams=size.clients + 8)
    with sr.Server([spec]) as server, server.client() as client:
        table = client.table("replay")
        began = time.monotonic()
        with forked([lambda: insert_and_stay(client)] * size.clients):
            while len(table) < size.clients:
                time.sleep(0.01)
            took = time.monotonic() - began
            attached = len(client.stats()["arenas"]["replay"]["sessions"])
    return {"clients": size.clients, "attached": attached - 1, "seconds": round(took, 2)}


def insert_and_stay(client: sr.Client) -> NoReturn:
    client.table("replay").insert(STEP)
    while True:
        signal.pause()


QUESTIONS: dict[str, Callable[[Size], dict[str, Any]]] = {
    "rates around the daemon's death": rates_around_a_death,
    "waits for a dead holder of the lock": waits_for_a_dead_holder,
    "processor time of blocked clients": burnt_by_the_blocked,
    "clients attached at once": crowd,
}


def main() -> int:
    logging.getLogger("shmreplay").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", "table .*: update_priorities hit none", UserWarning)
    p = argparse.ArgumentParser(prog="python -m bench.processes", description="what deaths and crowds cost")
    p.add_argument("--quick", action="store_true", help="small sizes")
    p.add_argument("--items", type=int, help="in the table whose holder is killed")
    p.add_argument("--json", type=pathlib.Path, metavar="FILE")
    p.add_argument("--only", metavar="PART", default="")
    options = p.parse_args()
    size = QUICK if options.quick else Size()
    if options.items is not None:
        size = dataclasses.replace(size, items=options.items)
    report: dict[str, Any] = {
        "machine": machine.facts(),
        "load before": machine.load(),
        "size": dataclasses.asdict(size),
    }
    for name, question in QUESTIONS.items():
        if options.only in name:
            report[name] = question(size)
            print(f"{name}: {report[name]}", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

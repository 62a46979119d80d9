"""How much processor time do clients use while they wait for an item that nobody inserts?"""

import contextlib
import time
from collections.abc import Iterator, Sequence

import numpy as np

import shmreplay as sr
from bench.contender import Absent, Contender, Trial
from bench.crowd import Tally, crowd, on_cpu_s
from bench.metric import Metric
from bench.scenes import Run
from bench.signature import signature
from bench.size import Size
from bench.steps import SMALL
from bench.workload import Workload

CLIENTS = 200
FIRST_REPORT_S = 10  # by then, each has logged once that it waits

OF_A_CORE = Metric("percent of one core", "", "less")


@contextlib.contextmanager
def trials(size: Size) -> Iterator[Sequence[Contender | Trial | Absent]]:
    num = min(CLIENTS, size.processes)
    table = sr.Table("bench", signature(SMALL), 1000, max_sessions=num + 8, max_streams=8)
    settle_s = FIRST_REPORT_S + 1 if size.name == "full" else 0.5
    with sr.Server([table]) as server, server.client() as client:
        yield [
            Trial(
                f"{num} clients in sample, and the daemon", "ours", blocked(client, "bench", num, server.pid, settle_s)
            )
        ]


def blocked(client: sr.Client, name: str, num: int, daemon: int, settle_s: float) -> Run:
    """Clients of the table of this name, blocked for `settle_s` before they are watched."""
    table = client.table(name)
    step = SMALL.separate(1, np.random.default_rng(16))[0]

    def wait(tally: Tally) -> None:
        own = client.table(name)
        tally.add(1)
        own.sample(1)

    def run(seconds: float) -> dict[str, float]:
        table.reset()
        with crowd([wait] * num) as them:
            while table.info().blocked_samples < num:
                time.sleep(0.05)
            time.sleep(settle_s)
            before, since = them.cpu_s().sum() + on_cpu_s(daemon), time.monotonic()
            time.sleep(seconds)
            burnt, took = them.cpu_s().sum() + on_cpu_s(daemon) - before, time.monotonic() - since
            table.insert(step)  # all of them have it, and end
        return {OF_A_CORE.name: float(100 * burnt / took)}

    return run


WORKLOADS = (
    Workload(
        "blocked",
        f"How much of a core do {CLIENTS} clients that wait in sample, and the daemon, take together?",
        trials,
        "W11",
        (OF_A_CORE,),
        window_s=10.0,
    ),
)

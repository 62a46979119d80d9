"""How long does it take until a process that waits for an item has it?"""

import contextlib
from collections.abc import Iterator, Sequence

import shmreplay as sr
from bench import scenes
from bench.contender import Absent, Contender, Trial
from bench.ends import ends_of
from bench.limits.futex_wake import futex_wake
from bench.metric import MEDIAN, P99
from bench.peers.process import peers
from bench.peers.task import Task
from bench.signature import signature
from bench.size import Size
from bench.steps import SMALL
from bench.workload import Workload

ITEMS = 1000


@contextlib.contextmanager
def trials(size: Size) -> Iterator[Sequence[Contender | Trial | Absent]]:
    with (
        sr.Server([sr.Table.queue("bench", signature(SMALL), ITEMS)]) as server,
        server.client() as client,
        peers(Task("woken", ITEMS), trial=True) as others,
    ):
        yield [
            Trial("insert to sample(1) of a queue", "ours", scenes.woken(ends_of(client.table("bench")), SMALL)),
            futex_wake(same_core=False),
            futex_wake(same_core=True),
            *others,
        ]


WORKLOADS = (
    Workload(
        "woken",
        f"How long does it take from before the insert of a step of {SMALL.name} until another process, which waits in "
        "sample, has it?",
        trials,
        "W6",
        (MEDIAN, P99),
        window_s=5.0,
    ),
)

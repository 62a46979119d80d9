"""What do rows in two parts, items by a selection and ends of no episode cost, beside the plain calls?"""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import shmreplay as sr
from bench.contender import Absent, Contender, repeated
from bench.limits.empty_call import empty_call
from bench.signature import signature
from bench.size import Size
from bench.steps import SMALL
from bench.workload import Workload

ITEMS = 100_000
NUM_STREAMS = 64
LENGTH = 4
FIRST = ("observation", "action")  # what is known before an environment steps
Rows = Sequence[Contender | Absent]


@contextlib.contextmanager
def written(size: Size, num_streams: int, item: Any = None) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yields a writer whose streams hold steps, and their next steps. `num_streams` 0: of one stream."""
    streams = max(4, num_streams)
    table = sr.Table("bench", signature(SMALL), min(ITEMS, size.items), max_streams=streams, item=item)
    steps: dict[str, Any] = dict(SMALL.stacked(max(1, num_streams), np.random.default_rng(9)))
    steps["terminated"][:] = False  # ends are calls of their own
    if num_streams == 0:
        steps = {name: value[0] for name, value in steps.items()}
    with sr.Server([table]) as server, server.client() as client:
        replay = client.table("bench")
        history = 2 * LENGTH
        with replay.vector_writer(num_streams, history) if num_streams else replay.writer(history) as writer:
            for _ in range(history):
                writer.append(steps)
            yield writer, steps


@contextlib.contextmanager
def open_rows(size: Size, num_streams: int) -> Iterator[Rows]:
    with written(size, num_streams, sr.NStep(3)) as (writer, steps):
        first = {name: value for name, value in steps.items() if name in FIRST}
        rest = {name: value for name, value in steps.items() if name not in FIRST}

        def in_two_parts() -> None:
            writer.append(first, partial=True)
            writer.append(rest)

        yield [
            Contender("append in two parts", "ours", repeated(in_two_parts)),
            Contender("append of whole steps", "ours", repeated(writer.append, steps)),
        ]


@contextlib.contextmanager
def selections(size: Size, num_streams: int) -> Iterator[Rows]:
    with written(size, num_streams) as (writer, steps), written(size, num_streams) as (plain, _):
        create = writer.create_items if num_streams else writer.create_item
        create_plain = plain.create_items if num_streams else plain.create_item

        def selected() -> dict[str, Any]:
            history = writer.history
            return {name: history[name][-LENGTH:] for name in steps}

        kept = selected()
        yield [
            Contender("item of a selection that is kept", "ours", repeated(create, trajectory=kept)),
            Contender("item of the newest steps", "ours", repeated(create_plain, length=LENGTH)),
            Contender("item of a new selection", "ours", repeated(lambda: create(trajectory=selected()))),
        ]


@contextlib.contextmanager
def no_ends(size: Size) -> Iterator[Rows]:
    with written(size, NUM_STREAMS, sr.NStep(3)) as (writer, steps):
        mask, final = np.zeros(NUM_STREAMS, bool), {"observation": steps["observation"]}
        yield [
            Contender("end_episodes(mask without a True, final)", "ours", repeated(writer.end_episodes, mask, final)),
            empty_call(),
        ]


WORKLOADS = (
    *(
        Workload(
            f"{name}_{num_streams or 1}",
            f"How long {question}, for {num_streams or 1} streams at once, of steps of {SMALL.name}?",
            functools.partial(work, num_streams=num_streams),
            "W18",
            items_per_call=max(1, num_streams),
            in_quick=False,
        )
        for name, question, work in (
            ("open_rows", "does an append take whose row is given in two parts, beside one of whole steps", open_rows),
            (
                "selections",
                f"does an item of {LENGTH} steps take by a selection, beside one of the newest steps",
                selections,
            ),
        )
        for num_streams in (0, NUM_STREAMS)
    ),
    Workload(
        "no_ends",
        f"How long does end_episodes of {NUM_STREAMS} streams take when no episode ends, as after most steps?",
        no_ends,
        "W18",
        in_quick=False,
    ),
)

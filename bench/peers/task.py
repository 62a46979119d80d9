"""Task: a piece of work for a peer, and the answers of its adapter. Needs only the standard library."""

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bench import scenes
from bench.steps import LAYOUTS, TRANSITIONS, Layout


@dataclasses.dataclass(frozen=True)
class Task:
    """The work of a peer.

    Attributes:
        work: a key of the adapter's WORKS.
        items: number of items in the buffer, which is full.
        layout: layout of its steps, a key of LAYOUTS or of TRANSITIONS.
        batch: items per call.
        exponent: priority exponent; 0: the buffer has no priorities.
        writers: number of processes that insert items.
        kind: kind of frames, a key of KINDS.
        inserts_per_s: rate of all writers together; 0: as fast as they can.
    """

    work: str
    items: int
    layout: str = "400B"
    batch: int = 1
    exponent: float = 0.0
    writers: int = 0
    kind: str = ""
    inserts_per_s: int = 0

    @property
    def steps(self) -> Layout:
        return (LAYOUTS | TRANSITIONS)[self.layout]

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Task":
        return cls(**json.loads(text))


@dataclasses.dataclass(frozen=True)
class Ready:
    """A peer that has prepared a task.

    Attributes:
        name: what it does, and by which of its calls.
        run: as in `Contender` or `Trial`.
        slice_s, least_calls: as in `Contender`.
    """

    name: str
    run: Callable[[Any], int | dict[str, float]]
    slice_s: float | None = None
    least_calls: int = 1


Opener = Callable[[Task], contextlib.AbstractContextManager[Ready]]
Works = Mapping[str, Opener]


class LeftOut(Exception):
    """A peer cannot do a task; the text says why."""


def timed(call: Callable[[Any], object], arguments: list[Any]) -> Callable[[int], int]:
    """Makes a `run` that calls with one argument after the other, going round."""
    at = 0

    def run(n: int) -> int:
        nonlocal at
        some = [arguments[(at + i) % len(arguments)] for i in range(n)]
        at = (at + n) % len(arguments)
        start = time.monotonic_ns()
        for argument in some:
            call(argument)
        return time.monotonic_ns() - start

    return run


OpenEnds = Callable[[Task], contextlib.AbstractContextManager[tuple[str, scenes.Ends]]]


def scenes_of(open_ends: OpenEnds, *works: str) -> Works:
    """The works that are scenes with these names. `open_ends` makes a buffer, and yields its name and its ends."""
    return {work: _scene(open_ends, work) for work in works}


def _scene(open_ends: OpenEnds, work: str) -> Opener:
    @contextlib.contextmanager
    def opener(task: Task) -> Iterator[Ready]:
        with open_ends(task) as (name, ends):
            yield Ready(f"{name}, {task.writers} writers" if work == "attached" else name, scene(ends, task))

    def scene(ends: scenes.Ends, task: Task) -> scenes.Run:
        match work:
            case "writers":
                return scenes.writers(ends, task.steps, task.writers)
            case "mixed":
                return scenes.mixed(ends, task.steps, task.writers)
            case "beside":
                return scenes.beside(ends, task.steps, task.writers)
            case "attached":
                return scenes.attached(ends, task.steps, task.writers, task.inserts_per_s)
            case "woken":
                return scenes.woken(ends, task.steps)
        raise ValueError(f"no scene is called {work!r}")

    return opener

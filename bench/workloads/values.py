"""What do values cost that are not exactly what their column has: of other dtypes, byte orders, strides, or tensors?"""

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import shmreplay as sr
from bench.contender import Absent, Contender, repeated
from bench.size import Size
from bench.steps import SMALL
from bench.workload import Workload

ITEMS = 100_000
NUM_STREAMS = 64
PLAIN = "float32"
Steps = dict[str, Any]


@contextlib.contextmanager
def contenders(size: Size, num_streams: int) -> Iterator[Sequence[Contender | Absent]]:
    """Appends to one stream if `num_streams` is 0, else to so many by one call."""
    spec = {name: sr.ArraySpec(shape, dtype, cast="same_kind") for name, (shape, dtype) in SMALL.columns.items()}
    table = sr.Table("bench", spec, min(ITEMS, size.items), max_streams=max(4, num_streams))
    steps = SMALL.stacked(max(1, num_streams), np.random.default_rng(9))
    steps["terminated"][:] = False  # ends are calls of their own
    if num_streams == 0:
        steps = {name: value[0] for name, value in steps.items()}
    with sr.Server([table]) as server, server.client() as client:
        replay = client.table("bench")
        with replay.vector_writer(num_streams) if num_streams else replay.writer() as writer:
            rows: list[Contender | Absent] = []
            for name, made in kinds(steps, num_streams == 0):
                if isinstance(made, str):
                    rows.append(Absent(f"{name} {made}"))
                else:
                    rows.append(Contender(f"append of {name}", "ours", repeated(writer.append, made)))
            for name, made in refused(steps):
                rows.append(Contender(f"refusal of {name}", "ours", repeated(refusal(writer.append), made)))
            yield rows


def kinds(steps: Steps, is_one: bool) -> Iterator[tuple[str, Steps | str]]:
    """The steps in other forms; a text says why there are none of that form."""
    seen = steps["observation"]
    yield PLAIN, steps
    yield "a float64 reward", {**steps, "reward": steps["reward"].astype("float64")}
    yield "a float64 observation", {**steps, "observation": seen.astype("float64")}
    yield "a float16 observation", {**steps, "observation": seen.astype("float16")}
    yield "an int64 observation", {**steps, "observation": seen.astype("int64")}
    yield "a strided observation", {**steps, "observation": np.repeat(seen, 2, axis=-1)[..., ::2]}
    yield "a big-endian observation", {**steps, "observation": seen.astype(">f4")}
    if is_one:
        yield "a Python float as reward", {**steps, "reward": float(steps["reward"])}
        yield "a 0-d float64 array as reward", {**steps, "reward": np.array(float(steps["reward"]))}
    else:
        yield "a Fortran-ordered observation", {**steps, "observation": np.asfortranarray(seen)}
    torch = sys.modules.get("torch") or imported("torch")
    if torch is None:
        yield "torch tensors", "need torch"
    else:
        yield "torch tensors", {name: torch.from_numpy(np.asarray(value)) for name, value in steps.items()}


def refused(steps: Steps) -> Iterator[tuple[str, Steps]]:
    """Forms that no column takes: how long the explanation takes."""
    yield "a list of Python floats", {**steps, "observation": steps["observation"].tolist()}
    yield "float32 for a bool", {**steps, "terminated": steps["terminated"].astype("float32")}
    yield "1e40 for float32", {**steps, "reward": np.asarray(steps["reward"], "float64") * 0 + 1e40}


def imported(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError:
        return None


def refusal(append: Callable[[Steps], object]) -> Callable[[Steps], None]:
    def refuse(steps: Steps) -> None:
        with contextlib.suppress(sr.SignatureMismatch):
            append(steps)
            raise AssertionError("a value was taken that no column takes")

    return refuse


WORKLOADS = tuple(
    Workload(
        name,
        f"How long does an append {to} take whose values are not exactly their columns', with cast='same_kind', "
        f"beside one of {PLAIN} as the columns have it?",
        functools.partial(contenders, num_streams=num_streams),
        "W17",
        items_per_call=max(1, num_streams),
        in_quick=False,
    )
    for name, to, num_streams in (
        ("values_append", f"of a step of {SMALL.name}", 0),
        ("values_vector_append", f"of {NUM_STREAMS} streams' rows of {SMALL.name}", NUM_STREAMS),
    )
)

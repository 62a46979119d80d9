"""Every call of every handle, as its first one, in every state in which it cannot work: the error names the state."""

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.params import Params
from shmreplay.clients.params import table as params_table
from shmreplay.errors import LockTimeout
from tests.support.children import Fork
from tests.support.waiting import WAIT_S

pytestmark = pytest.mark.usefixtures("nothing_left_by_this_test")

STREAMS = 3
SIGNATURE = {"x": sr.ArraySpec((2,), "float32"), "state": sr.ArraySpec((), "float32", mutable=True)}
TABLES = [
    sr.Table("single", SIGNATURE, 50, max_streams=STREAMS, max_sessions=8),
    sr.Table("spans", SIGNATURE, 50, item_steps=2, max_streams=STREAMS, max_sessions=8),
    sr.Table("shards", SIGNATURE, 50, shards=2, max_streams=2 * STREAMS, max_sessions=8),
    params_table("params", {"w": np.zeros(2)}, max_sessions=8),
]
STEP = {"x": np.zeros(2, np.float32), "state": np.float32(0)}
STEPS = {"x": np.zeros((2, 2), np.float32), "state": np.zeros(2, np.float32)}
KEYS = np.array([3], np.int64)

Call = Callable[[], object]


class Scene(NamedTuple):
    server: sr.Server
    client: sr.Client


def table_calls(table: Any, lock_s: float | None) -> dict[str, Call]:
    """Those that go to the arena, of a table or a sharded one."""

    def view() -> None:
        with table.view(1, timeout_s=lock_s):
            pass

    found: dict[str, Call] = {
        "insert": lambda: table.insert(STEP, timeout_s=lock_s),
        "insert_batch": lambda: table.insert_batch(STEPS, timeout_s=lock_s),
        "sample": lambda: table.sample(1, timeout_s=lock_s),
        "look": lambda: table.sample(1, count=False, timeout_s=lock_s),
        "get": lambda: table.get(KEYS, timeout_s=lock_s),
        "update_priorities": lambda: table.update_priorities(KEYS, [1.0], timeout_s=lock_s),
        "update_data": lambda: table.update_data(KEYS, {"state": np.ones((1, 1), np.float32)}, timeout_s=lock_s),
        "delete": lambda: table.delete(KEYS, timeout_s=lock_s),
        "reset": lambda: table.reset(timeout_s=lock_s),
        "pause": lambda: table.pause(timeout_s=lock_s),
        "resume": lambda: table.resume(timeout_s=lock_s),
        "sampler": lambda: next(table.sampler(1, prefetch=0, timeout_s=lock_s)),
        "sampler ahead": lambda: next(table.sampler(1, prefetch=1, timeout_s=lock_s)),
    }
    if isinstance(table, sr.TableHandle):
        found |= {"view": view, "extend": lambda: table.extend(STEPS, timeout_s=lock_s)}
    return found


def writer_calls(table: Any, lock_s: float | None) -> dict[str, Call]:
    """Each of a writer of its own, that has not done anything yet."""
    pattern = [sr.Sequence(1)] if table.spec.item_steps == 1 else None
    one = [table.writer(patterns=pattern) for _ in range(2)]
    many = [table.vector_writer(2, patterns=pattern) for _ in range(3)]
    for writer in (*one, *many):
        KEPT.append(writer)
    return {
        "writer.append": lambda: one[0].append(STEP, timeout_s=lock_s),
        "writer.append partial": lambda: one[1].append({"x": STEP["x"]}, partial=True, timeout_s=lock_s),
        "vector.append": lambda: many[0].append(STEPS, timeout_s=lock_s),
        "vector.append masked": lambda: many[1].append(STEPS, mask=[False, True], timeout_s=lock_s),
        "vector.append partial": lambda: many[2].append({"x": STEPS["x"]}, partial=True, timeout_s=lock_s),
    }


KEPT: list[Any] = []  # writers that are closed after their states


def all_calls(client: sr.Client, lock_s: float | None = WAIT_S) -> dict[str, Call]:
    single, spans, shards = (client.table(name) for name in ("single", "spans", "shards"))
    mix = sr.mix([(single, 1), (client.table("single"), 1)])
    params = Params(client.table("params"))
    found: dict[str, Call] = {
        "mix.sample": lambda: mix.sample(timeout_s=lock_s),
        "mix.update_priorities": lambda: mix.update_priorities(np.repeat(KEYS, 2), [1.0, 1.0], np.array([0, 1])),
        "params.publish": lambda: params.publish({"w": np.zeros(2)}, timeout_s=lock_s),
        "params.latest": lambda: params.latest(timeout_s=lock_s),
    }
    for table in (single, shards):
        found |= {f"{table.name}.{name}": call for name, call in table_calls(table, lock_s).items()}
    for table in (single, spans, shards):
        found |= {f"{table.name}.{name}": call for name, call in writer_calls(table, lock_s).items()}
    return found


@pytest.fixture
def scene() -> Iterator[Scene]:
    with sr.Server(TABLES) as server, server.client() as client:
        client.table("single").insert_batch(STEPS)
        client.table("shards").insert_batch(STEPS)
        yield Scene(server, client)
        for writer in KEPT:
            with contextlib.suppress(sr.ShmReplayError):
                writer.close()
        KEPT.clear()


def outcomes(calls: dict[str, Call]) -> dict[str, str]:
    """For each call, the error and its text."""
    found = {}
    for name, call in calls.items():
        try:
            found[name] = f"returned {call()!r}"
        except Exception as error:  # noqa: BLE001  # the test says which it may be
            found[name] = f"{type(error).__name__}: {error}"
    return found


def check_all(found: dict[str, str], error: type[Exception], text: str) -> None:
    wrong = {name: said for name, said in found.items() if not said.startswith(error.__name__) or text not in said}
    assert wrong == {}


def test_a_table_was_dropped(scene: Scene) -> None:
    calls = all_calls(scene.client)
    with scene.server.client() as other:
        other.drop_tables([table.name for table in TABLES])
    check_all(outcomes(calls), sr.TableClosed, "the table was dropped")


def test_the_server_was_closed(scene: Scene) -> None:
    calls = all_calls(scene.client)
    scene.server.close()
    check_all(outcomes(calls), sr.TableClosed, "its server was closed")


def test_the_client_was_closed(scene: Scene) -> None:
    calls = all_calls(scene.client)
    scene.client.close()
    check_all(outcomes(calls), sr.ShmReplayError, "client is closed")


def test_the_index_is_damaged(scene: Scene) -> None:
    calls = all_calls(scene.client)
    for path in pathlib.Path("/dev/shm").glob(f"shmreplay.{scene.server._daemon._instance}.*index"):
        with open(path, "r+b") as index:
            size = os.fstat(index.fileno()).st_size
            index.seek(size // 2)
            index.write(b"\xa5" * (size - size // 2))
    for spec in TABLES:
        with contextlib.suppress(sr.ShmReplayError):
            scene.client.table(spec.name).sample(1, timeout_s=0)
    check_all(outcomes(calls), sr.SegmentFailed, "damaged")


def test_all_streams_are_taken(scene: Scene) -> None:
    """Only what opens a stream fails."""
    calls = {name: call for name, call in all_calls(scene.client).items() if "append" in name}
    taken = [scene.client.table(spec.name).writer() for spec in TABLES[:3] for _ in range(2 * STREAMS)]
    for writer in taken:
        with contextlib.suppress(sr.ShmReplayError):
            writer.append(STEP)
    check_all(outcomes(calls), sr.ShmReplayError, "all streams of the arena are open")
    for writer in taken:
        writer.close()


@pytest.mark.long
def test_the_lock_is_held_by_a_process_that_is_stopped(scene: Scene, fork: Fork) -> None:
    calls = {name: call for name, call in all_calls(scene.client, 0.01).items() if name.startswith("single.")}
    arena = scene.client.table("single")._arena

    def look(pipe: Any) -> None:
        own = scene.client.table("single")._arena
        pipe.send()
        while True:
            own.check()

    child = fork(look)
    child.receive()
    child.stop()
    while (arena.lock_holder() or {}).get("pid") != child.pid:
        child.go_on()
        os.sched_yield()
        child.stop()
    try:
        check_all(outcomes(calls), LockTimeout, "kept the arena's lock for all of the call's timeout")
    finally:
        child.go_on()
        child.kill()

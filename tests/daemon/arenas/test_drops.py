"""A daemon that is killed while it drops tables or stops: the next one finds all of them, or none."""

import asyncio
import errno
import os
import pathlib
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.daemon.arenas.registry import Registry
from shmreplay.daemon.loop.workers import Workers
from shmreplay.segments.arena_mark import ArenaMark
from shmreplay.segments.segment import SegmentStore
from tests.daemon.checkpoints.saved import rows
from tests.support.daemons import StartDaemon, table
from tests.support.rounds import rounds

pytestmark = pytest.mark.crash

INSTANCE = "drops"
TABLES = [table("a"), table("b"), table("c")]


@pytest.fixture
def store() -> Iterator[SegmentStore]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield SegmentStore(folder)


class Countdown:
    """Counts the calls and returns of Python's and C's functions in all threads; kills this process at the n-th."""

    def __init__(self, n: int) -> None:
        self.left = n

    def start(self) -> None:
        """In this thread, and in threads that run work from now on."""
        sys.setprofile(self._count)
        run = Workers.run

        async def run_counted(workers: Workers, function: Callable[..., Any], *arguments: Any) -> Any:
            return await run(workers, self._counted, function, *arguments)

        Workers.run = run_counted  # type: ignore[method-assign, assignment]

    def _counted(self, function: Callable[..., Any], *arguments: Any) -> Any:
        sys.setprofile(self._count)
        return function(*arguments)

    def _count(self, frame: FrameType, event: str, argument: object) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


async def make_and_drop(store: SegmentStore, method: str, countdown: Countdown) -> None:
    registry = Registry(store, INSTANCE, None, Workers())
    await registry.create_tables(TABLES, lambda describe: None)
    countdown.start()
    if method == "drop_tables":
        await registry.drop_tables([table.name for table in TABLES], 1.0)
    else:
        await registry.close()


def drop_and_die(store: SegmentStore, method: str, n: int) -> NoReturn:
    """In a child. It ends with code 0 if the drop takes fewer than n calls."""
    try:
        asyncio.run(make_and_drop(store, method, Countdown(n)))
    except BaseException:  # noqa: BLE001  # the test looks at the code
        os._exit(1)
    os._exit(0)


def killed_at(store: SegmentStore, method: str, n: int) -> bool:
    """Whether the child was killed before it had dropped all."""
    pid = os.fork()
    if pid == 0:
        drop_and_die(store, method, n)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, -signal.SIGKILL), f"call {n} of {method}: code {code}"
    return code != 0


async def next_daemon(store: SegmentStore) -> tuple[list[str], list[str]]:
    """The tables that the next daemon takes over, and those of them that are dropped; it then removes them."""
    workers = Workers()
    registry = Registry(store, INSTANCE, None, workers)
    await registry.adopt(discard=False)
    infos = {arena.name: arena.native.table(0).info() for arena in registry.arenas}
    await registry.close()
    assert workers.close()
    return sorted(infos), [name for name, info in infos.items() if info["is_dropped"]]


def calls_of(store: SegmentStore, method: str) -> int:
    """How many calls a whole drop takes, about: the event loop does not always do the same."""
    n = 64
    while killed_at(store, method, n):
        asyncio.run(next_daemon(store))
        n *= 2
    low, high = n // 2, n
    while high - low > low // 20:
        middle = (low + high) // 2
        if killed_at(store, method, middle):
            asyncio.run(next_daemon(store))
            low = middle
        else:
            high = middle
    return high


@pytest.mark.parametrize("method", ["drop_tables", "close"])
@pytest.mark.one_quick
def test_a_daemon_killed_in_a_drop_or_a_stop_leaves_all_tables_or_none(
    store: SegmentStore, rng: np.random.Generator, method: str
) -> None:
    last = calls_of(store, method)
    kept = gone = 0
    for n in sorted(rng.integers(1, last, rounds(40, 200), endpoint=True)):
        killed_at(store, method, int(n))
        found, dropped = asyncio.run(next_daemon(store))
        assert dropped == [], f"killed at call {n} of {last}"
        assert found in ([], ["a", "b", "c"]), f"killed at call {n} of {last}"
        assert os.listdir(store.directory) == [], f"killed at call {n} of {last}"
        kept, gone = kept + bool(found), gone + (not found)
    print(f"{method}: {last} calls; all tables were there after {kept} deaths, none after {gone}")
    assert gone


# Runs shmreplayd so that it dies before it removes a segment's name for the n-th time.
DIES = """
import os, signal, sys
from shmreplay.daemon import main
from shmreplay.segments.arena_mark import ArenaMark
from shmreplay.segments.segment import SegmentStore
left = int(os.environ["SHMREPLAY_TEST_UNLINK"])
unlink = SegmentStore.unlink
def unlink_or_die(self, name):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return unlink(self, name)
SegmentStore.unlink = unlink_or_die
sys.exit(main.main())
"""


@pytest.mark.parametrize("unlinks", [1, 3])
@pytest.mark.one_quick
def test_the_daemon_after_one_that_was_killed_in_its_stop_restores_its_last_checkpoint(
    make_daemon: StartDaemon, tmp_path: pathlib.Path, unlinks: int
) -> None:
    flags = ("--checkpoint-dir", str(tmp_path / "saved"), "--checkpoint-at-stop", "--restore")
    daemon = make_daemon()
    daemon.start(*flags, source=DIES, env={**os.environ, "SHMREPLAY_TEST_UNLINK": str(unlinks)})
    with daemon.connect() as client:
        client.create_tables([table("a"), table("b")])
        before = client.table("a")
        before.insert_batch(rows(0, 50))
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == -signal.SIGKILL
        daemon.start(*flags)
        with pytest.raises(sr.TableClosed):
            before.sample(4)
        client.create_tables([table("a"), table("b")])  # as the loop of docs/reliability.md does
        client.table("a").insert_batch(rows(50, 5))
        assert len(client.table("a")) == 55
        assert len(client.table("b")) == 0
    assert not re.search("ERROR|Traceback", daemon.log())


def test_without_room_for_a_mark_tables_are_dropped_all_the_same(
    store: SegmentStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        workers = Workers()
        registry = Registry(store, INSTANCE, None, workers)
        await registry.create_tables(TABLES, lambda describe: None)
        monkeypatch.setattr(ArenaMark, "set", refuse)
        await registry.close()
        assert workers.close()

    def refuse(self: ArenaMark) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    asyncio.run(main())
    assert os.listdir(store.directory) == []
    assert "if this daemon is killed while it drops 3 arenas, some of them stay: [Errno 28]" in caplog.text

"""A byte of an arena that a killed daemon left is flipped: the next daemon starts, and takes the other arenas over."""

import asyncio
import logging
import os
import pathlib
import resource
import subprocess
import tempfile
import traceback
from collections.abc import Iterator
from typing import NoReturn

import numpy as np
import pytest

from shmreplay import _core
from shmreplay.daemon.arenas.registry import Registry
from shmreplay.daemon.loop.workers import Workers
from shmreplay.segments.segment import SegmentStore, segment_names
from tests.daemon.arenas.test_adoption import session_offset
from tests.support.daemons import table
from tests.support.rounds import rounds

INSTANCE = "adoption"
CPU_S = 20  # an endless loop is told by the time it burns


class Records(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def store() -> Iterator[SegmentStore]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield SegmentStore(folder)


@pytest.fixture
def index(store: SegmentStore) -> bytes:
    """Two arenas that a killed daemon left, with sessions of the living and the dead; the index of the first."""
    dead = subprocess.Popen(["true"])
    dead.wait()

    async def main() -> None:
        registry = Registry(store, INSTANCE, None, Workers())
        tables = [table("a"), table("more", arena="a"), table("b")]
        await registry.create_tables(tables, lambda describe: None)
        for arena in registry.arenas:
            arena.native.open_session(os.getpid(), _core.process_start_time(os.getpid()), 1.0)
            arena.native.open_session(dead.pid, 1, 1.0)
            arena.close()

    asyncio.run(main())
    return pathlib.Path(store.path(segment_names(INSTANCE, "a").index)).read_bytes()


async def adopt(store: SegmentStore, discard: bool) -> None:
    """What a daemon does at its start, and then what it does with the sessions of the dead."""
    logged = Records()
    logging.getLogger("shmreplayd").addHandler(logged)
    before = {name: os.stat(store.path(name)).st_ino for name in os.listdir(store.directory)}
    registry = Registry(store, INSTANCE, None, Workers())
    await registry.adopt(discard=discard)
    if registry.reaper._tasks:
        await asyncio.wait(registry.reaper._tasks, timeout=5)
    found = {arena.name for arena in registry.arenas}
    assert found in ({"a", "b"}, {"b"}), found
    text = "\n".join(record.getMessage() for record in logged.records)
    assert not any(record.exc_info for record in logged.records), text
    there = {name: os.stat(store.path(name)).st_ino for name in os.listdir(store.directory)}
    if found == {"b"} and "removing the leftovers" not in text:
        assert "arena 'a' is removed (--discard)" in text if discard else "arena 'a' is not taken over" in text, text
    if found == {"b"} and "is not taken over" not in text:
        assert len(there) == len(before) - 2
    else:
        assert there == before


def adopt_and_end(store: SegmentStore, discard: bool, report: pathlib.Path) -> NoReturn:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + 1))
    code = 0
    try:
        asyncio.run(asyncio.wait_for(adopt(store, discard), 60))
    except BaseException:  # noqa: BLE001  # told to the test
        report.write_text(traceback.format_exc())
        code = 1
    os._exit(code)


def places(index: bytes, rng: np.random.Generator, count: int) -> list[int]:
    """Offsets of bytes: in the records of sessions, in the header, and in other words that are in use."""
    sessions = session_offset(index, os.getpid())
    words = np.frombuffer(index, np.uint64)
    used = np.flatnonzero((words != 0) & (words != np.uint64(2**64 - 1))) * 8
    found = []
    for kind in rng.integers(3, size=count):
        if kind == 0:
            found.append(sessions + 128 * int(rng.integers(3)) + int(rng.integers(24)))
        else:
            place = int(rng.choice(used[used < 4096] if kind == 1 else used)) + int(rng.integers(8))
            found.append(place)
    return found


@pytest.mark.crash
def test_a_flipped_byte_sets_its_arena_aside_or_changes_what_it_says_and_the_others_are_taken_over(
    store: SegmentStore, index: bytes, rng: np.random.Generator, tmp_path: pathlib.Path
) -> None:
    """Whatever is flipped; with --discard it goes."""
    damaged = store.path(segment_names(INSTANCE, "a").index)
    whole = {name: pathlib.Path(store.path(name)).read_bytes() for name in os.listdir(store.directory)}
    for place in places(index, rng, rounds(60, 250)):
        mask, discard = int(rng.integers(1, 256)), bool(rng.random() < 0.3)
        for name, content in whole.items():
            path = pathlib.Path(store.path(name))
            path.touch(0o600)
            path.write_bytes(content)
        with open(damaged, "r+b") as file:
            os.pwrite(file.fileno(), bytes([index[place] ^ mask]), place)
        pid = os.fork()
        if pid == 0:
            adopt_and_end(store, discard, tmp_path / "report")
        _, status = os.waitpid(pid, 0)
        where = f"offset {place} ^ {mask}, {'--discard' if discard else 'left alone'}"
        assert not os.WIFSIGNALED(status), f"{where}: killed by signal {os.WTERMSIG(status)}"
        assert os.WEXITSTATUS(status) == 0, f"{where}:\n{(tmp_path / 'report').read_text()}"

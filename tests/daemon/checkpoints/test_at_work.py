"""Checkpoints of large tables in use: the daemon's memory, its progress, writers that need room."""

import contextlib
import os
import pathlib
import re
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.checkpoints.checkpoint_file import verify
from tests.daemon.checkpoints.saved import facts
from tests.support.daemons import DaemonProcess, StartDaemon
from tests.support.waiting import eventually

MIB = 2**20
ROW = 8192
WIDE = {"n": sr.ArraySpec((), "int64"), "row": sr.ArraySpec((ROW // 8,), "int64")}
COPY_BYTES = 112  # of the index, an item


def wide(first: int, n: int) -> dict[str, Any]:
    ns = np.arange(first, first + n)
    return {"n": ns, "row": np.repeat(ns[:, None], ROW // 8, axis=1)}


def status(pid: int, name: str) -> int:
    """A figure of /proc/<pid>/status, in bytes."""
    found = re.search(rf"{name}:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def forget_peak(pid: int) -> int:
    """Lets the peak of its resident memory begin anew, and returns where it begins."""
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")
    return status(pid, "VmRSS")


@pytest.mark.slow
@pytest.mark.long
def test_saving_and_restoring_take_little_memory(make_daemon: StartDaemon, tmp_path: pathlib.Path) -> None:
    """Field cases P1 and P2: a table that is far larger than what the daemon may take beside it."""
    items, batch = 32_000, 500
    daemon = make_daemon().start("--checkpoint-dir", str(tmp_path))
    with daemon.connect() as client:
        client.create_tables([sr.Table("t", WIDE, items, max_streams=4, max_sessions=8)])
        table = client.table("t")
        for first in range(0, items, batch):
            table.insert_batch(wide(first, batch))
        before = forget_peak(daemon.pid)
        path = client.checkpoint()
        grown = status(daemon.pid, "VmHWM") - before
        assert os.path.getsize(path) > items * ROW > 240 * MIB
        print(f"saving {os.path.getsize(path) / MIB:.0f} MiB took {grown / MIB:.1f} MiB")
        assert grown < 64 * MIB + items * COPY_BYTES + 2 * MIB
        sizes = {name: os.stat(daemon.store.path(name)).st_size for name in daemon.segments()}
        client.drop_table("t")
        before = forget_peak(daemon.pid)
        client.restore(path)
        grown = status(daemon.pid, "VmHWM") - before
        index = next(size for name, size in sizes.items() if name.endswith(".index"))
        print(f"restoring took {grown / MIB:.1f} MiB, {index / MIB:.1f} MiB of it the index that is mapped")
        assert grown < 64 * MIB + 2 * index
        table = client.table("t")
        batch_of = table.sample(64)
        assert (batch_of.data["row"] == batch_of.data["n"][:, None]).all()
    assert daemon.stop() == 0


@contextlib.contextmanager
def writers_at_work(daemon: DaemonProcess) -> Iterator[list[int]]:
    """One feeds two tables of an arena at once, another overwrites its own: how many steps each has written."""
    stop = threading.Event()
    done = [0, 0]

    def feed() -> None:
        patterns = [sr.Window({"n": (0, 1), "row": (0, 1)}, table=name) for name in ("first", "second")]
        with daemon.connect() as client, client.table("first").writer(patterns=patterns) as writer:
            while not stop.is_set():
                writer.append({name: column[0] for name, column in wide(done[0], 1).items()})
                done[0] += 1

    def overwrite() -> None:
        with daemon.connect() as client:
            table = client.table("third")
            while not stop.is_set():
                table.insert_batch(wide(done[1], 10))
                done[1] += 10

    threads = [threading.Thread(target=work) for work in (feed, overwrite)]
    for thread in threads:
        thread.start()
    try:
        yield done
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def check_instant(client: sr.Client) -> None:
    """The newest steps up to the last insert are there, none torn, as many in the two tables that are fed at once."""
    first, second, third = (client.table(name) for name in ("first", "second", "third"))
    assert second.info().inserts == first.info().inserts
    for table in (first, second, third):
        data, inserts = table.get(table.keys()).data, table.info().inserts
        assert data["n"].reshape(-1).tolist() == list(range(inserts - len(table), inserts))
        assert (data["n"][..., None] == data["row"]).all()


def test_a_checkpoint_beside_writers_is_of_one_instant(make_daemon: StartDaemon, tmp_path: pathlib.Path) -> None:
    options: dict[str, Any] = {"max_streams": 8, "max_sessions": 16}
    tables = [sr.Table(name, WIDE, 300, arena="both", **options) for name in ("first", "second")]
    daemon = make_daemon().start("--checkpoint-dir", str(tmp_path))
    paths: list[str] = []
    given_up: list[str] = []
    with daemon.connect() as client:
        client.create_tables([*tables, sr.Table("third", WIDE, 500, **options)])
        with writers_at_work(daemon) as done:
            for tries in range(200):
                if paths and tries >= 8:
                    break  # a busy machine gives most of them up
                at = done[0]
                eventually(lambda at=at: done[0] > at + 50)  # type: ignore[misc]
                try:
                    paths.append(client.checkpoint())
                except sr.CheckpointFailed as error:
                    given_up.append(str(error))
    for reason in given_up:
        assert re.search(
            "was given up: writers needed chunks not copied yet. In .* writers took .*, and .* were written", reason
        )
    print(f"{len(paths)} saved, {len(given_up)} given up")
    assert paths
    restoring = make_daemon().start()
    with restoring.connect() as client:
        client.restore(paths[-1])
        check_instant(client)


# A daemon whose disk takes nothing: for each slice of chunks it waits until the pipe has a writer.
STUCK_DISK = """
import os, sys
from shmreplay.checkpoints.checkpoint_file import CheckpointWriter, SectionKind
from shmreplay.daemon import main
real = CheckpointWriter.write
def write(self, kind, payload, arena=0, table=0):
    if kind is SectionKind.PIECES:
        open(os.environ["SHMREPLAY_TEST_DISK"], "rb").read()
    real(self, kind, payload, arena, table)
CheckpointWriter.write = write
sys.exit(main.main())
"""


@pytest.mark.long
def test_writers_that_need_room_end_a_checkpoint_and_lose_nothing(
    make_daemon: StartDaemon, tmp_path: pathlib.Path
) -> None:
    """A disk that takes nothing: a pipe that nobody writes to stands for it."""
    disk = tmp_path / "disk"
    os.mkfifo(disk)
    saved = tmp_path / "saved"
    daemon = make_daemon().start(
        "--checkpoint-dir", str(saved), source=STUCK_DISK, env={**os.environ, "SHMREPLAY_TEST_DISK": str(disk)}
    )
    items = 16_000  # 128 MiB: more than the side buffer takes
    with daemon.connect() as client, daemon.connect() as saver:
        client.create_tables([sr.Table("t", WIDE, items, max_streams=2, max_sessions=8)])
        table = client.table("t")
        for first in range(0, items, 500):
            table.insert_batch(wide(first, 500))
        failure: list[BaseException] = []

        def save() -> None:
            try:
                saver.checkpoint()
            except sr.CheckpointFailed as error:
                failure.append(error)

        saving = threading.Thread(target=save)
        saving.start()
        eventually(lambda: len(table._arena.sessions()) == 2)
        for first in range(items, 4 * items, 500):
            table.insert_batch(wide(first, 500), timeout_s=60)
        assert table.info().evicted_for_room == 0
        assert len(table) == items
        while saving.is_alive():  # the disk takes it after all, and the daemon is told why not
            with contextlib.suppress(OSError):
                os.close(os.open(disk, os.O_WRONLY | os.O_NONBLOCK))
        saving.join()
        assert "was given up: writers needed chunks not copied yet" in str(failure[0])
        assert [name for name in os.listdir(saved) if not name.endswith(".lock")] == []
        assert table._arena.check() == []
        assert len(table._arena.sessions()) == 1


@pytest.mark.long
def test_how_far_it_is_is_told(make_daemon: StartDaemon, tmp_path: pathlib.Path) -> None:
    source = """
import sys, time
from shmreplay.daemon.checkpoints import arena_save, checkpoints
from shmreplay.daemon import main
checkpoints.LOG_S = 0.2
real = arena_save.CheckpointWriter.write
def write(self, kind, *rest):
    if kind is arena_save.SectionKind.ITEMS:
        time.sleep(2.5)
    real(self, kind, *rest)
arena_save.CheckpointWriter.write = write
sys.exit(main.main())
"""
    daemon = make_daemon().start("--checkpoint-dir", str(tmp_path), source=source)
    told: list[str] = []
    with daemon.connect() as client:
        client.create_tables([sr.Table("t", WIDE, 100, max_streams=2, max_sessions=8)])
        client.table("t").insert_batch(wide(0, 100))
        path = client.checkpoint(on_progress=told.append)
        assert verify(path)["states"][0]["tables"][0]["size"] == 100
        before = facts(client.table("t"))
        client.drop_table("t")
        client.restore(path)
        assert facts(client.table("t")) == before
    assert told
    assert re.fullmatch(r"checkpoint of arena 't': [0-9.]+ KiB of [0-9.]+ KiB written", told[-1]), told
    assert "checkpoint of arena 't': " in daemon.log()

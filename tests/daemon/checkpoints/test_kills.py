"""A daemon that is killed while it saves or restores: the checkpoints before are whole, and nothing is half there."""

import os
import pathlib
import re
import signal

import pytest

import shmreplay as sr
from shmreplay.checkpoints.checkpoint_directory import PARTIAL, find_checkpoints
from shmreplay.checkpoints.checkpoint_file import verify
from tests.daemon.checkpoints.saved import facts, rows
from tests.support.daemons import DaemonProcess, StartDaemon, table
from tests.support.waiting import WAIT_S

pytestmark = pytest.mark.crash

# Runs shmreplayd so that it dies when it passes the point whose name the file SHMREPLAY_TEST_POINT holds.
DAEMON = """
import os, signal, sys
from shmreplay.checkpoints import checkpoint_directory, checkpoint_file
from shmreplay.daemon import main
from shmreplay.daemon.arenas import restoration
from shmreplay.daemon.checkpoints import arena_save
from shmreplay.segments.arena_mark import ArenaMark
from shmreplay.segments.segment import SegmentStore

def dies_at(owner, method, before, after=None, when=lambda *args: True):
    real = getattr(owner, method)
    def passed(point):
        with open(os.environ["SHMREPLAY_TEST_POINT"]) as file:
            if point is not None and point == file.read():
                os.kill(os.getpid(), signal.SIGKILL)
    def wrapped(*args, **kwargs):
        if not when(*args):
            return real(*args, **kwargs)
        passed(before)
        result = real(*args, **kwargs)
        passed(after)
        return result
    setattr(owner, method, wrapped)

def is_checkpoint(path, *rest):
    return isinstance(path, str) and ".checkpoint" in path

SectionKind = checkpoint_file.SectionKind
writer = checkpoint_file.CheckpointWriter
for kind in SectionKind:
    name = kind.name.lower()
    is_kind = lambda self, written, *rest, kind=kind: written is kind
    dies_at(writer, "write", f"before writing {name}", f"after writing {name}", is_kind)
dies_at(os, "open", "before opening", "after opening", is_checkpoint)
dies_at(os, "rename", "before renaming", "after renaming", is_checkpoint)
dies_at(os, "unlink", "before removing an old one", "after removing an old one", is_checkpoint)
for what, is_it in (("file", os.path.isfile), ("directory", os.path.isdir)):
    is_synced = lambda fd, is_it=is_it: is_it(f"/proc/self/fd/{fd}")
    dies_at(os, "fsync", f"before the {what} is synced", f"after the {what} is synced", is_synced)
dies_at(arena_save.ArenaSave, "_copy", "before copying", "after copying")
dies_at(arena_save.ArenaSave, "run", "before the instant", "after the arena")
dies_at(restoration.RestoredArena, "begin", "before an arena is made", "after an arena is made")
for arena in "ab":
    is_it = lambda self, arena=arena: self.arena == arena
    dies_at(restoration.RestoredArena, "publish", f"before publishing {arena}", f"after publishing {arena}", is_it)
    removes = lambda self, instance, name, arena=arena: name == arena
    dies_at(SegmentStore, "remove_arena", f"before removing {arena}", f"after removing {arena}", removes)
dies_at(ArenaMark, "set", "before the mark is set", "after the mark is set")
dies_at(ArenaMark, "remove", "before the mark is removed", "after the mark is removed")
dies_at(restoration.Restoration, "_settle", "before settling", "after settling")
sys.exit(main.main())
"""

SAVING = [
    "before opening", "after opening", "before writing manifest", "after writing manifest", "before the instant",
    "before writing arena", "after writing arena", "before copying", "after copying", "before writing pieces",
    "after writing pieces", "before writing items", "after writing items", "before writing free_slots",
    "after writing free_slots", "before writing chunks", "after writing chunks", "before writing arena_end",
    "after writing arena_end", "after the arena", "before writing end", "after writing end",
    "before the file is synced", "after the file is synced", "before renaming", "after renaming",
    "before the directory is synced", "after the directory is synced", "before removing an old one",
    "after removing an old one",
]  # fmt: skip
COMPLETE_FROM = SAVING.index("after renaming")
RESTORING = [
    "before an arena is made", "after an arena is made", "before settling", "after settling", "before the mark is set",
    "after the mark is set", "before publishing a", "after publishing a", "before publishing b", "after publishing b",
    "before the mark is removed", "after the mark is removed",
]  # fmt: skip
STARTING = ["before removing a", "after removing a", "before removing b", "after removing b"]


@pytest.fixture
def flags(directory: str) -> tuple[str, ...]:
    return ("--checkpoint-dir", directory, "--checkpoint-keep", "1")


@pytest.fixture
def armed(tmp_path: pathlib.Path) -> pathlib.Path:
    """Where the name of the point is written at which the daemon is to die."""
    path = tmp_path / "point"
    path.write_text("")
    return path


@pytest.fixture
def mortal(make_daemon: StartDaemon, flags: tuple[str, ...], armed: pathlib.Path) -> DaemonProcess:
    """A daemon with a checkpoint of two arenas, which dies at the point written to `armed`."""
    daemon = make_daemon().start(*flags, source=DAEMON, env={**os.environ, "SHMREPLAY_TEST_POINT": str(armed)})
    with daemon.connect() as client:
        client.create_tables([table("a"), table("b")])
        client.table("a").insert_batch(rows(0, 50))
        client.checkpoint()
    return daemon


@pytest.mark.parametrize("point", SAVING)
def test_the_checkpoint_before_is_whole_wherever_a_saver_is_killed(
    mortal: DaemonProcess, armed: pathlib.Path, directory: str, flags: tuple[str, ...], point: str
) -> None:
    """Field case P7."""
    first = find_checkpoints(directory)
    with mortal.connect() as client:
        handle = client.table("a")
        handle.insert_batch(rows(50, 20))
        armed.write_text(point)
        with pytest.raises(sr.DaemonUnavailable):
            client.checkpoint()
        assert mortal.wait() == -signal.SIGKILL
        handle.insert_batch(rows(70, 5))  # nobody misses the daemon
        handle.sample(10)
        whole = find_checkpoints(directory)
        for path in whole:
            verify(path)
        is_complete = SAVING.index(point) >= COMPLETE_FROM
        assert len(whole) == (2 if is_complete and point != "after removing an old one" else 1)
        assert is_complete or whole == first
        # The next daemon takes the tables over as if nobody had saved; its next checkpoint clears the rest away.
        mortal.start(*flags)
        handle = client.table("a")
        assert handle._arena.check() == []
        assert len(handle) == 75
        path = client.checkpoint()
        assert find_checkpoints(directory) == [path]
        assert [name for name in os.listdir(directory) if name.endswith(PARTIAL)] == []
        assert len(handle._arena.sessions()) == 1
        client.drop_table("a")
        client.drop_table("b")
        client.restore(directory)
        assert len(client.table("a")) == 75


def killed_restoring(daemon: DaemonProcess, armed: pathlib.Path, directory: str, point: str) -> dict[str, object]:
    """Drops both tables and has them restored by a daemon that dies at the point; what table a was like."""
    with daemon.connect() as client:
        before = facts(client.table("a"))
        client.drop_table("a")
        client.drop_table("b")
        armed.write_text(point)
        with pytest.raises(sr.DaemonUnavailable):
            client.restore(directory)
    assert daemon.wait() == -signal.SIGKILL
    return before


def check_all_or_none(
    daemon: DaemonProcess, directory: str, flags: tuple[str, ...], before: dict[str, object], all_there: bool
) -> None:
    daemon.start(*flags)
    with daemon.connect() as client:
        assert sorted(client.tables()) == (["a", "b"] if all_there else [])
        assert not any(name.endswith(".restoring") for name in daemon.left_behind())
        if not all_there:
            client.restore(directory)
        assert facts(client.table("a")) == before
        assert len(client.table("b")) == 0
    assert not re.search("ERROR|Traceback", daemon.log())


@pytest.mark.parametrize("point", RESTORING)
def test_a_daemon_killed_while_it_restores_leaves_all_of_it_or_nothing(
    mortal: DaemonProcess, armed: pathlib.Path, directory: str, flags: tuple[str, ...], point: str
) -> None:
    before = killed_restoring(mortal, armed, directory, point)
    check_all_or_none(mortal, directory, flags, before, point == "after the mark is removed")


@pytest.mark.parametrize("point", STARTING)
def test_so_does_the_next_daemon_that_is_killed_while_it_clears_away(
    mortal: DaemonProcess, armed: pathlib.Path, directory: str, flags: tuple[str, ...], point: str
) -> None:
    before = killed_restoring(mortal, armed, directory, "before the mark is removed")
    armed.write_text(point)
    environment = {**os.environ, "SHMREPLAY_TEST_POINT": str(armed)}
    assert mortal.run(*flags, source=DAEMON, env=environment).wait(WAIT_S) == -signal.SIGKILL
    check_all_or_none(mortal, directory, flags, before, False)

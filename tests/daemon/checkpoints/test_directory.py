"""What else lies in the directory of checkpoints, or happens to it: files of others, of odd kinds, with odd names."""

import errno
import fcntl
import os
import pathlib
import subprocess
from collections.abc import Callable

import pytest

import shmreplay as sr
from shmreplay.checkpoints.checkpoint_directory import PARTIAL, CheckpointDirectory, find_checkpoints
from shmreplay.checkpoints.checkpoint_file import CheckpointReader
from tests.daemon.checkpoints.saved import rows
from tests.support.daemons import DaemonProcess, StartDaemon, table

LATER = "shmreplay.{}.20981231T235959000000Z.checkpoint"
EARLIER = "shmreplay.{}.20000101T000000000000Z.checkpoint"


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "saved"


@pytest.fixture
def flags(directory: pathlib.Path) -> tuple[str, ...]:
    return ("--checkpoint-dir", str(directory), "--checkpoint-keep", "2")


@pytest.fixture
def saver(make_daemon: StartDaemon, flags: tuple[str, ...]) -> DaemonProcess:
    """A daemon with a table of ten items, and a checkpoint."""
    daemon = make_daemon().start(*flags)
    with daemon.connect() as client:
        client.create_tables([table("a")])
        client.table("a").insert_batch(rows(0, 10))
        client.checkpoint()
    return daemon


def make_file(path: pathlib.Path) -> None:
    path.write_bytes(b"somebody else's, and more than sixteen bytes of it")


def make_directory(path: pathlib.Path) -> None:
    path.mkdir()


def make_link(path: pathlib.Path) -> None:
    path.symlink_to("/nowhere")


@pytest.mark.parametrize("make", [make_file, make_directory, make_link, os.mkfifo])
@pytest.mark.parametrize("name", [LATER, EARLIER, LATER + PARTIAL, EARLIER + PARTIAL])
def test_things_that_only_have_the_name_of_a_checkpoint_stay_and_are_in_nobodys_way(
    saver: DaemonProcess,
    directory: pathlib.Path,
    flags: tuple[str, ...],
    make: Callable[[pathlib.Path], None],
    name: str,
) -> None:
    foreign = directory / name.format(saver.instance)
    make(foreign)
    kind = foreign.lstat().st_mode
    with saver.connect() as client:
        for _ in range(3):
            newest = client.checkpoint(timeout_s=100)
        assert foreign.lstat().st_mode == kind
        kept = [path for path in directory.iterdir() if path != foreign and path.suffix != ".lock"]
        assert len(kept) == 2  # the newest two of its own, and not one that is none
        assert pathlib.Path(newest) in kept
    assert saver.stop() == 0
    saver.start(*flags, "--restore")
    with saver.connect() as client:
        assert len(client.table("a")) == 10


@pytest.mark.parametrize("moment", ["99999999T999999999999Z", "20260231T000000000000Z"])
def test_a_name_with_a_moment_that_no_clock_shows_is_no_checkpoints(
    saver: DaemonProcess, directory: pathlib.Path, moment: str
) -> None:
    make_file(directory / f"shmreplay.{saver.instance}.{moment}.checkpoint")
    with saver.connect() as client:
        path = client.checkpoint()
        assert find_checkpoints(str(directory))[0] == path


def test_a_checkpoint_of_the_last_moment_there_is_must_be_moved_first(
    saver: DaemonProcess, directory: pathlib.Path
) -> None:
    last = directory / f"shmreplay.{saver.instance}.99991231T235959999999Z.checkpoint"
    make_file(last)
    with saver.connect() as client:
        with pytest.raises(sr.CheckpointFailed, match=f"no moment is later than that of {last}; move it elsewhere"):
            client.checkpoint()
        last.unlink()
        client.checkpoint()


def test_a_checkpoint_is_saved_though_an_older_one_cannot_be_removed(
    saver: DaemonProcess, directory: pathlib.Path
) -> None:
    with saver.connect() as client:
        stuck = client.checkpoint()
        if subprocess.run(["chattr", "+i", stuck], check=False, capture_output=True).returncode:
            pytest.skip("this file system has no immutable files")
        try:
            paths = [client.checkpoint() for _ in range(3)]
        finally:
            subprocess.run(["chattr", "-i", stuck], check=True)
        assert find_checkpoints(str(directory)) == [paths[2], paths[1], stuck]
    assert f"{stuck} is kept, because it cannot be removed" in saver.log()


def test_nothing_is_left_where_a_directory_was_that_has_another_name_by_now(directory: pathlib.Path) -> None:
    checkpoints = CheckpointDirectory(str(directory), "label")
    moved = directory.with_name("moved")

    def save() -> None:
        with checkpoints.create() as (fd, _):
            os.write(fd, b"half of it")
            directory.rename(moved)
            directory.mkdir()

    with pytest.raises(FileNotFoundError):
        save()
    assert list(moved.iterdir()) == list(directory.iterdir()) == []


def test_a_saver_begins_again_if_its_file_was_removed_as_a_leftover(
    directory: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two daemons of one label: one looks for leftovers just between the other's open and its lock."""
    checkpoints = CheckpointDirectory(str(directory), "label")
    real = fcntl.flock
    looks: list[int] = []

    def flock(fd: int, operation: int) -> None:
        if not looks:
            looks.append(fd)
            CheckpointDirectory(str(directory), "label").remove_partial_files()
        real(fd, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with checkpoints.create() as (fd, path):
        os.write(fd, b"all of it")
    assert looks
    assert pathlib.Path(path).read_bytes() == b"all of it"


def test_a_sector_that_cannot_be_read_is_damage(saver: DaemonProcess, directory: pathlib.Path) -> None:
    reader = CheckpointReader(find_checkpoints(str(directory))[0])

    class Broken:
        def tell(self) -> int:
            return 300

        def readinto(self, buffer: memoryview) -> int:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    file, reader._file = reader._file, Broken()  # type: ignore[assignment]
    with pytest.raises(sr.DamagedCheckpoint, match=r"section 1 at offset 300: it cannot be read: .*Input/output error"):
        reader.next()
    file.close()

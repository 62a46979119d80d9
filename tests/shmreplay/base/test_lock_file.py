"""Files held with flock: one holder at a time, named to the others, and removed when it lets go."""

import errno
import os
import pathlib
import stat
import threading

import pytest

from shmreplay.base.lock_file import Held, LockFile, read_lock_file
from shmreplay.checkpoints.checkpoint_directory import CheckpointDirectory
from shmreplay.errors import CheckpointFailed
from tests.support.waiting import WAIT_S


def test_a_second_one_is_told_the_holder(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "lock"
    first = LockFile(str(path))
    with pytest.raises(Held, match=r"^unknown$"):
        LockFile(str(path))
    first.write("4711\nmore")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(Held, match=r"^4711$"):
        LockFile(str(path))
    first.write("8")
    assert path.read_text() == "8", "nothing stays of a longer text"
    first.release()
    assert not path.exists()


def test_a_release_leaves_the_file_of_a_successor_alone(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "lock"
    first = LockFile(str(path))
    path.unlink()
    second = LockFile(str(path))
    first.release()
    assert path.exists()
    with pytest.raises(Held):
        LockFile(str(path))
    second.release()


def test_a_waiting_process_gets_a_file_of_its_own_after_the_release(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "lock"
    first = LockFile(str(path))
    inode = path.stat().st_ino
    keeps_inode = os.open(path, os.O_RDONLY)  # so that the next file cannot have the same number
    taken: list[LockFile] = []
    waiter = threading.Thread(target=lambda: taken.append(LockFile(str(path), waits=True)))
    waiter.start()
    try:
        first.release()
        waiter.join(WAIT_S)
        assert len(taken) == 1
        assert path.stat().st_ino != inode
        taken[0].release()
    finally:
        os.close(keeps_inode)


def test_what_the_holder_wrote_is_read_without_the_lock(tmp_path: pathlib.Path) -> None:
    lock = LockFile(str(tmp_path / "lock"))
    lock.write("12\n/a/socket\n")
    status, lines = read_lock_file(lock.path)
    assert (status.st_uid, lines) == (os.geteuid(), ["12", "/a/socket", ""])
    lock.release()
    os.mkfifo(lock.path)  # reading it would block
    assert read_lock_file(lock.path)[1] == [""]


def test_a_link_is_not_followed(tmp_path: pathlib.Path) -> None:
    (tmp_path / "target").write_text("other")
    (tmp_path / "lock").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic links"):
        LockFile(str(tmp_path / "lock"))
    assert (tmp_path / "target").read_text() == "other"


def test_a_file_that_cannot_be_looked_at_is_not_kept_open_or_locked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    def fail(fd: int) -> os.stat_result:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    path = str(tmp_path / "lock")
    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", fail)
        with pytest.raises(OSError, match="Input/output error"):
            LockFile(path)
        directory = CheckpointDirectory(str(tmp_path), "a")
        with pytest.raises(CheckpointFailed, match="Input/output error"), directory.create():
            pass
    assert len(os.listdir("/proc/self/fd")) == before
    assert os.listdir(tmp_path) == ["lock"]
    LockFile(path).release()

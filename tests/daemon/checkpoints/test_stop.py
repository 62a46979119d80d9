"""The last checkpoint, and what a daemon does if it cannot save it."""

import os
import pathlib
import signal
import threading

import pytest

import shmreplay as sr
from shmreplay.checkpoints.checkpoint_directory import find_checkpoints
from tests.daemon.checkpoints.saved import facts, rows
from tests.support.daemons import DaemonProcess, StartDaemon, table
from tests.support.waiting import eventually

FLAGS = ("--checkpoint-at-stop", "--checkpoint-dir")

# The file SHMREPLAY_TEST_DISK is a pipe: the daemon saves on when it was written to, and fails if that was "full".
SLOW = """
import errno, os, sys
from shmreplay.checkpoints.checkpoint_file import CheckpointWriter, SectionKind
from shmreplay.daemon import main
real = CheckpointWriter.write
def write(self, kind, *rest):
    if kind is SectionKind.ARENA_END:
        with open(os.environ["SHMREPLAY_TEST_DISK"]) as pipe:
            if pipe.read() == "full":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    real(self, kind, *rest)
CheckpointWriter.write = write
sys.exit(main.main())
"""


@pytest.fixture
def disk(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "disk"
    os.mkfifo(path)
    return path


@pytest.fixture
def slow(make_daemon: StartDaemon, tmp_path: pathlib.Path, disk: pathlib.Path) -> DaemonProcess:
    """A daemon with a table of ten items, whose last checkpoint waits for `disk`."""
    env = {**os.environ, "SHMREPLAY_TEST_DISK": str(disk)}
    daemon = make_daemon().start(*FLAGS, str(tmp_path / "saved"), source=SLOW, env=env)
    with daemon.connect() as client:
        client.create_tables([table("a")])
        client.table("a").insert_batch(rows(0, 10))
    return daemon


def test_a_daemon_that_cannot_save_its_last_checkpoint_drops_nothing(
    make_daemon: StartDaemon, tmp_path: pathlib.Path
) -> None:
    directory = tmp_path / "saved"
    daemon = make_daemon().start(*FLAGS, str(directory))
    with daemon.connect() as client:
        client.create_tables([table("a")])
        handle = client.table("a")
        handle.insert_batch(rows(0, 10))
        os.unlink(directory / f"shmreplay.{daemon.instance}.lock")
        directory.rmdir()
        directory.write_text("somebody else's")
        before = facts(handle)
        assert daemon.stop() == 1
        assert "ERROR no checkpoint was saved at the stop: [Errno 20] Not a directory: " in daemon.log()
        assert "so the tables stay in shared memory; the next shmreplayd of this" in daemon.log()
        assert "dropping all tables" not in daemon.log()
        handle.insert_batch(rows(0, 1), timeout_s=0)  # as after a crash, who is attached works on
        assert len(daemon.segments()) == 2
        daemon.start()
        assert facts(handle) != before
        assert len(client.table("a")) == 11
    assert daemon.stop() == 0
    assert daemon.left_behind() == []


@pytest.mark.parametrize("word", ["", "full"])
@pytest.mark.one_quick
def test_inserts_and_samples_wait_while_the_last_checkpoint_is_saved(
    slow: DaemonProcess, tmp_path: pathlib.Path, disk: pathlib.Path, word: str
) -> None:
    """What a caller was told is done is in it."""
    ended: list[str] = []
    with slow.connect() as client:
        handle = client.table("a")

        def insert() -> None:
            try:
                handle.insert_batch(rows(0, 5), timeout_s=60)
                ended.append("inserted")
            except sr.TableClosed:
                ended.append("closed")

        slow.signal(signal.SIGTERM)
        eventually(lambda: not handle.can_insert() and client.tables() is not None)
        assert not handle.can_sample()
        for call in (lambda: handle.insert_batch(rows(0, 1), timeout_s=0), lambda: handle.sample(1, timeout_s=0)):
            with pytest.raises(sr.RateLimitTimeout, match="the daemon is stopping: it saves a last checkpoint"):
                call()
        with pytest.raises(sr.ShmReplayError, match="was not created: the daemon is stopping"):
            client.create_tables([table("late")])
        thread = threading.Thread(target=insert)
        thread.start()
        eventually(lambda: handle.info().blocked_inserts == 1)
        disk.write_text(word)
        assert slow.wait() == (1 if word else 0)
        thread.join()
        assert ended == ["inserted" if word else "closed"]
    if word:
        slow.start(*FLAGS, str(tmp_path / "saved"))
        with slow.connect() as client:
            assert len(client.table("a")) == 15
        assert slow.stop() == 0
    assert len(find_checkpoints(str(tmp_path / "saved"))) == 1
    slow.start(*FLAGS, str(tmp_path / "saved"), "--restore")
    with slow.connect() as client:
        assert len(client.table("a")) == (15 if word else 10)
        assert client.table("a").can_insert()
    assert "was paused when it was saved" not in slow.log()
    assert slow.stop() == 0


def test_a_daemon_killed_while_it_saves_its_last_checkpoint_keeps_nobody_waiting(slow: DaemonProcess) -> None:
    with slow.connect() as client:
        client.pause("a", inserts=False)
        handle = client.table("a")
        slow.signal(signal.SIGTERM)
        eventually(lambda: not handle.can_insert() and client.tables() is not None)
        slow.kill()
        slow.start()
        assert handle.can_insert()
        assert not handle.can_sample()  # that pause was a client's
        handle.insert_batch(rows(0, 1), timeout_s=0)
    assert slow.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_was_ignored_at_the_start_ends_no_daemon(make_daemon: StartDaemon, number: int) -> None:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        daemon = make_daemon().start()
    finally:
        signal.signal(number, before)
    daemon.signal(number)
    with daemon.connect() as client:
        client.create_tables([table("a")])
        assert list(client.tables()) == ["a"]
    assert daemon.stop() == 0
    assert f"stopping: {signal.Signals(number).name}" not in daemon.log()
    daemon.start()
    daemon.signal(number)
    assert daemon.wait() == 0
    assert f"stopping: {signal.Signals(number).name}" in daemon.log()

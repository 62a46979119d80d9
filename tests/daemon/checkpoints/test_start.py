"""What a daemon finds in its checkpoint directory at the start, and what it does about it."""

import os
import pathlib
import re

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.checkpoints.checkpoint_directory import find_checkpoints
from tests.support.daemons import DaemonProcess, StartDaemon, table
from tests.support.waiting import eventually


@pytest.mark.long
def test_two_servers_do_not_get_one_directory(tmp_path: pathlib.Path) -> None:
    with sr.Server([table("a")], checkpoint_dir=str(tmp_path)) as server, server.client() as client:
        path = client.checkpoint()
        expected = (
            rf"process {server.pid} already saves checkpoints of 'embedded' in {re.escape(str(tmp_path))} \(it holds "
            r".*/shmreplay\.embedded\.lock\); give each daemon its own directory"
        )
        with pytest.raises(sr.DaemonUnavailable, match=expected):
            sr.Server([table("a")], checkpoint_dir=str(tmp_path))
        with sr.Server(restore=path) as other:  # to read one is no use of it
            assert other.address != server.address
    with sr.Server([table("a")], checkpoint_dir=str(tmp_path), restore=path):
        assert len(os.listdir(tmp_path)) == 2
    assert os.listdir(tmp_path) == [os.path.basename(path)]


def shut_down(daemon: DaemonProcess) -> int:
    """An embedded daemon ignores signals."""
    with daemon.connect() as client:
        client.shutdown()
    return daemon.wait()


def test_a_server_waits_for_one_that_is_just_ending(tmp_path: pathlib.Path, make_daemon: StartDaemon) -> None:
    """The first daemon's parent was killed. The daemon still holds the directory when the next one starts."""
    source = """
import os, sys
from shmreplay.daemon.checkpoints import directory_lock
from shmreplay.daemon import main
real = directory_lock.LockFile
def lock_file(path, *, waits=False):
    if waits:
        open(os.environ["SHMREPLAY_TEST_WAITS"], "w").close()
    return real(path, waits=waits)
directory_lock.LockFile = lock_file
sys.exit(main.main())
"""
    waits = tmp_path / "waits"
    os.mkfifo(waits)
    flags = ("--checkpoint-dir", str(tmp_path / "saved"), "--embedded", "--parent-pid", str(os.getpid()))
    first, second = make_daemon(), make_daemon()
    first.socket, second.socket = (str(tmp_path / name / "socket") for name in ("first", "second"))
    first.start(*flags)
    ready, ready_for_child = os.pipe()
    env = {**os.environ, "SHMREPLAY_TEST_WAITS": str(waits)}
    second._process = second.run(
        *flags, "--ready-fd", str(ready_for_child), source=source, env=env, pass_fds=(ready_for_child,)
    )
    os.close(ready_for_child)
    waits.read_bytes()
    assert shut_down(first) == 0
    assert os.read(ready, 16) == b"ready\n"
    os.close(ready)
    assert shut_down(second) == 0


@pytest.mark.parametrize("directory", ["/etc/passwd", "/etc/passwd/below", "/proc/nothing"])
def test_a_directory_that_cannot_be_written_to_is_told_at_the_start(make_daemon: StartDaemon, directory: str) -> None:
    daemon = make_daemon()
    assert f"shmreplayd: no checkpoint can be written to {directory}: " in daemon.fail("--checkpoint-dir", directory)
    assert daemon.left_behind() == []


@pytest.mark.long
def test_a_daemon_that_finds_only_checkpoints_of_others_says_so(
    make_daemon: StartDaemon, tmp_path: pathlib.Path
) -> None:
    flags = ("--checkpoint-dir", str(tmp_path), "--restore")
    daemon, other = make_daemon().start(*flags), make_daemon()
    assert f"WARNING there is no checkpoint of {daemon.instance} in {tmp_path}: starting empty" in daemon.log()
    with daemon.connect() as client:
        client.create_tables([table("a")])
        client.checkpoint()
    other.start(*flags)
    hint = f"(it has checkpoints of {daemon.instance!r}): starting empty"
    assert f"WARNING there is no checkpoint of {other.instance} in {tmp_path} {hint}" in other.log()
    assert daemon.stop() == other.stop() == 0


@pytest.mark.long
def test_a_server_that_was_not_told_to_restore_says_so_and_removes_nothing(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = str(tmp_path)
    with sr.Server([table("a")], checkpoint_dir=directory) as server, server.client() as client:
        good = client.checkpoint()
    assert caplog.text == ""
    with sr.Server([table("a")], checkpoint_dir=directory) as server, server.client() as client:
        for _ in range(3):
            client.checkpoint()
    assert f"{directory} holds 1 checkpoints of sr.Server, and restore= was not given" in caplog.text
    assert find_checkpoints(directory)[-1] == good
    caplog.clear()
    with sr.Server([table("a")], checkpoint_dir=directory, restore=directory) as server, server.client() as client:
        newest = client.checkpoint()
    assert caplog.text == ""
    assert find_checkpoints(directory)[0] == newest
    assert len(find_checkpoints(directory)) == 2


@pytest.mark.long
def test_resume_if_there_is_one(tmp_path: pathlib.Path) -> None:
    """As docs/checkpoints.md has it."""

    def resume() -> sr.Server:
        directory, tables = str(tmp_path / "run"), [table("a")]
        try:
            return sr.Server(tables, checkpoint_dir=directory, restore=directory)
        except FileNotFoundError:
            return sr.Server(tables, checkpoint_dir=directory)

    with resume() as server, server.client() as client:
        client.table("a").insert({"x": np.zeros(3, np.float32), "n": 0})
        client.checkpoint()
    with resume() as server, server.client() as client:
        assert len(client.table("a")) == 1


def test_what_is_not_there_is_not_found_and_what_is_damaged_is_damaged(tmp_path: pathlib.Path) -> None:
    missing, empty, damaged = (tmp_path / name for name in ("missing", "empty", "damaged"))
    empty.mkdir()
    damaged.mkdir()
    names = [f"shmreplay.x.2026010{day}T000000000000Z.checkpoint" for day in (1, 2)]
    for name in names:
        (damaged / name).write_bytes(b"nonsense, and more than sixteen bytes of it")
    with sr.Server() as server, server.client() as client:
        for path, text in (
            (missing, "there is no checkpoint .*/missing: no such file"),
            (empty, "no checkpoint in .*/empty"),
        ):
            with pytest.raises(FileNotFoundError, match=text) as caught:
                client.restore(str(path))
            assert isinstance(caught.value, sr.CheckpointFailed)
        with pytest.raises(sr.CheckpointFailed, match="there is no whole checkpoint in") as failed:
            client.restore(str(damaged))
        assert not isinstance(failed.value, FileNotFoundError)
        assert str(failed.value).count("is damaged: its beginning: it is no checkpoint of shmreplay") == 2
        assert "taken" not in str(failed.value)
        with pytest.raises(sr.DamagedCheckpoint, match=r"it is no checkpoint of shmreplay$"):
            client.restore(str(damaged / names[0]))
        with pytest.raises(sr.DamagedCheckpoint, match=f"; the next older one is .*{names[0]}$"):
            client.restore(str(damaged / names[1]))
        log = server.log()
        assert log.count("it is no checkpoint of shmreplay; trying the next older one") == 1
        assert log.count("it is no checkpoint of shmreplay; there is no older one") == 1


# A restoration that goes on only once it is cancelled.
ENDLESS = """
import sys, time
from shmreplay.daemon.arenas.restoration import Restoration
from shmreplay.daemon import main
real = Restoration._next
def next_section(self, number):
    if number == 1:
        print("in the middle", flush=True)
        while not any(arena.is_cancelled for arena in self.arenas):
            time.sleep(0.01)
    return real(self, number)
Restoration._next = next_section
sys.exit(main.main())
"""


def test_sigterm_ends_a_restoration_at_the_start_and_leaves_all_as_it_was(
    make_daemon: StartDaemon, tmp_path: pathlib.Path
) -> None:
    flags = ("--checkpoint-dir", str(tmp_path / "saved"), "--checkpoint-at-stop", "--restore")
    daemon = make_daemon().start(*flags)
    with daemon.connect() as client:
        client.create_tables([table("a"), table("b")])
        client.table("b").insert({"x": np.zeros(3, np.float32), "n": 7})
    assert daemon.stop() == 0
    before = os.listdir(tmp_path / "saved")
    daemon._process = daemon.run(*flags, source=ENDLESS)
    eventually(lambda: "in the middle" in daemon.log())
    assert daemon.stop() == 0
    assert "INFO stopped during the start: arena 'b' was not created: the daemon is stopping" in daemon.log()
    assert daemon.left_behind() == []
    assert os.listdir(tmp_path / "saved") == before
    daemon.start(*flags)
    with daemon.connect() as client:
        assert [len(client.table(name)) for name in "ab"] == [0, 1]

"""A daemon's life: start, stop, being killed, coming back, and what it does not do to others."""

import os
import pathlib
import signal
import socket
import stat
import subprocess
import sys

import pytest

import shmreplay as sr
from tests.support.daemons import DaemonProcess, RawClient, StartDaemon, table


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_with_code_0_and_nothing_stays(daemon: DaemonProcess, number: int) -> None:
    with daemon.connect() as client:
        client.create_tables([table()])
        assert len(daemon.left_behind()) == 4  # two segments, the lock, the socket
    daemon.signal(number)
    assert daemon.wait() == 0
    assert daemon.left_behind() == []
    assert "dropping all 1 tables" in daemon.log()


def test_shutdown_over_the_socket_ends_it_and_answers_first(daemon: DaemonProcess) -> None:
    with daemon.connect() as client:
        client.create_tables([table()])
        client.shutdown()
        assert daemon.wait() == 0
    assert daemon.left_behind() == []


def test_a_second_daemon_of_the_same_instance_names_the_first_and_exits(
    daemon: DaemonProcess, make_daemon: StartDaemon
) -> None:
    second = make_daemon()
    second.instance = daemon.instance
    text = second.fail()
    assert f"instance {daemon.instance!r} already has a daemon, pid {daemon.pid}" in text
    assert "Traceback" not in text
    with daemon.connect() as client:
        assert client.tables() == {}


@pytest.mark.long
def test_two_instances_live_side_by_side(make_daemon: StartDaemon) -> None:
    first, second = make_daemon().start(), make_daemon().start()
    with first.connect() as one, second.connect() as two:
        one.create_tables([table("a")])
        two.create_tables([table("a", max_size=7), table("b")])
        assert sorted(one.tables()) == ["a"]
        assert sorted(two.tables()) == ["a", "b"]
    assert first.stop() == 0
    with second.connect() as two:
        assert sorted(two.tables()) == ["a", "b"]


def test_a_killed_daemon_leaves_its_tables_to_the_next_one(daemon: DaemonProcess) -> None:
    tables = [table("a"), sr.Table.queue("b", {"x": sr.ArraySpec((2,), "int64")}, 5)]
    with daemon.connect() as client:
        client.create_tables(tables)
        before = daemon.segments()
        assert len(before) == 4
    daemon.kill()
    assert daemon.segments() == before
    daemon.start()
    with daemon.connect() as client:
        assert {name: entry["spec"] for name, entry in client.tables().items()} == {t.name: t for t in tables}
        client.create_tables(tables)
        with pytest.raises(ValueError, match="table 'a' exists with other specs: max_size: is 1000, asked for 7"):
            client.create_tables([table("a", max_size=7)])
    assert daemon.segments() == before
    assert daemon.stop() == 0
    assert daemon.left_behind() == []


@pytest.mark.long
def test_cycles_of_start_and_kill_leave_shared_memory_as_it_was(make_daemon: StartDaemon) -> None:
    daemon = make_daemon()
    for _ in range(10):
        daemon.start()
        with daemon.connect() as client:
            client.create_tables([table()])
            assert list(client.tables()) == ["replay"]
        daemon.kill()
    assert len(daemon.left_behind()) == 4
    daemon.start()
    assert daemon.stop() == 0
    assert daemon.left_behind() == []


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_everything_is_private_by_default_whatever_the_umask(make_daemon: StartDaemon, umask: int) -> None:
    daemon = make_daemon().start(umask=umask)
    with daemon.connect() as client:
        client.create_tables([table()])
    paths = [name if name == daemon.socket else daemon.store.path(name) for name in daemon.left_behind()]
    assert {stat.S_IMODE(os.stat(path).st_mode) for path in paths} == {0o600}


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_a_group_gets_access_whatever_the_umask(make_daemon: StartDaemon, umask: int) -> None:
    group = os.getgid()
    daemon = make_daemon().start("--group", str(group), umask=umask)
    with daemon.connect() as client:
        client.create_tables([table()])
    for name in daemon.left_behind():
        status = os.stat(name if name == daemon.socket else daemon.store.path(name))
        if name.endswith(".lock"):
            assert stat.S_IMODE(status.st_mode) == 0o600
        else:
            assert (stat.S_IMODE(status.st_mode), status.st_gid) == (0o660, group)


# --- what lies there at the start ------------------------------------------------------------------------------------


def spoil(daemon: DaemonProcess, kind: str, offset: int, data: bytes) -> str:
    """Writes into a segment of a daemon that was killed; returns its path."""
    path = daemon.store.path(f"shmreplay.{daemon.instance}.replay.{kind}")
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)
    return path


@pytest.fixture
def killed(daemon: DaemonProcess) -> DaemonProcess:
    """A daemon that was killed and has left the table `replay`."""
    with daemon.connect() as client:
        client.create_tables([table()])
    daemon.kill()
    return daemon


@pytest.mark.long
def test_segments_that_do_not_fit_are_named_and_left_alone_until_discard(killed: DaemonProcess) -> None:
    path = spoil(killed, "index", 0, b"\xff" * 64)
    killed.start()
    assert "arena 'replay' is not taken over" in killed.log()
    assert "--discard" in killed.log()
    with open(path, "rb") as file:
        assert file.read(64) == b"\xff" * 64
    with killed.connect() as client:
        assert client.tables() == {}
        with pytest.raises(sr.ShmReplayError, match=r"exists already and was not adopted.*--discard"):
            client.create_tables([table()])
        client.create_tables([table("other")])
    assert killed.stop() == 0
    assert os.path.exists(path)
    killed.start("--discard")
    assert not os.path.exists(path)
    with killed.connect() as client:
        client.create_tables([table()])


@pytest.mark.parametrize("name", ["a b", "é", "", "x" * 70, "\udcff"])
@pytest.mark.one_quick
def test_a_file_with_an_impossible_arena_name_does_not_stop_the_daemon(killed: DaemonProcess, name: str) -> None:
    """Anybody may put such a thing into /dev/shm."""
    path = killed.store.path(f"shmreplay.{killed.instance}.{name}.index")
    with open(path, "wb"):
        killed.start()
    with killed.connect() as client:
        assert list(client.tables()) == ["replay"]
    assert killed.stop() == 0
    assert os.path.exists(path)


def test_what_discard_cannot_remove_is_named_and_the_others_are_taken_over(killed: DaemonProcess) -> None:
    path = killed.store.path(f"shmreplay.{killed.instance}.other.data")
    os.mkdir(path)
    try:
        killed.start("--discard")
        reason = f"arena 'other' is left alone: segment {path} cannot be removed: [Errno 21] Is a directory"
        assert reason in killed.log()
        with killed.connect() as client:
            assert list(client.tables()) == ["replay"]
    finally:
        os.rmdir(path)


def test_a_segment_open_to_everybody_is_not_adopted(killed: DaemonProcess) -> None:
    os.chmod(killed.store.path(f"shmreplay.{killed.instance}.replay.data"), 0o666)
    killed.start()
    assert "has mode 0666: anybody may have changed it" in killed.log()


@pytest.mark.parametrize("kind", ["index", "data"])
def test_a_truncated_segment_is_not_adopted(killed: DaemonProcess, kind: str) -> None:
    os.truncate(killed.store.path(f"shmreplay.{killed.instance}.replay.{kind}"), 0)
    killed.start()
    assert "arena 'replay' is not taken over" in killed.log()


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a file to another user takes root")
def test_a_segment_of_another_user_is_not_adopted(killed: DaemonProcess) -> None:
    os.chown(killed.store.path(f"shmreplay.{killed.instance}.replay.data"), 65534, -1)
    killed.start()
    assert "belongs to uid 65534, and this daemon runs as 0" in killed.log()


def test_an_arena_of_another_instance_is_not_adopted(killed: DaemonProcess, make_daemon: StartDaemon) -> None:
    other = make_daemon()
    for kind in ("index", "data"):
        os.rename(
            killed.store.path(f"shmreplay.{killed.instance}.replay.{kind}"),
            other.store.path(f"shmreplay.{other.instance}.replay.{kind}"),
        )
    other.start()
    assert f"its instance is {killed.instance}, expected {other.instance}" in other.log()


def test_remains_of_a_creation_or_removal_that_was_killed_are_removed(make_daemon: StartDaemon) -> None:
    daemon = make_daemon()
    for name, size in (("a.index", 0), ("b.index", 8192), ("c.index", 8192), ("c.data", 4096), ("d.data", 4096)):
        path = daemon.store.path(f"shmreplay.{daemon.instance}.{name}")
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
        os.truncate(path, size)
    daemon.start()
    assert daemon.segments() == {}


def test_a_stale_socket_is_replaced_and_one_in_use_is_not(killed: DaemonProcess, make_daemon: StartDaemon) -> None:
    assert stat.S_ISSOCK(os.stat(killed.socket).st_mode)
    killed.start()
    other = make_daemon()
    other.socket = killed.socket
    assert f"another daemon listens at {killed.socket}" in other.fail()
    with killed.connect() as client:
        assert list(client.tables()) == ["replay"]


def test_a_file_where_the_socket_should_be_is_left_alone(make_daemon: StartDaemon) -> None:
    daemon = make_daemon()
    path = pathlib.Path(daemon.socket)
    path.write_text("precious")
    assert "another kind of file is there" in daemon.fail()
    assert path.read_text() == "precious"


@pytest.mark.long
def test_a_daemon_that_cannot_start_leaves_the_tables_to_the_next_one(killed: DaemonProcess) -> None:
    before = killed.segments()
    path, killed.socket = killed.socket, "/proc/1/nowhere/control.sock"
    assert "cannot make the socket's directory" in killed.fail()
    killed.socket = path
    os.unlink(path)
    os.mkdir(path)
    assert "another kind of file is there" in killed.fail()
    os.rmdir(path)
    killed.start()
    with killed.connect() as client:
        assert list(client.tables()) == ["replay"]
    assert killed.segments() == before


def test_the_socket_of_a_successor_is_not_removed(daemon: DaemonProcess) -> None:
    os.unlink(daemon.socket)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as successor:
        successor.bind(daemon.socket)
        assert daemon.stop() == 0
        assert os.path.exists(daemon.socket)


def test_a_link_in_the_place_of_the_lock_is_not_followed(make_daemon: StartDaemon, tmp_path: pathlib.Path) -> None:
    daemon = make_daemon()
    target = tmp_path / "target"
    target.write_text("precious")
    os.symlink(target, daemon.store.path(f"shmreplay.{daemon.instance}.lock"))
    assert "cannot be opened" in daemon.fail()
    assert target.read_text() == "precious"


# A reset that never comes back, as when the holder of an arena's lock is stopped.
STUCK = """
import sys, threading
from shmreplay.daemon.main import main
from shmreplay.daemon.arenas.registry import Registry
async def on_table(self, *arguments):
    await self._workers.run(threading.Event().wait)
Registry.on_table = on_table
sys.exit(main())
"""


def test_it_ends_although_a_thread_of_it_is_stuck_in_an_arena(make_daemon: StartDaemon) -> None:
    daemon = make_daemon().start(source=STUCK)
    with daemon.connect() as client, RawClient(daemon.socket) as raw:
        client.create_tables([table()])
        raw.hello()
        assert raw.ask({"command": "reset", "table": "replay"}) == {
            "progress": "waiting for earlier calls on arena 'replay'"
        }
        assert list(client.tables()) == ["replay"]  # the others are served
        assert daemon.stop() == 0
    assert daemon.left_behind() == []


# --- the command line ------------------------------------------------------------------------------------------------


def shmreplayd(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "shmreplay.daemon", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")


def test_the_version_is_printed() -> None:
    ran = shmreplayd("--version")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("shmreplayd ")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--group", "no-such-group"], "no such group on this machine"),
        (["--instance", "a.b"], "instance name 'a.b': expected 1 to 64 of the characters"),
        (["--socket", "/" + "x" * 200], "Linux allows 107"),
        (["--embedded"], "--embedded needs --parent-pid"),
    ],
)
def test_flags_that_cannot_be_are_a_usage_error(arguments: list[str], reason: str) -> None:
    ran = shmreplayd(*arguments)
    assert ran.returncode == 2
    assert reason in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_directory_on_a_disk_or_missing_is_refused(make_daemon: StartDaemon) -> None:
    assert "/nowhere does not exist" in make_daemon().fail("--directory", "/nowhere")

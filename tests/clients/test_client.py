"""Clients over the control socket: waiting for a daemon, losing it, finding it again, threads, Ctrl-C, being closed."""

import errno
import os
import pathlib
import signal
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.base.process_names import name_this_process, process_name
from shmreplay.clients.link import connection
from shmreplay.clients.link.connection import RequestTimeout
from shmreplay.protocol import Deadline, pack, receive_message
from tests.support.daemons import DaemonProcess, Run, StartDaemon, is_asleep, table
from tests.support.waiting import WAIT_S, eventually


def test_no_daemon_is_an_error_with_path_cause_and_remedy(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "none.sock")
    with pytest.raises(sr.DaemonUnavailable) as raised:
        sr.connect(path, timeout_s=0.01)
    text = str(raised.value)
    assert f"no shmreplayd answered within 0.01 s ({path}: No such file or directory)" in text
    assert f"start one with `shmreplayd --socket {path}`" in text
    assert "sr.Server" in text


def test_a_wait_for_a_daemon_is_told_after_a_second(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LOG_CONNECTING_AFTER_S", 0.0)
    path = str(tmp_path / "none.sock")
    with pytest.raises(sr.DaemonUnavailable):
        sr.connect(path, timeout_s=0.5)
    [said] = [record.getMessage() for record in caplog.records]
    assert said == (
        f"no shmreplayd answers yet ({path}: No such file or directory); waiting for up to 0.5 s (timeout_s)"
    )


def test_a_wait_for_a_daemon_that_says_nothing_is_told_too(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LOG_CONNECTING_AFTER_S", 0.0)
    path = str(tmp_path / "mute.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as mute:
        mute.bind(path)
        mute.listen()
        with pytest.raises(sr.DaemonUnavailable, match="has a socket but said nothing"):
            sr.connect(path, timeout_s=0.5)
    [said] = [record.getMessage() for record in caplog.records]
    assert said == f"the shmreplayd at {path} has a socket, but says nothing yet; waiting for up to 0.5 s (timeout_s)"


def test_a_directory_is_no_address(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=f"address '{tmp_path}' is a directory; give the path of the socket in it"):
        sr.connect(str(tmp_path))


def test_a_socket_that_nobody_listens_at_is_no_daemon(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "dead.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(path)
    with pytest.raises(sr.DaemonUnavailable, match="Connection refused"):
        sr.connect(path, timeout_s=0)


def test_a_client_has_the_name_that_it_is_given(make_daemon: StartDaemon) -> None:
    daemon = make_daemon().start()
    before = process_name(os.getpid())
    try:
        with sr.connect(daemon.socket, name="actor-3") as client:
            client.create_tables([table("named")])
            client.table("named").insert({"x": np.ones(3, np.float32), "n": 1})
            [session] = client.stats()["arenas"]["named"]["sessions"]
            assert session["name"] == "actor-3"
    finally:
        name_this_process(before[:15])


def test_a_kernel_that_takes_no_name_is_told_of_and_stops_nobody(
    make_daemon: StartDaemon, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(name: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("shmreplay.clients.client.name_this_process", refuse)
    daemon = make_daemon().start()
    with sr.connect(daemon.socket, name="actor-3") as client:
        assert client.tables() == {}
    assert "this process is not shown as 'actor-3': /proc/self/comm: Permission denied" in caplog.text


def test_every_default_place_is_tried_and_named(monkeypatch: pytest.MonkeyPatch, make_daemon: StartDaemon) -> None:
    daemon = make_daemon()
    folder = os.path.dirname(daemon.socket)
    monkeypatch.delenv("SHMREPLAY_SOCKET", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
    with pytest.raises(
        sr.DaemonUnavailable, match=rf"{folder}/shmreplay/default.sock: .*; /run/shmreplay/default.sock: "
    ):
        sr.connect(timeout_s=0)
    daemon.socket = os.path.join(folder, "shmreplay", "default.sock")
    daemon.start()
    assert os.stat(os.path.dirname(daemon.socket)).st_mode & 0o777 == 0o700
    with sr.connect() as client:
        assert client.address == daemon.socket
    monkeypatch.setenv("SHMREPLAY_SOCKET", f"unix:{folder}/none")
    with pytest.raises(sr.DaemonUnavailable, match=f"{folder}/none"):
        sr.connect(timeout_s=0)


def test_connect_waits_for_a_daemon_that_is_starting(make_daemon: StartDaemon) -> None:
    daemon = make_daemon()
    found: list[sr.Client] = []
    waiting = threading.Thread(target=lambda: found.append(daemon.connect()))
    waiting.start()
    daemon.start()
    waiting.join()
    with found[0] as client:
        assert client.tables() == {}


def test_calls_find_a_daemon_that_was_restarted(daemon: DaemonProcess) -> None:
    with daemon.connect() as client:
        client.create_tables([table()])
        attachment = client._attach("replay")
        for _ in range(3):
            daemon.kill()
            daemon.start()
            assert list(client.tables()) == ["replay"]
            client.create_tables([table()])
        daemon.kill()
        daemon.start()
        # The segments are the same and so is the session: nothing is mapped twice.
        assert client._attach("replay", refresh=True).arena is attachment.arena


def test_a_call_waits_for_a_daemon_that_is_being_restarted(daemon: DaemonProcess) -> None:
    with daemon.connect() as client:
        daemon.kill()
        found: list[object] = []
        waiting = threading.Thread(target=lambda: found.append(client.tables()))
        waiting.start()
        daemon.start()
        waiting.join()
        assert found == [{}]


def test_a_call_without_a_daemon_is_an_error_after_the_clients_timeout(daemon: DaemonProcess) -> None:
    with daemon.connect() as client:
        client.connection.timeout_s = 0.05  # not before: a busy daemon may take longer to say hello
        assert daemon.stop() == 0
        with pytest.raises(sr.DaemonUnavailable, match=r"within 0\.05 s"):
            client.tables()


def test_closing_without_a_daemon_does_not_wait_and_raises_nothing(daemon: DaemonProcess) -> None:
    client = sr.connect(daemon.socket, timeout_s=None)
    client.create_tables([table()])
    client._attach("replay")
    daemon.kill()
    client.close()
    client.close()


def test_a_closed_client_refuses_every_call_and_says_so(daemon: DaemonProcess) -> None:
    client = daemon.connect()
    client.close()
    assert client.is_closed
    calls: list[Callable[[], object]] = [
        client.tables,
        client.stats,
        client.shutdown,
        client.checkpoint,
        lambda: client.create_tables([table()]),
        lambda: client.drop_table("replay"),
        lambda: client._attach("replay"),
        lambda: client.reset("replay"),
    ]
    for call in calls:
        with pytest.raises(sr.ShmReplayError, match=f"the client of {daemon.socket} is closed"):
            call()


def test_a_daemon_without_a_directory_saves_no_checkpoint(client: sr.Client) -> None:
    with pytest.raises(sr.CheckpointFailed, match=r"start shmreplayd with --checkpoint-dir DIR, or sr\.Server with"):
        client.checkpoint()


def test_only_tables_can_be_created(client: sr.Client) -> None:
    with pytest.raises(TypeError, match=r"expected shmreplay.Table, got str"):
        client.create_tables(["replay"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"create_tables: expected a list of Tables, got a Table; write \[table\]"):
        client.create_tables(table())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one table"):
        client.create_tables([])


def test_arguments_of_other_types_are_refused_before_the_daemon_hears_of_them(client: sr.Client) -> None:
    limiter = sr.rate_limiters.MinSize(1)
    calls: list[Callable[[Any], object]] = [
        client.table,
        client.drop_table,
        client.reset,
        client.pause,
        client.resume,
        lambda name: client.set_rate_limiter(name, limiter),
    ]
    for call in calls:
        for name in (None, 3):
            with pytest.raises(TypeError, match=f"the table's name is {name}; expected a str"):
                call(name)
    with pytest.raises(TypeError, match=r"table 'a': expected a rate limiter of shmreplay.rate_limiters, got 'x'"):
        client.set_rate_limiter("a", "x")  # type: ignore[arg-type]
    for timed in (client.create_tables, lambda tables, timeout_s: client.drop_table("a", timeout_s)):
        with pytest.raises(ValueError, match="timeout_s is -1; expected seconds >= 0"):
            timed([table()], timeout_s=-1)
    assert client.tables() == {}


@pytest.mark.parametrize("timeout_s", [-1, float("nan")])
def test_a_timeout_must_be_seconds(timeout_s: float) -> None:
    with pytest.raises(ValueError, match="expected seconds >= 0"):
        sr.connect("/x", timeout_s=timeout_s)


def test_threads_share_a_client(client: sr.Client) -> None:
    names = [f"t{i}" for i in range(8)]

    def work(name: str) -> None:
        for _ in range(5):
            client.create_tables([table(name)])
            assert client._attach(name).table.name == name
            assert name in client.tables()
            client.drop_table(name)

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(work, names))
    assert client.tables() == {}


def test_the_first_process_creates_the_tables_and_one_that_did_not_try_is_told_to(daemon: DaemonProcess) -> None:
    with daemon.connect() as learner, daemon.connect() as actor:
        with pytest.raises(sr.TableNotFound) as raised:
            learner.table("replay")
        assert str(raised.value) == (
            "there is no table 'replay'; there are: none; call create_tables([...]) first, in every process: the "
            "first call creates the tables, later calls do nothing"
        )
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda client: client.create_tables([table()]), (learner, actor)))
        assert learner.table("replay").spec == actor.table("replay").spec == table()


def test_commands_reach_the_table(client: sr.Client) -> None:
    client.create_tables([table()])
    client.set_rate_limiter("replay", sr.rate_limiters.SampleToInsertRatio(4.0, 10, 8.0), rebase=True)
    client.pause("replay", samples=False)
    client.resume("replay", timeout_s=5)
    client.reset("replay", timeout_s=5)
    for call in (client.reset, client.pause, client.resume, client.drop_table):
        with pytest.raises(sr.TableNotFound, match=r"there is no table 'other'; there are: replay"):
            call("other")


def test_a_dropped_table_is_gone_and_can_be_made_anew_with_other_specs(
    daemon: DaemonProcess, client: sr.Client
) -> None:
    client.create_tables([table()])
    old = client._attach("replay")
    client.drop_table("replay")
    assert client.tables() == {}
    assert daemon.segments() == {}
    with pytest.raises(sr.TableNotFound):
        client._attach("replay")
    client.create_tables([table(max_size=7)])
    new = client._attach("replay")
    assert new.arena is not old.arena
    assert new.table.max_size == 7


def test_a_dropped_tables_memory_is_unmapped_when_its_last_handle_has_gone(
    daemon: DaemonProcess, client: sr.Client
) -> None:
    client.create_tables([table()])
    attachment = client._attach("replay")
    assert mapped_segments(daemon) > 0
    client.drop_table("replay")
    del attachment
    assert mapped_segments(daemon) == 0


def mapped_segments(daemon: DaemonProcess) -> int:
    """Mappings and open files of the daemon's segments in this process."""
    stem = f"/dev/shm/shmreplay.{daemon.instance}."
    with open("/proc/self/maps", encoding="utf-8") as file:
        mapped = sum(stem in line for line in file)
    links = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    return mapped + sum(stem in os.readlink(link) for link in links if os.path.islink(link))


# --- a daemon that does not answer -----------------------------------------------------------------------------------


def test_a_daemon_that_says_nothing_is_an_error_at_connect(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "mute.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as mute:
        mute.bind(path)
        mute.listen()
        with pytest.raises(sr.DaemonUnavailable, match=r"has a socket but said nothing for 1 s; is it stopped"):
            sr.connect(path, timeout_s=0.1)


def test_a_request_that_takes_longer_than_its_timeout_says_how_far_it_is(
    tmp_path: pathlib.Path,
) -> None:
    """Against a daemon made of a thread, which reports progress and never ends."""
    path = str(tmp_path / "slow.sock")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen()

    def serve() -> None:
        served, _ = listener.accept()
        with served:
            receive_message(served, Deadline(WAIT_S))
            served.sendall(pack({"ok": True, "uid": os.geteuid()}))
            receive_message(served, Deadline(WAIT_S))
            served.sendall(pack({"progress": "3 of 9 GiB"}))
            served.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    client = sr.connect(path, timeout_s=WAIT_S)
    with pytest.raises(RequestTimeout, match=r"create_tables did not finish within 3 s \(3 of 9 GiB\)") as raised:
        client.create_tables([table()], timeout_s=3)  # long enough for the thread to be heard on a busy machine
    assert isinstance(raised.value, TimeoutError)
    thread.join()  # the client hung up: a late answer would have been taken for the next one
    listener.close()


def test_a_stopped_daemon_is_waited_for(daemon: DaemonProcess, client: sr.Client) -> None:
    daemon.signal(signal.SIGSTOP)
    found: list[object] = []
    waiting = threading.Thread(target=lambda: found.append(client.tables()))
    waiting.start()
    daemon.signal(signal.SIGCONT)
    waiting.join()
    assert found == [{}]


@pytest.mark.parametrize(
    "waiting",
    [
        "sr.connect('/nowhere/none.sock', timeout_s=None)",
        "sr.connect(sys.argv[1]).tables()",
        "sr.connect(sys.argv[1], timeout_s=None)",
    ],
)
@pytest.mark.one_quick
def test_ctrl_c_ends_every_wait(daemon: DaemonProcess, run_script: Run, waiting: str) -> None:
    daemon.signal(signal.SIGSTOP)  # connections are still taken by the kernel, and nobody answers
    script = run_script(
        "import sys\n"
        "import shmreplay as sr\n"
        "print('waiting', flush=True)\n"
        "try:\n"
        f"    {waiting}\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n",
        daemon.socket,
    )
    script.line()
    eventually(lambda: is_asleep(script.pid))
    os.kill(script.pid, signal.SIGINT)
    assert script.finish() == (0, "interrupted\n", "")
    daemon.signal(signal.SIGCONT)


def test_after_a_ctrl_c_the_client_goes_on_with_a_fresh_connection(
    daemon: DaemonProcess, client: sr.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> object:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("shmreplay.clients.link.connection.receive_message", interrupted)
        with pytest.raises(KeyboardInterrupt):
            client.stats()
    # The answer to stats was never read; it must not be taken for this one.
    assert client.tables() == {}


def test_a_process_without_descriptors_is_told_so_and_goes_on_when_it_has_some(
    daemon: DaemonProcess, client: sr.Client, run_script: Run
) -> None:
    client.create_tables([table()])
    script = run_script(
        """
import os, resource, sys
import shmreplay as sr
client = sr.connect(sys.argv[1])
spare = os.open("/dev/null", os.O_RDONLY)
os.close(spare)
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
for left in (1, 2):
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare + left, hard))
    try:
        client.table("replay")
    except (sr.ShmReplayError, OSError) as error:
        print(type(error).__name__, error)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
print(len(client.table("replay")))
""",
        daemon.socket,
    )
    code, out, err = script.finish()
    assert (code, err) == (0, "")
    cut_off, at_the_last, rows = out.splitlines()
    assert "1 of 2 file descriptors arrived: this process has no more (ulimit -n)" in cut_off
    assert at_the_last.startswith("OSError [Errno 24] /proc/sys/kernel/random/boot_id cannot be read (process ")
    assert "raise ulimit -n" in at_the_last
    assert rows == "0"


def test_a_process_without_address_space_is_told_which_limit_it_is(
    daemon: DaemonProcess, client: sr.Client, run_script: Run
) -> None:
    """The class of the error does not say that the table is damaged: nothing is wrong with it."""
    client.create_tables([table(max_size=100_000)])
    script = run_script(
        """
import resource, sys
import shmreplay as sr
client = sr.connect(sys.argv[1])
pages = int(open("/proc/self/statm").read().split()[0])
_, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**20, hard))
try:
    client.table("replay")
except OSError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
print(len(client.table("replay")))
""",
        daemon.socket,
    )
    code, out, err = script.finish()
    assert (code, err) == (0, "")
    refused, rows = out.splitlines()
    assert refused.startswith("[Errno 12] ")
    assert "segment: its " in refused
    assert "bytes: raise ulimit -v, or LimitAS= of its unit)" in refused
    assert rows == "0"


def test_a_client_of_a_damaged_arena_closes_and_gives_the_others_their_sessions_back(daemon: DaemonProcess) -> None:
    with sr.connect(daemon.socket) as other, sr.connect(daemon.socket) as client:
        other.create_tables([table("broken"), table("whole")])
        client.table("broken").insert({"x": np.zeros(3, np.float32), "n": 1})
        client.table("whole").insert({"x": np.zeros(3, np.float32), "n": 1})
        segment = daemon.store.path(next(name for name in daemon.segments() if name.endswith("broken.index")))
        with open(segment, "r+b") as index:
            size = os.fstat(index.fileno()).st_size
            index.seek(size // 2)
            index.write(b"\xa5" * (size - size // 2))
        with pytest.raises(sr.SegmentFailed):
            client.table("broken").sample(1, timeout_s=1)
        client.close()
        assert other.stats()["arenas"]["whole"]["sessions"] == []

"""The embedded daemon: it lives as long as the process that made it, and leaves nothing, however that process ends."""

import gc
import multiprocessing
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import numpy as np
import pytest

import shmreplay as sr
from tests.support.daemons import RawClient, Run, Script, table, wait_for_end
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("nothing_left_by_this_test")

SERVE = """
import os, sys
import numpy as np
import shmreplay as sr
server = sr.Server(tables=[sr.Table("replay", {"x": np.zeros(3, np.float32)}, 1000, max_streams=8)])
print(server.pid, server.address, flush=True)
"""

WAIT_FOR_AN_ITEM = """
import sys
import shmreplay as sr
table = sr.connect(sys.argv[1]).table("replay")
print("up", flush=True)
try:
    table.sample(1)
except sr.TableClosed as error:
    print(error, flush=True)
"""


def serve(run: Run, source: str = "input()") -> tuple[Script, int, str]:
    """A process with a server, the daemon's pid and address."""
    script = run(SERVE + source)
    pid, address = script.line().split()
    return script, int(pid), address


def assert_gone(pid: int, address: str) -> None:
    """The daemon ends, and socket and directory with it; the fixture looks for segments."""
    wait_for_end(pid)
    assert not os.path.exists(os.path.dirname(address))


def test_it_serves_its_tables_until_it_is_closed() -> None:
    with sr.Server(tables=[table("a"), table("b")]) as server:
        pid, address = server.pid, server.address
        assert os.stat(os.path.dirname(address)).st_mode & 0o777 == 0o700
        with server.client() as client, sr.connect(f"unix:{address}") as other:
            assert sorted(client.tables()) == sorted(other.tables()) == ["a", "b"]
    assert_gone(pid, address)
    server.close()
    with pytest.raises(sr.ShmReplayError, match="the server is closed"):
        server.client()
    assert repr(server) == f"<shmreplay.Server {address} closed>"


@pytest.mark.long
def test_a_cell_that_is_run_again_replaces_its_server() -> None:
    ended = []
    for _ in range(3):
        server = sr.Server(tables=[table()])
        ended.append((server.pid, server.address))
        with server.client() as client:
            assert list(client.tables()) == ["replay"]
    del server
    gc.collect()
    assert len(set(ended)) == 3
    for pid, address in ended:
        assert_gone(pid, address)


def test_two_servers_live_in_one_process() -> None:
    one, two = sr.Server(tables=[table()]), sr.Server(tables=[table(max_size=7)])
    with one, two, one.client() as client, two.client() as other:
        assert client.tables()["replay"]["spec"].max_size == 1000
        assert other.tables()["replay"]["spec"].max_size == 7
        one.close()
        assert list(other.tables()) == ["replay"]


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("", 0),
        ("raise SystemExit(3)", 3),
        ("os._exit(4)", 4),
        ("os.kill(os.getpid(), 9)", -signal.SIGKILL),
        ("os.kill(os.getpid(), 15)", -signal.SIGTERM),
        ("raise ValueError('oops')", 1),
        ("os.abort()", -signal.SIGABRT),
    ],
)
@pytest.mark.one_quick
def test_it_ends_with_its_parent_however_that_ends(run_script: Run, ending: str, code: int) -> None:
    script, pid, address = serve(run_script, ending)
    assert script.finish()[0] == code
    assert_gone(pid, address)


def test_it_ends_with_a_parent_that_is_killed_while_actors_use_it(run_script: Run) -> None:
    """The actors stay; what they have mapped stays theirs, its names are gone."""
    script, pid, address = serve(run_script)
    actor = run_script(
        "import sys, shmreplay as sr\n"
        "client = sr.connect(sys.argv[1])\n"
        "client._attach('replay')\n"
        "print('attached', flush=True)\n"
        "input()\n",
        address,
    )
    assert actor.line() == "attached"
    os.kill(script.pid, signal.SIGKILL)
    assert_gone(pid, address)
    assert actor.process.poll() is None
    actor.say()
    assert actor.finish()[0] == 0


@pytest.mark.long
def test_it_ends_with_a_parent_that_is_killed_while_the_daemon_starts(run_script: Run) -> None:
    script = run_script(
        """
import os, subprocess
import shmreplay.clients.server as server
real = subprocess.Popen
def popen(*args, **options):
    process = real(*args, **options)
    print(process.pid, flush=True)
    os.kill(os.getpid(), 9)
subprocess.Popen = popen
server.Server()
"""
    )
    wait_for_end(int(script.line()))
    assert script.finish()[0] == -signal.SIGKILL


def test_the_end_of_the_thread_that_made_it_is_not_the_end_of_the_process() -> None:
    made: list[sr.Server] = []
    thread = threading.Thread(target=lambda: made.append(sr.Server(tables=[table()])))
    thread.start()
    thread.join()
    with made[0] as server, server.client() as client:
        assert list(client.tables()) == ["replay"]


@pytest.mark.parametrize(
    "ending", ["os._exit(0)", "sys.exit(0)", "server.close(); os._exit(0)", "del server; os._exit(0)"]
)
@pytest.mark.one_quick
def test_a_forked_child_that_ends_does_not_take_it_along(run_script: Run, ending: str) -> None:
    script, pid, _ = serve(
        run_script,
        f"""
child = os.fork()
if child == 0:
    {ending}
assert os.waitpid(child, 0)[1] == 0
with server.client() as client:
    print(list(client.tables()), flush=True)
""",
    )
    assert script.line() == "['replay']"
    code, _, err = script.finish()
    assert (code, err) == (0, "")
    wait_for_end(pid)


def test_it_is_out_of_reach_of_a_ctrl_c_at_the_terminal() -> None:
    with sr.Server() as server:
        assert os.getsid(server.pid) != os.getsid(0)
        assert os.getpgid(server.pid) != os.getpgid(0)


# The first two are sent below; what the processor raises means a fault of the daemon itself.
MEANT_FOR_THE_JOB = sorted(
    signal.valid_signals()
    - {signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP}
    - {signal.SIGSYS}
)


def test_signals_for_the_whole_job_do_not_end_it() -> None:
    """A batch system sends them to each process of the job; a handler of the learner may want to save."""
    with sr.Server(tables=[table()]) as server, server.client() as client:
        for number in MEANT_FOR_THE_JOB:
            os.kill(server.pid, number)
        client.table("replay").insert({"x": np.zeros(3, np.float32), "n": 7})
        for number in (signal.SIGSTOP, signal.SIGCONT):
            os.kill(server.pid, number)
        assert client.table("replay").info().size == 1
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
    assert_gone(server.pid, server.address)


def test_a_learner_saves_in_its_handler_while_its_whole_job_is_ended(run_script: Run, tmp_path: pathlib.Path) -> None:
    script = run_script(
        """
import os, signal, sys
import numpy as np
import shmreplay as sr
with sr.Server(tables=[sr.Table("replay", {"x": np.zeros(3, np.float32)}, 1000)], checkpoint_dir=sys.argv[1]) as server:
    client = server.client()
    client.table("replay").insert({"x": np.zeros(3, np.float32)})
    def save(number, frame):
        print(client.checkpoint(), flush=True)
        sys.exit(0)
    signal.signal(signal.SIGTERM, save)
    print(server.pid, server.address, flush=True)
    while True:
        signal.pause()
""",
        str(tmp_path),
    )
    pid, address = script.line().split()
    for process in (int(pid), script.pid):  # the daemon first
        os.kill(process, signal.SIGTERM)
    assert os.path.exists(script.line())
    code, _, err = script.finish()
    assert (code, err) == (0, "")
    assert_gone(int(pid), address)


@pytest.mark.long
def test_signals_at_random_moments_of_its_start_do_not_end_it(rng: np.random.Generator, run_script: Run) -> None:
    for _ in range(8):
        script = run_script(
            """
import subprocess, sys, threading, time
import shmreplay.clients.server as server
real, delay_s = subprocess.Popen, float(sys.argv[1])
def popen(*args, **options):
    process = real(*args, **options)
    def disturb():
        time.sleep(delay_s)
        for number in (15, 2, 1, 10, 12, 3, 14):
            process.send_signal(number)
    threading.Thread(target=disturb, daemon=True).start()
    return process
subprocess.Popen = popen
with server.Server() as made, made.client() as client:
    print(client.tables(), flush=True)
""",
            str(rng.exponential(0.15)),
        )
        assert script.line() == "{}"
        code, _, err = script.finish()
        assert (code, err) == (0, "")


def test_a_parent_that_closes_all_its_descriptors_keeps_it(run_script: Run) -> None:
    script, pid, address = serve(
        run_script, "os.closerange(3, 100)\nprint(sr.connect(server.address).tables().keys(), flush=True)"
    )
    assert script.line() == "dict_keys(['replay'])"
    script.finish()
    assert_gone(pid, address)


def test_close_ends_a_daemon_that_cannot_be_asked_to_stop() -> None:
    server = sr.Server(tables=[table()])
    pid, address = server.pid, server.address
    os.close(server._daemon._stopper.fileno())  # as a program does that closes all descriptors
    server.close()
    assert_gone(pid, address)


def test_a_daemon_that_cannot_start_is_an_error_with_what_it_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'no luck today' >&2\nexit 7\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    with pytest.raises(sr.DaemonUnavailable, match=r"could not start \(exit code 7\): no luck today"):
        sr.Server()
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(sr.DaemonUnavailable, match=r"sys\.executable is empty"):
        sr.Server()
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(FileNotFoundError):
        sr.Server()


def test_a_daemon_that_refuses_to_start_says_why_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/proc/nowhere")
    with pytest.raises(sr.DaemonUnavailable, match=r"exit code 1.*cannot make the socket's directory"):
        sr.Server()


def test_a_daemon_that_never_gets_ready_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    pid_file = tmp_path / "pid"
    hanging = tmp_path / "python"
    hanging.write_text(f"#!/bin/sh\necho $$ > {pid_file}\necho 'thinking' >&2\nexec sleep 1000\n")
    hanging.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(hanging))
    with pytest.raises(sr.DaemonUnavailable, match=r"did not start within 0\.5 s"):
        sr.Server(timeout_s=0.5)
    wait_for_end(int(pid_file.read_text()))


def test_tables_that_cannot_be_created_end_it_again() -> None:
    with pytest.raises(ValueError, match="given twice"):
        sr.Server(tables=[table(), table()])
    with pytest.raises(sr.ShmReplayError, match="needs"):
        sr.Server(tables=[table(max_size=2**31 - 2, item_steps=1000)])


def test_a_table_that_is_in_no_list_is_refused_before_a_daemon_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **options: pytest.fail("a daemon was started"))
    with pytest.raises(TypeError, match=r"Server: expected a list of Tables, got a Table; write \[table\]"):
        sr.Server(table())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Server: expected shmreplay\.Table, got str"):
        sr.Server(["replay"])  # type: ignore[list-item]


def test_it_is_not_pickled_but_its_client_is() -> None:
    with sr.Server(tables=[table()]) as server:
        with pytest.raises(TypeError, match=r"a Server cannot be pickled; pass server.address, or server.client\(\)"):
            pickle.dumps(server)
        with server.client() as client, pickle.loads(pickle.dumps(client)) as other:
            assert list(other.tables()) == ["replay"]


def test_a_call_after_the_end_is_refused_at_once() -> None:
    with sr.Server(tables=[table()]) as server:
        client = sr.connect(server.address, timeout_s=None)
    ended = f"the sr.Server at this address has ended \\({server.address}\\)"
    with pytest.raises(sr.DaemonUnavailable, match=ended):
        sr.connect(server.address, timeout_s=None)  # would wait for ever
    with pytest.raises(sr.DaemonUnavailable, match=ended):
        client.tables()
    client.close()


def test_closing_cleans_up_after_a_daemon_that_was_killed() -> None:
    server = sr.Server(tables=[table()])
    os.kill(server.pid, signal.SIGKILL)
    wait_for_end(server.pid)
    server.close()
    assert_gone(server.pid, server.address)


def test_the_next_server_removes_what_one_left_that_was_killed_with_its_parent(run_script: Run) -> None:
    script, pid, address = serve(run_script)
    os.kill(pid, signal.SIGSTOP)  # or it would clean up when its parent dies
    os.kill(script.pid, signal.SIGKILL)
    script.finish()
    os.kill(pid, signal.SIGKILL)
    wait_for_end(pid)
    left = [name for name in os.listdir("/dev/shm") if f"embedded-{script.pid}-" in name]
    assert len(left) == 3
    with sr.Server():
        assert [name for name in os.listdir("/dev/shm") if f"embedded-{script.pid}-" in name] == []
    assert not os.path.exists(os.path.dirname(address))


def test_closing_frees_calls_blocked_in_the_tables_of_a_killed_daemon(run_script: Run) -> None:
    server = sr.Server(tables=[table()])
    actor = run_script(WAIT_FOR_AN_ITEM, server.address)
    assert actor.line() == "up"
    with server.client() as client:
        handle = client.table("replay")
        eventually(lambda: handle.info().blocked_samples == 1)
    os.kill(server.pid, signal.SIGKILL)
    wait_for_end(server.pid)
    server.close()
    assert actor.finish()[:2] == (0, "table 'replay': sample: the table was dropped, or its server was closed\n")


@pytest.mark.long
def test_the_next_server_frees_calls_blocked_in_the_tables_of_one_killed_with_its_parent(run_script: Run) -> None:
    script, pid, address = serve(run_script)
    actor = run_script(WAIT_FOR_AN_ITEM, address)
    assert actor.line() == "up"
    with sr.connect(address) as client:
        handle = client.table("replay")
        eventually(lambda: handle.info().blocked_samples == 1)
    os.kill(pid, signal.SIGSTOP)  # or it would clean up when its parent dies
    os.kill(script.pid, signal.SIGKILL)
    script.finish()
    os.kill(pid, signal.SIGKILL)
    wait_for_end(pid)
    with sr.Server():
        assert actor.finish()[:2] == (0, "table 'replay': sample: the table was dropped, or its server was closed\n")


def test_a_server_leaves_those_of_the_living_alone(run_script: Run) -> None:
    script, pid, address = serve(run_script)
    os.kill(pid, signal.SIGKILL)
    wait_for_end(pid)
    with sr.Server():
        assert len([name for name in os.listdir("/dev/shm") if f"embedded-{script.pid}-" in name]) == 3
    script.say()
    assert script.finish()[0] == 0  # its parent cleans up
    assert_gone(pid, address)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_server_starts_beside_a_lock_of_the_dead_that_is_no_file(make: Callable[[str], None]) -> None:
    """Anybody may put such a thing into /dev/shm."""
    path = "/dev/shm/shmreplay.embedded-999999999-abc.lock"  # above every pid there can be
    make(path)
    try:
        with sr.Server(timeout_s=10):
            pass
        assert os.path.exists(path)
    finally:
        os.rmdir(path) if os.path.isdir(path) else os.unlink(path)


def test_its_log_can_be_read() -> None:
    with sr.Server() as server:
        assert server.log() == "nothing"
        with RawClient(server.address) as raw:
            raw.sock.sendall(b"no message")
            assert raw.is_dropped()
        assert f"refused pid {os.getpid()}" in server.log()
    assert f"refused pid {os.getpid()}" in server.log()  # also when it is closed


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
@pytest.mark.one_quick
def test_processes_of_every_kind_use_a_client_that_is_handed_to_them(method: str) -> None:
    context = multiprocessing.get_context(method)
    with sr.Server(tables=[table()]) as server, server.client() as client:
        client._attach("replay")
        process: type[multiprocessing.Process] = context.Process  # type: ignore[attr-defined]
        workers = [process(target=client._attach, args=("replay",)) for _ in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(200)
            assert worker.exitcode == 0
        assert list(client.tables()) == ["replay"]
        eventually(lambda: len(client.stats()["arenas"]["replay"]["sessions"]) == 1)
        assert client.stats()["daemon"]["deaths"] == 3


def test_a_client_travels_as_its_address_alone() -> None:
    with sr.Server(tables=[table()]) as server, server.client() as client:
        client._attach("replay")
        packed = pickle.dumps(client)
        assert len(packed) < 300
        with pickle.loads(packed) as other:
            assert other.address == client.address
            assert list(other.tables()) == ["replay"]


@pytest.mark.long
def test_no_resource_tracker_is_involved_and_nothing_is_said(run_script: Run) -> None:
    script = run_script(
        SERVE
        + """
with server.client() as client:
    client._attach("replay")
from multiprocessing import resource_tracker
print(resource_tracker._resource_tracker._fd, flush=True)
"""
    )
    script.line()
    assert script.line() == "None"
    assert script.finish() == (0, "", "")


def test_a_file_in_the_working_directory_does_not_stand_in_for_a_module(
    run_script: Run, tmp_path: pathlib.Path
) -> None:
    for name in ("asyncio", "logging", "daemon", "clients", "shmreplay"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('the wrong file')\n")
    source = SERVE.replace("import os, sys", "import os, sys; sys.path = [p for p in sys.path if p]", 1)
    command = (
        [sys.executable, "-P", "-c", source] if sys.version_info >= (3, 11) else [sys.executable, "-I", "-c", source]
    )
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")

"""What systemd hears of a daemon, at a real datagram socket: ready, status, watchdog, reloading, stopping."""

import os
import pathlib
import signal
import socket
from collections.abc import Iterator

import pytest

import shmreplay as sr
from shmreplay.daemon.process.notify import Notifier
from tests.support.daemons import StartDaemon, table
from tests.support.waiting import WAIT_S, eventually


class Listener:
    """Stands for systemd: takes datagrams, and remembers them."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.settimeout(WAIT_S)
        self.name = address.replace("\0", "@")

    def message(self) -> dict[str, str]:
        """The next datagram."""
        lines = self.socket.recv(4096).decode().splitlines()
        return {name: value for name, _, value in (line.partition("=") for line in lines)}

    def until(self, name: str, value: str | None = None) -> list[dict[str, str]]:
        """The datagrams up to the first that has the name, and the value if one is given."""
        heard = [self.message()]
        while name not in heard[-1] or value not in (None, heard[-1][name]):
            heard.append(self.message())
        return heard

    def environment(self, watchdog_s: float | None = None) -> dict[str, str]:
        """What systemd would have in the environment of the service."""
        watchdog = {} if watchdog_s is None else {"WATCHDOG_USEC": str(int(watchdog_s * 1e6))}
        return {**os.environ, "NOTIFY_SOCKET": self.name, **watchdog}


@pytest.fixture(params=["path", "abstract"])
def address(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> str:
    return str(tmp_path / "notify") if request.param == "path" else f"\0shmreplay-test-{os.getpid()}"


@pytest.fixture
def systemd(tmp_path: pathlib.Path) -> Iterator[Listener]:
    listener = Listener(str(tmp_path / "notify"))
    yield listener
    listener.socket.close()


# Waits, with the loop free, in the step before clients are let in until the pipe is written to.
HELD_UP = """
import os, sys
from shmreplay.daemon import main
real = main.create_declared
async def create_declared(config, registry, *rest):
    await registry._workers.run(lambda: open(os.environ["SHMREPLAY_TEST_GATE"]).read())
    await real(config, registry, *rest)
main.create_declared = create_declared
sys.exit(main.main())
"""


def test_it_is_ready_when_clients_can_work_and_not_before(
    make_daemon: StartDaemon, systemd: Listener, tmp_path: pathlib.Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    daemon = make_daemon()
    env = {**systemd.environment(0.2), "SHMREPLAY_TEST_GATE": str(gate)}
    daemon._process = daemon.run(source=HELD_UP, env=env)
    heard = [systemd.message() for _ in range(3)]
    assert all("READY" not in message and message["EXTEND_TIMEOUT_USEC"] == "60000000" for message in heard)
    assert all(message["WATCHDOG"] == "1" for message in heard)
    assert heard[0]["STATUS"] == "starting"
    assert not os.path.exists(daemon.socket)
    gate.write_text("go")
    assert systemd.until("READY")[-1] == {"READY": "1", "STATUS": "0 tables in 0 B; 0 clients, 0 processes"}
    client = sr.connect(daemon.socket, timeout_s=0)  # at once
    client.create_tables([table()])
    client.close()
    assert "STATUS" in systemd.until("STATUS")[-1]
    assert daemon.stop() == 0
    assert "STOPPING" in systemd.until("STOPPING")[-1]


def test_the_status_tells_of_tables_clients_and_checkpoints(
    make_daemon: StartDaemon, systemd: Listener, tmp_path: pathlib.Path
) -> None:
    daemon = make_daemon().start("--checkpoint-dir", str(tmp_path / "saved"), env=systemd.environment(0.2))
    systemd.until("STATUS", "0 tables in 0 B; 0 clients, 0 processes")
    with daemon.connect() as client:
        with pytest.raises(sr.CheckpointFailed):
            client.checkpoint()
        said = "0 tables in 0 B; 1 client, 0 processes; NO CHECKPOINT: no checkpoint was saved: there are no tables"
        systemd.until("STATUS", said)
        client.create_tables([table()])
        client.table("replay")
        client.checkpoint()
        while not (said := systemd.until("STATUS")[-1]["STATUS"]).endswith("checkpoint of 0 min ago"):
            pass
        assert said.startswith("1 table in ")
        assert "; 1 client, 1 process; " in said


def test_the_watchdog_is_answered_by_the_loop_itself(make_daemon: StartDaemon, systemd: Listener) -> None:
    """A loop that hangs says nothing, though its threads go on: systemd would end the daemon."""
    source = """
import signal, sys, time
from shmreplay.daemon import main
def hang(*arguments):
    time.sleep(1000)
real = main.Daemon.stop
main.Daemon.stop = hang
sys.exit(main.main())
"""
    daemon = make_daemon().start(source=source, env=systemd.environment(0.2))
    systemd.until("READY")
    for _ in range(3):
        assert systemd.message()["WATCHDOG"] == "1"
    daemon.signal(signal.SIGTERM)
    systemd.socket.settimeout(1.0)  # five times what the watchdog allows
    with pytest.raises(TimeoutError):
        systemd.until("what no message has")
    daemon.kill()


def test_a_reload_is_told_of_from_its_beginning_to_its_end(
    make_daemon: StartDaemon, systemd: Listener, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "d.toml"
    path.write_text("", encoding="utf-8")
    daemon = make_daemon().start("--config", str(path), env=systemd.environment())
    systemd.until("READY")
    for text, said in (("[log]\nlevel = 'WARNING'", None), ("[log]\nlevel = 1", "was not reloaded")):
        path.write_text(text, encoding="utf-8")
        daemon.signal(signal.SIGHUP)
        begun = systemd.until("RELOADING")[-1]
        assert begun["RELOADING"] == "1"
        assert int(begun["MONOTONIC_USEC"]) > 0
        systemd.until("READY")
        assert said is None or said in daemon.log()


def test_a_stop_that_saves_says_that_it_needs_longer(
    make_daemon: StartDaemon, systemd: Listener, tmp_path: pathlib.Path
) -> None:
    source = """
import os, sys
from shmreplay.daemon import main
from shmreplay.daemon.checkpoints.arena_save import ArenaSave
real = ArenaSave.run
def run(self, writer):
    open(os.environ["SHMREPLAY_TEST_GATE"]).read()
    return real(self, writer)
ArenaSave.run = run
sys.exit(main.main())
"""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    env = {**systemd.environment(0.2), "SHMREPLAY_TEST_GATE": str(gate)}
    flags = ("--checkpoint-dir", str(tmp_path / "saved"), "--checkpoint-at-stop")
    daemon = make_daemon().start(*flags, source=source, env=env)
    with daemon.connect() as client:
        client.create_tables([table()])
    systemd.until("READY")
    daemon.signal(signal.SIGTERM)
    begun = systemd.until("STOPPING")[-1]
    assert (begun["EXTEND_TIMEOUT_USEC"], begun["STATUS"]) == ("60000000", "stopping")
    told = systemd.until("STATUS")[-1]
    assert told["STATUS"] == "stopping: checkpoint of arena 'replay': copying its index"
    assert told["EXTEND_TIMEOUT_USEC"] == "60000000"
    assert told["WATCHDOG"] == "1"
    gate.write_text("go")
    assert daemon.wait() == 0


def test_its_variables_do_not_reach_child_processes_nor_a_second_daemon(address: str) -> None:
    listener = Listener(address)
    environment = {"NOTIFY_SOCKET": listener.name, "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": str(os.getpid())}
    environment["OTHER"] = "1"
    notifier = Notifier(environment)
    assert environment == {"OTHER": "1"}
    assert (notifier.is_listened_to, notifier.tick_s) == (True, 0.5)
    notifier.ready()
    assert listener.message() == {"READY": "1", "STATUS": "starting"}
    notifier.close()
    listener.socket.close()


def test_without_systemd_nothing_is_said() -> None:
    notifier = Notifier({})
    assert not notifier.is_listened_to
    notifier.ready()
    notifier.stopping()


def test_a_watchdog_of_another_process_is_not_answered(systemd: Listener) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": systemd.name, "WATCHDOG_USEC": "1000", "WATCHDOG_PID": str(os.getppid())})
    assert notifier.tick_s == 10.0
    notifier.close()


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({"NOTIFY_SOCKET": "vsock:2:1"}, "NOTIFY_SOCKET is 'vsock:2:1'; expected an absolute path, or @ and a name"),
        ({"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "soon"}, "WATCHDOG_USEC is 'soon'; expected a number of micros"),
    ],
)
def test_what_systemd_would_never_say_is_warned_of(
    environment: dict[str, str], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    Notifier(environment).close()
    assert text in caplog.text


def test_an_embedded_daemon_says_nothing_in_its_parents_name(
    systemd: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", systemd.name)
    with sr.Server([table()]):
        systemd.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            systemd.message()


def test_why_it_could_not_start_is_its_last_status(make_daemon: StartDaemon, systemd: Listener) -> None:
    daemon = make_daemon()
    daemon._process = daemon.run("--checkpoint-dir", "/proc/none", env=systemd.environment())
    assert daemon.wait() == 1
    while (said := systemd.until("STATUS")[-1]["STATUS"]) == "starting":
        pass
    assert said.startswith("failed: no checkpoint can be written to /proc/none: ")


def test_a_client_that_no_longer_reads_costs_the_daemon_nothing(make_daemon: StartDaemon, systemd: Listener) -> None:
    daemon = make_daemon().start(env=systemd.environment(0.2))
    systemd.until("READY")
    systemd.socket.close()
    eventually(lambda: "cannot send " in daemon.log())
    with daemon.connect() as client:
        client.create_tables([table()])
    assert daemon.stop() == 0
    assert daemon.log().count("cannot send ") == 1

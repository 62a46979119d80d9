"""Clients of every kind at the control socket: many, slow, hostile; the others are served and each is told why."""

import asyncio
import os
import resource
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import shmreplay as sr
from shmreplay.daemon.arenas.access import Access
from shmreplay.daemon.arenas.registry import Registry
from shmreplay.daemon.checkpoints.checkpoints import Checkpoints
from shmreplay.daemon.config.checkpoint_options import CheckpointOptions
from shmreplay.daemon.control.commands import Commands
from shmreplay.daemon.control.conversation import Conversation
from shmreplay.daemon.control.shared_state import SharedState
from shmreplay.daemon.loop.workers import Workers
from shmreplay.protocol import MAX_MESSAGE_BYTES, PROTOCOL_VERSION, Deadline, pack, receive_message, send_message
from shmreplay.segments.segment import SegmentStore
from tests.support.daemons import DaemonProcess, RawClient, StartDaemon, new_daemon, table
from tests.support.waiting import WAIT_S, eventually


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """One daemon for all tests here: it survives everything that clients do, and serves the next one."""
    shared = new_daemon(tmp_path_factory.mktemp("connections") / "shared.sock").start()
    yield shared
    shared.clean_up()


@pytest.fixture
def client(daemon: DaemonProcess) -> Iterator[sr.Client]:
    """Its only client, and it has no tables."""
    with daemon.connect() as client:
        eventually(lambda: bool(client.stats()["daemon"]["clients"] == 1))
        for name in client.tables():
            client.drop_table(name)
        yield client


def test_hundreds_of_clients_are_served_at_once(daemon: DaemonProcess, client: sr.Client) -> None:
    clients = [RawClient(daemon.socket) for _ in range(400)]
    for raw in clients:
        assert raw.hello()["ok"]
    for raw in reversed(clients):
        assert raw.ask({"command": "tables"}) == {"ok": True, "tables": {}}
    assert client.stats()["daemon"]["clients"] == 401
    for raw in clients:
        raw.sock.close()
    eventually(lambda: bool(client.stats()["daemon"]["clients"] == 1))


def test_thousands_of_connections_that_say_nothing_or_half_a_word_keep_nobody_from_an_answer(
    daemon: DaemonProcess, client: sr.Client
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(3000, hard - 200)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    silent = []
    try:
        for i in range(count):
            silent.append(RawClient(daemon.socket))
            if i % 3 == 1:
                silent[-1].sock.send(struct.pack("<I", 40)[: 1 + i % 4])
            elif i % 3 == 2:
                silent[-1].sock.shutdown(socket.SHUT_WR)
            if i % 500 == 0:
                client.create_tables([table(f"t{i}", 5)])
        assert len(client.tables()) == -(-count // 500)
        assert is_served(daemon)
    finally:
        for raw in silent:
            raw.sock.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    eventually(lambda: bool(client.stats()["daemon"]["clients"] == 1))


def test_a_daemon_with_few_descriptors_refuses_the_client_too_many_and_serves_the_others(
    make_daemon: StartDaemon,
) -> None:
    daemon = make_daemon().start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (144, 144)))
    clients = [RawClient(daemon.socket) for _ in range(8)]
    assert all(raw.hello()["ok"] for raw in clients)
    with RawClient(daemon.socket) as raw:
        assert "already serves 8 clients, its maximum" in raw.hello()["message"]
        assert raw.is_dropped()
    assert clients[0].ask({"command": "tables"})["ok"]
    clients.pop().sock.close()
    eventually(lambda: is_served(daemon))
    for raw in clients:
        raw.sock.close()


def is_served(daemon: DaemonProcess) -> bool:
    with RawClient(daemon.socket) as raw:
        return "ok" in raw.hello()


def test_a_daemon_out_of_descriptors_says_so_and_serves_waiting_clients_later(make_daemon: StartDaemon) -> None:
    daemon = make_daemon().start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24)))
    clients = [RawClient(daemon.socket) for _ in range(40)]
    eventually(lambda: "raise LimitNOFILE" in daemon.log())
    for raw in clients[:-1]:
        raw.sock.close()
    assert clients[-1].hello()["ok"]
    clients[-1].sock.close()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack("<I", 5000), "5000 bytes was announced, at most 4096"),
        (struct.pack("<I", 2**32 - 1) + b"x" * 100_000, "4294967295 bytes was announced"),
        (b"GET / HTTP/1.1\r\n\r\n", "is the other side another program"),
        (struct.pack("<I", 1) + b"\xc1", "not a msgpack message"),
        (pack({"command": "tables"}), "the first message must be hello"),
        (pack({"command": "hello", "version": 99}), "version 1 of the control protocol, the client version 99"),
        (pack({"command": "hello"}), "the client version None"),
    ],
)
def test_a_client_that_breaks_the_protocol_is_told_and_dropped(
    daemon: DaemonProcess, client: sr.Client, data: bytes, reason: str
) -> None:
    with RawClient(daemon.socket) as raw:
        raw.sock.sendall(data)
        answer = raw.answer()
        assert answer["error"] == "ShmReplayError"
        assert reason in answer["message"]
        assert raw.is_dropped()
    assert client.tables() == {}
    assert f"refused pid {os.getpid()}" in daemon.log()


def test_a_client_whose_start_time_is_not_that_of_its_pid_is_refused(daemon: DaemonProcess) -> None:
    with RawClient(daemon.socket) as raw:
        answer = raw.hello(start_time=1)
        assert answer["error"] == "PermissionError"
        assert f"process {os.getpid()} says that it started at tick 1, the kernel says" in answer["message"]
        assert raw.is_dropped()


def test_an_oversize_message_after_hello_is_told_and_dropped(daemon: DaemonProcess, client: sr.Client) -> None:
    with RawClient(daemon.socket) as raw:
        raw.hello()
        raw.sock.sendall(struct.pack("<I", MAX_MESSAGE_BYTES + 1))
        assert "at most 16777216 are taken" in raw.answer()["message"]
        assert raw.is_dropped()
    assert client.tables() == {}


def test_a_message_of_the_largest_size_is_taken(daemon: DaemonProcess, client: sr.Client) -> None:
    with RawClient(daemon.socket) as raw:
        raw.hello()
        room = MAX_MESSAGE_BYTES - len(pack({"command": "tables", "padding": bytes(2**16)})) + 4 + 2**16
        message = pack({"command": "tables", "padding": bytes(room - 2)})
        assert MAX_MESSAGE_BYTES - 64 < len(message) - 4 <= MAX_MESSAGE_BYTES
        raw.sock.sendall(message)
        assert raw.answer() == {"ok": True, "tables": {}}
    assert client.tables() == {}


@pytest.mark.parametrize(
    ("request_", "cls", "reason"),
    [
        ({}, "ShmReplayError", "command is None; expected a str"),
        ({"command": 5}, "ShmReplayError", "command is 5; expected a str"),
        ({"command": "explode"}, "ShmReplayError", "unknown command 'explode'"),
        ({"command": "create_tables"}, "ValueError", "at least one table"),
        ({"command": "create_tables", "tables": [5]}, "ValueError", "table: malformed"),
        ({"command": "open", "table": "none"}, "TableNotFound", "there is no table 'none'; there are: none"),
        ({"command": "open", "table": 5}, "ShmReplayError", "table is 5"),
        ({"command": "detach", "arena": "x", "session": True, "generation": 0}, "ShmReplayError", "session is True"),
        ({"command": "reset", "table": "none"}, "TableNotFound", "'none'"),
        ({"command": "pause", "table": "none", "inserts": 1}, "ShmReplayError", "inserts is 1; expected true or false"),
        ({"command": "pause", "table": "x", "inserts": False, "samples": False}, "ValueError", "neither inserts nor"),
        ({"command": "drop_table", "table": "none", "timeout_s": -1}, "ValueError", "timeout_s is -1"),
        ({"command": "set_rate_limiter", "table": "none", "rebase": True}, "ValueError", "rate limiter: malformed"),
    ],
)
def test_a_request_that_makes_no_sense_is_answered_and_the_talk_goes_on(
    daemon: DaemonProcess, request_: dict[str, Any], cls: str, reason: str
) -> None:
    with RawClient(daemon.socket) as raw:
        raw.hello()
        answer = raw.ask(request_)
        assert answer["error"] == cls
        assert reason in answer["message"]
        assert raw.ask({"command": "tables"})["ok"]


def test_a_client_that_closes_its_sending_side_is_left_in_peace_and_then_closed(daemon: DaemonProcess) -> None:
    with RawClient(daemon.socket) as raw:
        raw.hello()
        raw.sock.sendall(pack({"command": "tables"}))
        raw.sock.shutdown(socket.SHUT_WR)
        assert raw.answer()["ok"]
        assert raw.is_dropped()


@pytest.mark.parametrize("cut", [1, 4, 5])
def test_a_client_that_leaves_in_the_middle_of_a_message_harms_nobody(
    daemon: DaemonProcess, client: sr.Client, cut: int
) -> None:
    with RawClient(daemon.socket) as raw:
        raw.hello()
        raw.sock.sendall(pack({"command": "tables"})[:cut])
    eventually(lambda: bool(client.stats()["daemon"]["clients"] == 1))
    assert "closed in the middle of a message" in daemon.log()


def test_a_client_that_leaves_during_a_creation_does_not_stop_it(daemon: DaemonProcess, client: sr.Client) -> None:
    with RawClient(daemon.socket) as raw:
        raw.hello()
        send_message(raw.sock, {"command": "create_tables", "tables": [table().to_wire()]}, Deadline(WAIT_S))
    eventually(lambda: "replay" in client.tables())


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.binary(max_size=64)
    | st.lists(st.dictionaries(st.sampled_from(["command", "table", "tables", "x"]), st.text() | st.integers(0, 9)))
)
def test_whatever_is_sent_after_hello_the_daemon_lives(daemon: DaemonProcess, data: Any) -> None:
    with RawClient(daemon.socket) as raw:
        raw.hello()
        raw.sock.sendall(data if isinstance(data, bytes) else b"".join(pack(message) for message in data))
        raw.sock.shutdown(socket.SHUT_WR)
        assert raw.is_dropped()
    with RawClient(daemon.socket) as raw:
        assert raw.hello()["ok"]


# --- slow clients, with short bounds, in this process ----------------------------------------------------------------

ClientSide = Callable[[socket.socket, threading.Event], None]
SHORT_S = 0.05


def talk(client_side: ClientSide, hello_s: float = WAIT_S) -> None:
    """Holds a conversation with a client whose side runs in a thread and is told when the daemon's side has ended.

    `hello_s` bounds the wait for its hello; what comes later has SHORT_S. So a busy machine drops no client too early.
    """

    async def main() -> None:
        workers = Workers()
        registry = Registry(SegmentStore(), "unit-talk", None, workers)
        checkpoints = Checkpoints(registry, workers, "unit-talk", CheckpointOptions())
        commands = Commands(registry, workers, "unit-talk", lambda: 1, lambda reason: None, checkpoints)
        shared = SharedState(commands, Access(), registry.reaper, workers, "unit-talk", 9, lambda: 1, hello_s)
        ours, theirs = socket.socketpair()
        ended = threading.Event()
        with theirs:
            client = asyncio.get_running_loop().run_in_executor(None, client_side, theirs, ended)
            conversation = Conversation(shared, ours)
            conversation._connection._timeout_s = SHORT_S
            await conversation.run()
            ended.set()
            await client
        assert workers.close()

    asyncio.run(main())


def hello(sock: socket.socket) -> None:
    send_message(sock, {"command": "hello", "version": PROTOCOL_VERSION}, Deadline(WAIT_S))
    assert receive_message(sock, Deadline(WAIT_S))[0]["ok"]


def test_a_client_that_never_says_hello_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "shmreplayd")
    talk(lambda sock, ended: assert_set(ended), SHORT_S)
    assert "sent nothing for 0.05 s" in caplog.text


def test_a_client_that_does_not_finish_its_message_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    def slow(sock: socket.socket, ended: threading.Event) -> None:
        hello(sock)
        sock.sendall(pack({"command": "tables"})[:7])
        assert_set(ended)

    caplog.set_level("INFO", "shmreplayd")
    talk(slow)
    assert "did not finish its message for 0.05 s" in caplog.text


def test_a_client_that_does_not_take_its_answer_is_dropped(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shmreplay.daemon.control.conversation.package_version", lambda: "x" * 2**20)

    def deaf(sock: socket.socket, ended: threading.Event) -> None:
        send_message(sock, {"command": "hello", "version": PROTOCOL_VERSION}, Deadline(WAIT_S))
        assert_set(ended)

    caplog.set_level("INFO", "shmreplayd")
    talk(deaf)
    assert "did not take its answer for 0.05 s" in caplog.text


def test_a_client_that_said_hello_may_be_idle_for_ever() -> None:
    def idle(sock: socket.socket, ended: threading.Event) -> None:
        hello(sock)
        assert not ended.wait(0.3)  # six times the bound that a message has
        send_message(sock, {"command": "tables"}, Deadline(WAIT_S))
        assert receive_message(sock, Deadline(WAIT_S))[0]["ok"]
        sock.shutdown(socket.SHUT_WR)
        assert_set(ended)

    talk(idle)


def assert_set(event: threading.Event) -> None:
    assert event.wait(WAIT_S)

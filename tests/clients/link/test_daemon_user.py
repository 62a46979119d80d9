"""Another user's daemon at the path of one that a client knows, and places where others could put theirs."""

import os
import pathlib
import shutil
import socket
import tempfile
from collections.abc import Iterator

import pytest

import shmreplay as sr
from shmreplay.clients.link.daemon_user import check_place
from shmreplay.protocol import Deadline, pack, receive_message
from tests.support.children import Child, Fork
from tests.support.daemons import DaemonProcess
from tests.support.waiting import WAIT_S

NOBODY = 65534
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")


def serve_as_nobody(fork: Fork, path: str) -> Child:
    """A process of user nobody that listens at the path and answers as a daemon does."""

    def serve(pipe: object) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(path)
            os.setuid(NOBODY)
            listener.listen()  # from now on the kernel says that nobody is here
            pipe.send()  # type: ignore[attr-defined]
            while True:
                served, _ = listener.accept()
                with served:
                    receive_message(served, Deadline(WAIT_S))
                    served.sendall(pack({"ok": True, "uid": 0}))  # it lies
                    served.recv(1)

    child = fork(serve)
    child.receive()
    return child


@pytest.fixture
def place() -> Iterator[pathlib.Path]:
    """A directory that only root may write to, as are those above it."""
    path = tempfile.mkdtemp(prefix="shmreplay-test-", dir="/run")
    os.chmod(path, 0o755)
    yield pathlib.Path(path)
    shutil.rmtree(path)


@pytest.mark.crash
def test_a_client_does_not_go_on_in_another_users_daemon_that_took_the_path(daemon: DaemonProcess, fork: Fork) -> None:
    with daemon.connect() as client:
        assert client.tables() == {}
        assert daemon.stop() == 0
        child = serve_as_nobody(fork, daemon.socket)
        reason = f"the shmreplayd at {daemon.socket} runs as user nobody, the one that this client knows ran as root: "
        with pytest.raises(PermissionError, match=reason):
            client.tables()
        child.kill()
        os.unlink(daemon.socket)


@pytest.mark.crash
@pytest.mark.parametrize(("mode", "owner"), [(0o777, 0), (0o1777, 0), (0o755, NOBODY), (0o775, NOBODY)])
def test_root_uses_another_users_daemon_only_where_nobody_else_could_have_put_it(
    fork: Fork, place: pathlib.Path, mode: int, owner: int
) -> None:
    folder = place / "own"
    folder.mkdir()
    os.chown(folder, owner, -1)
    folder.chmod(mode)
    path = str(folder / "a.sock")
    child = serve_as_nobody(fork, path)
    if owner == NOBODY:
        sr.connect(path, timeout_s=WAIT_S).close()
    else:
        reason = (
            f"user nobody at {path}: others may write to {folder} .mode {mode:04o}, owner root.* run this as nobody"
        )
        with pytest.raises(PermissionError, match=reason):
            sr.connect(path, timeout_s=WAIT_S)
    child.kill()


def test_the_place_behind_a_link_and_that_of_the_link_count(place: pathlib.Path) -> None:
    (place / "open").mkdir()
    (place / "open").chmod(0o777)
    (place / "shut").mkdir()
    (place / "open" / "link").symlink_to(place / "shut")
    (place / "link").symlink_to(place / "open")
    check_place(str(place / "shut" / "a.sock"), NOBODY)
    for path in (place / "open" / "link" / "a.sock", place / "link" / "a.sock"):
        check_place(str(path), 0)  # root's own daemon
        with pytest.raises(PermissionError, match=f"others may write to {place}/(open|link) "):
            check_place(str(path), NOBODY)

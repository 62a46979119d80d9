"""Two users of one machine: both have a daemon with all defaults, and what belongs to the other is said so."""

import os
import pathlib
import secrets
import shutil
import signal
import stat
import tempfile
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.daemon.config.configuration import DaemonConfig, read_config
from shmreplay.daemon.control.socket_directory import make_socket_directory
from shmreplay.daemon.main import main
from shmreplay.daemon.process.instance_lock import InstanceLock
from shmreplay.segments.segment import SegmentStore
from tests.support.waiting import WAIT_S, eventually

ONE, OTHER = 64_321, 64_322  # nobody's, and there in a container that maps 65,536 of them, too

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def become(user: int, home: pathlib.Path) -> None:
    """Makes this child another user, logged in without a runtime directory."""
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    for name in ("SHMREPLAY_SOCKET", "XDG_RUNTIME_DIR"):
        os.environ.pop(name, None)
    os.environ["HOME"] = str(home)


def said_as(user: int, work: Callable[[], object]) -> str:
    """What the work returns or raises in a child that is another user."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            become(user, pathlib.Path("/"))
            text = str(work())
        except BaseException as error:  # noqa: BLE001  # the parent looks at it
            text = f"{type(error).__name__}: {error}"
        finally:
            os.write(writing, text.encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        text = file.read()
    assert os.waitpid(child, 0)[1] == 0
    return text


@pytest.fixture
def open_directory() -> Iterator[pathlib.Path]:
    """Every user can make files there, and remove only their own, as in /dev/shm."""
    path = pathlib.Path(tempfile.mkdtemp(dir="/tmp"))
    path.chmod(0o1777)
    yield path
    shutil.rmtree(path)


def test_users_have_instances_of_their_own_with_all_defaults() -> None:
    def default_lock() -> str:
        config = read_config([], {})
        InstanceLock(SegmentStore(), config.instance)  # never released, as of one that was killed
        return config.instance

    try:
        for user in (ONE, OTHER, ONE):
            assert said_as(user, default_lock) == f"user-{user}"
    finally:
        for user in (ONE, OTHER):
            SegmentStore().unlink(f"shmreplay.user-{user}.lock")
    assert read_config([], {}).instance == "default"


def start_daemon(user: int, home: pathlib.Path) -> int:
    """A daemon with all defaults. It is a fork, since another user may not be able to read this Python."""
    child = os.fork()
    if child == 0:
        try:
            become(user, home)
            os._exit(main([]))
        finally:
            os._exit(99)
    return child


def test_two_daemons_run_side_by_side_and_each_users_clients_find_their_own(open_directory: pathlib.Path) -> None:
    """With all defaults, and without XDG_RUNTIME_DIR."""
    homes = {user: open_directory / str(user) for user in (ONE, OTHER)}
    for user, home in homes.items():
        home.mkdir(mode=0o700)
        os.chown(home, user, user)
    daemons = [start_daemon(user, home) for user, home in homes.items()]

    def work(user: int) -> str:
        os.environ.pop("XDG_RUNTIME_DIR", None)
        os.environ["HOME"] = str(homes[user])
        with sr.connect(timeout_s=WAIT_S) as client:
            client.create_tables([sr.Table("own", {"x": np.int64(0)}, 10)])
            client.table("own").insert({"x": user})
            return f"{client.address} {client.table('own').sample(1).data['x']}"

    try:
        for user, home in homes.items():
            eventually((home / ".shmreplay" / "default.sock").exists)
            assert said_as(user, partial(work, user)) == f"{home}/.shmreplay/default.sock [{user}]"
    finally:
        for daemon in daemons:
            os.kill(daemon, signal.SIGTERM)
        assert [os.waitpid(daemon, 0)[1] for daemon in daemons] == [0, 0]


def test_a_lock_that_another_user_left_names_that_user_and_an_instance_that_works() -> None:
    instance = f"unit-{secrets.token_hex(6)}"
    store = SegmentStore()
    lock = InstanceLock(store, instance)
    try:
        text = said_as(ONE, lambda: InstanceLock(store, instance))
    finally:
        lock.release()
    assert "it belongs to user root, whose daemon runs or left the file" in text
    assert text.endswith(f"choose another --instance, such as user-{ONE}")


@pytest.mark.parametrize("home", ["theirs", "mine"])
def test_the_socket_that_is_advised_is_one_that_this_user_can_make(open_directory: pathlib.Path, home: str) -> None:
    """After su the environment is that of the other user."""
    theirs, mine = open_directory / "theirs", open_directory / "mine"
    for path, user in ((theirs, 0), (mine, ONE)):
        path.mkdir(mode=0o700)
        os.chown(path, user, user)

    def make() -> bool:
        os.environ.update(XDG_RUNTIME_DIR=str(theirs), HOME=str(open_directory / home))
        return make_socket_directory(DaemonConfig(f"{theirs}/shmreplay/default.sock"))

    own = f"{mine}/.shmreplay" if home == "mine" else f"/tmp/shmreplay-{ONE}"
    text = said_as(ONE, make)
    assert "Permission denied" in text
    found = "where clients look by default" if home == "mine" else "and give clients that path in SHMREPLAY_SOCKET"
    assert f"choose another --socket, such as {own}/default.sock, {found}" in text


@pytest.mark.parametrize("depth", [1, 2])
def test_a_client_is_told_whose_directory_it_may_not_enter(open_directory: pathlib.Path, depth: int) -> None:
    theirs = open_directory / "theirs"
    path = theirs.joinpath(*["x"] * (depth - 1), "default.sock")
    path.parent.mkdir(parents=True)
    path.touch()
    theirs.chmod(stat.S_IRWXU)
    text = said_as(ONE, lambda: sr.connect(str(path), timeout_s=0))
    assert f"permission denied for {path}: {theirs} is open to user root alone (mode 0700)" in text

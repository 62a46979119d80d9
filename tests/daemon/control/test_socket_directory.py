"""The socket's directory: one level is made, and a user who may not make it is told what to do."""

import errno
import os
import pathlib
import re
import stat

import pytest

from shmreplay.daemon.config.configuration import DaemonConfig
from shmreplay.daemon.control.socket_directory import make_socket_directory
from shmreplay.errors import ShmReplayError


def test_of_the_sockets_directory_one_level_is_made(tmp_path: pathlib.Path) -> None:
    made = tmp_path / "one"
    assert make_socket_directory(DaemonConfig(str(made / "x.sock")))
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert not make_socket_directory(DaemonConfig(str(made / "x.sock"))), "it was there"
    directory, parent = tmp_path / "a" / "b", tmp_path / "a"
    text = f"directory {directory}: {parent} does not exist; make it, or choose another"
    with pytest.raises(ShmReplayError, match=re.escape(text)):
        make_socket_directory(DaemonConfig(str(directory / "x.sock")))
    assert not parent.exists()


def test_a_user_who_may_not_make_the_sockets_directory_learns_where_it_could_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    def refuse(path: str, mode: int) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setattr(os, "mkdir", refuse)
    config = DaemonConfig("/run/none/default.sock")
    refused = "cannot make the socket's directory /run/none: Permission denied; choose another --socket, such as "
    for runtime, path in (
        (str(tmp_path), f"{tmp_path}/shmreplay/default.sock, where clients look by default"),
        ("/nowhere", f"{home}/.shmreplay/default.sock, and give clients that path in SHMREPLAY_SOCKET"),
    ):
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        monkeypatch.setenv("HOME", str(home))
        with pytest.raises(ShmReplayError) as raised:
            make_socket_directory(config)
        assert str(raised.value) == refused + path


def test_a_sockets_directory_that_the_group_cannot_have_is_not_left_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    def refuse(path: str, user: int, group: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted", path)

    monkeypatch.setattr(os, "chown", refuse)
    directory = tmp_path / "shared"
    text = f"cannot give the socket's directory {directory} to group rl: Operation not permitted; run the daemon as"
    with pytest.raises(ShmReplayError, match=re.escape(text)):
        make_socket_directory(DaemonConfig(str(directory / "x.sock"), group_id=7, group_name="rl"))
    assert not directory.exists()

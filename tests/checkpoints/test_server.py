"""Checkpoints through sr.Server, the daemon's options and the console script."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.checkpoint_directory import find_checkpoints
from shmreplay.clients.client import Client
from tests.checkpoints.saved import facts
from tests.system.conftest import StartDaemon, eventually, table


def rows(n: int) -> dict[str, object]:
    return {"x": np.zeros((n, 3), np.float32), "n": np.arange(n)}


def test_a_server_goes_on_where_the_last_one_was_saved(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = str(tmp_path / "run")
    tables = [table("a"), table("b")]
    with sr.Server(tables, checkpoint_dir=directory) as server, server.client() as client:
        client.table("a").insert_batch(rows(30))
        path = client.checkpoint()
        assert os.path.dirname(path) == directory
        before = facts(client.table("a"))
        client.table("a").insert_batch(rows(5))
    more = [*tables, table("c")]
    with sr.Server(more, checkpoint_dir=directory, restore=directory) as server, server.client() as client:
        assert sorted(client.tables()) == ["a", "b", "c"]
        assert facts(client.table("a")) == before
        assert client.checkpoint() > path
    assert caplog.text == ""
    with sr.Server(restore=path, limiters="config") as server, server.client() as client:
        assert sorted(client.tables()) == ["a", "b"]
        with pytest.raises(sr.CheckpointFailed, match="no directory for checkpoints was configured"):
            client.checkpoint()


def test_a_server_says_aloud_that_a_limiter_is_not_the_one_asked_for(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    with sr.Server([table("a")], checkpoint_dir=str(tmp_path)) as server, server.client() as client:
        client.checkpoint()
    asked = [table("a", rate_limiter=sr.rate_limiters.MinSize(9))]
    with sr.Server(asked, restore=str(tmp_path)) as server, server.client() as client:
        assert client.table("a").info().min_size_to_sample == 1
    assert "its rate limiter is that of the checkpoint: min_size_to_sample 1 instead of 9" in caplog.text
    caplog.clear()
    with sr.Server(asked, restore=str(tmp_path), limiters="config") as server, server.client() as client:
        assert client.table("a").info().min_size_to_sample == 9
        client.create_tables(asked)  # the same tables: nothing to do
    assert "its rate limiter is the one asked for" in caplog.text


def test_a_server_that_cannot_restore_leaves_nothing(tmp_path: pathlib.Path) -> None:
    with pytest.raises(sr.CheckpointFailed, match="there is no whole checkpoint in"):
        sr.Server(restore=str(tmp_path))
    (tmp_path / "x").write_bytes(b"nonsense, and more than sixteen bytes of it")
    with pytest.raises(sr.DamagedCheckpoint, match="it is no checkpoint of shmreplay; there is none before it"):
        sr.Server(restore=str(tmp_path / "x"))


def test_a_server_saves_nothing_by_itself(tmp_path: pathlib.Path) -> None:
    with sr.Server([table("a")], checkpoint_dir=str(tmp_path)) as server, server.client() as client:
        client.table("a").insert_batch(rows(3))
    assert find_checkpoints(str(tmp_path)) == []


def test_a_table_is_not_restored_with_another_size(tmp_path: pathlib.Path) -> None:
    with sr.Server([table("a", max_size=100)], checkpoint_dir=str(tmp_path)) as server, server.client() as client:
        path = client.checkpoint()
    with pytest.raises(ValueError, match=f"table 'a' of {path} is another: max_size: is 100, asked for 200"):
        sr.Server([table("a", max_size=200)], restore=path)


@pytest.mark.parametrize("name", ["checkpoint_dir", "restore", "directory"])
def test_a_server_names_the_argument_that_is_no_path(name: str) -> None:
    with pytest.raises(TypeError, match=f"Server: {name} is True; expected the path of a file or a directory"):
        sr.Server(**{name: True})  # type: ignore[arg-type]


def test_a_client_names_the_argument_that_is_no_path() -> None:
    with pytest.raises(TypeError, match="restore: path is True; expected the path of a file or a directory"):
        Client("/nowhere.sock").restore(True)  # type: ignore[arg-type]


def test_the_daemon_saves_at_its_interval_and_keeps_the_newest(
    make_daemon: StartDaemon, tmp_path: pathlib.Path
) -> None:
    directory = str(tmp_path / "saved")
    flags = ("--checkpoint-dir", directory, "--checkpoint-interval", "0.05", "--checkpoint-keep", "3")
    daemon = make_daemon().start(*flags)
    with daemon.connect() as client:
        client.create_tables([table("a")])
        client.table("a").insert_batch(rows(10))
        first = client.checkpoint()
        eventually(lambda: not os.path.exists(first))
        assert len(find_checkpoints(directory)) in (3, 4)  # one more while the oldest is about to go
        assert client.stats()["daemon"]["checkpoint"]["error"] is None
    assert daemon.stop() == 0
    assert "checkpoint: table 'a' at insert 10, 10 items" in daemon.log()
    assert find_checkpoints(directory, "elsewhere") == []
    assert len(find_checkpoints(directory, daemon.instance)) in (3, 4)


def test_the_daemon_saves_at_its_stop_and_begins_with_that(make_daemon: StartDaemon, tmp_path: pathlib.Path) -> None:
    directory = str(tmp_path / "saved")
    flags = ("--checkpoint-dir", directory, "--checkpoint-at-stop", "--restore")
    daemon = make_daemon().start(*flags)
    assert f"there is no checkpoint of {daemon.instance} in" in daemon.log()
    with daemon.connect() as client:
        client.create_tables([table("a")])
        client.table("a").insert_batch(rows(10))
        before = facts(client.table("a"))
    assert daemon.stop() == 0
    assert len(find_checkpoints(directory)) == 1
    daemon.start(*flags)
    with daemon.connect() as client:
        assert facts(client.table("a")) == before
        client.table("a").insert_batch(rows(4))
        later = facts(client.table("a"))
        # Killed, not stopped: what it left in memory is newer than the checkpoint, and is taken over.
        daemon.kill()
        daemon.start(*flags)
        assert facts(client.table("a")) == later
    assert daemon.stop() == 0


def test_a_daemon_begins_with_a_whole_checkpoint_of_its_own_or_not_at_all(
    make_daemon: StartDaemon, tmp_path: pathlib.Path
) -> None:
    directory = str(tmp_path / "saved")
    flags = ("--checkpoint-dir", directory, "--checkpoint-keep", "5")
    daemon, other = make_daemon().start(*flags), make_daemon().start(*flags)
    with daemon.connect() as client, other.connect() as stranger:
        client.create_tables([table("a")])
        stranger.create_tables([table("b")])
        paths = [client.checkpoint()]
        client.table("a").insert_batch(rows(10))
        paths.append(client.checkpoint())
        stranger.checkpoint()
    assert daemon.stop() == 0
    for path, expected in zip(reversed(paths), (10, 0), strict=True):
        daemon.start(*flags, "--restore")
        with daemon.connect() as client:
            assert {name: found["size"] for name, found in client.tables().items()} == {"a": expected}
        assert daemon.stop() == 0
        os.truncate(path, 400)
    assert "there is no whole checkpoint in" in daemon.fail(*flags, "--restore")
    assert daemon.left_behind() == []


def test_flags_that_make_no_sense_are_refused(make_daemon: StartDaemon, tmp_path: pathlib.Path) -> None:
    for flags in (("--checkpoint-interval", "3"), ("--checkpoint-at-stop",), ("--restore",)):
        daemon = make_daemon()
        assert daemon.run(*flags).wait(30) == 2
        assert "need --checkpoint-dir" in daemon.log()
    for flags in (("--checkpoint-interval", "0"), ("--checkpoint-interval", "nan"), ("--checkpoint-keep", "0")):
        daemon = make_daemon()
        assert daemon.run("--checkpoint-dir", str(tmp_path), *flags).wait(30) == 2
        assert flags[0] in daemon.log()


def test_inspect_shows_the_newest_whole_one_of_a_directory_as_restore_takes_it(
    make_daemon: StartDaemon, tmp_path: pathlib.Path
) -> None:
    directory = str(tmp_path / "saved")
    daemon = make_daemon().start("--checkpoint-dir", directory)
    with daemon.connect() as client:
        client.create_tables([table("a")])
        paths = [client.checkpoint(), client.checkpoint()]
    os.truncate(paths[1], 400)
    ran = shmreplay("inspect", directory)
    assert (ran.returncode, ran.stdout.split(":")[0]) == (0, paths[0])
    assert ran.stderr.startswith(f"shmreplay inspect: checkpoint {paths[1]} is damaged: section ")
    assert "looking at the one before it" in ran.stderr
    os.truncate(paths[0], 400)
    ran = shmreplay("inspect", directory)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert f"there is no whole checkpoint in {directory}" in ran.stderr
    for path in paths:
        assert f"checkpoint {path} is damaged" in ran.stderr
    assert shmreplay("inspect", str(tmp_path)).stderr == f"shmreplay inspect: there is no checkpoint in {tmp_path}\n"


def shmreplay(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "shmreplay.clients.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")


def test_the_console_script_saves_verifies_inspects_and_restores(
    make_daemon: StartDaemon, tmp_path: pathlib.Path
) -> None:
    directory = str(tmp_path / "saved")
    daemon = make_daemon().start("--checkpoint-dir", directory)
    with daemon.connect() as client:
        client.create_tables([table("a"), table("b", max_size=7, arena="shared")])
        client.table("a").insert_batch(rows(10))
    ran = shmreplay("checkpoint", "--address", daemon.socket)
    assert (ran.returncode, ran.stderr) == (0, "")
    path = ran.stdout.strip()
    assert json.loads(shmreplay("checkpoint", "--address", daemon.socket, "--json").stdout)["path"] > path
    ran = shmreplay("verify", directory)
    assert (ran.returncode, len(ran.stdout.splitlines())) == (0, 2)
    assert ran.stdout.splitlines()[-1].startswith(f"{path}: whole, ")
    ran = shmreplay("inspect", path)
    assert ran.returncode == 0, ran.stderr
    assert [line.split() for line in ran.stdout.splitlines()[1:]] == [
        ["table", "size", "inserts", "samples", "arena"],
        ["a", "10", "10", "0", "a"],
        ["b", "0", "0", "0", "shared"],
    ]
    listed = json.loads(shmreplay("inspect", directory, "--json").stdout)
    assert listed["tables"][0] == {"table": "a", "arena": "a", "size": 10, "inserts": 10, "samples": 0}
    other = make_daemon().start()
    ran = shmreplay("restore", path, "--address", other.socket)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"{path}: a, b\n", "")
    ran = shmreplay("restore", path, "--address", other.socket)
    assert ran.returncode == 1
    assert "table 'a' is there already" in ran.stderr
    with open(path, "r+b") as file:
        file.seek(300)
        file.write(b"\xff\xff\xff")
    ran = shmreplay("verify", directory)
    assert (ran.returncode, len(ran.stdout.splitlines())) == (1, 1)
    assert f"checkpoint {path} is damaged: section " in ran.stderr
    assert shmreplay("inspect", path).returncode == 1
    assert shmreplay("verify", str(tmp_path)).returncode == 1

"""Checkpoints through sr.Server, the daemon's options and the console script."""

import json
import os
import pathlib
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.checkpoints.checkpoint_directory import PARTIAL, find_checkpoints
from shmreplay.checkpoints.checkpoint_file import verify
from shmreplay.clients.client import Client
from tests.daemon.checkpoints.saved import facts, rows
from tests.support.daemons import StartDaemon, table
from tests.support.waiting import WAIT_S, eventually


def test_a_server_goes_on_where_the_last_one_was_saved(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = str(tmp_path / "run")
    tables = [table("a"), table("b")]
    with sr.Server(tables, checkpoint_dir=directory) as server, server.client() as client:
        client.table("a").insert_batch(rows(0, 30))
        path = client.checkpoint()
        assert os.path.dirname(path) == directory
        before = facts(client.table("a"))
        client.table("a").insert_batch(rows(0, 5))
    more = [*tables, table("c")]
    with sr.Server(more, checkpoint_dir=directory, restore=directory) as server, server.client() as client:
        assert sorted(client.tables()) == ["a", "b", "c"]
        assert facts(client.table("a")) == before
        assert client.checkpoint() > path
    assert caplog.text == ""
    with sr.Server(restore=path, limiters="config") as server, server.client() as client:
        assert sorted(client.tables()) == ["a", "b"]
        with pytest.raises(sr.CheckpointFailed, match="no directory for checkpoints is configured"):
            client.checkpoint()


@pytest.mark.long
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
    with pytest.raises(sr.CheckpointFailed, match="there is no checkpoint in"):
        sr.Server(restore=str(tmp_path))
    (tmp_path / "x").write_bytes(b"nonsense, and more than sixteen bytes of it")
    with pytest.raises(sr.DamagedCheckpoint, match=r"it is no checkpoint of shmreplay$"):
        sr.Server(restore=str(tmp_path / "x"))


def test_a_server_saves_nothing_by_itself(tmp_path: pathlib.Path) -> None:
    with sr.Server([table("a")], checkpoint_dir=str(tmp_path)) as server, server.client() as client:
        client.table("a").insert_batch(rows(0, 3))
    assert find_checkpoints(str(tmp_path)) == []


def test_a_table_is_not_restored_with_another_size(tmp_path: pathlib.Path) -> None:
    with sr.Server([table("a", max_size=100)], checkpoint_dir=str(tmp_path)) as server, server.client() as client:
        path = client.checkpoint()
    with pytest.raises(ValueError, match=f"table 'a' of {path} differs: max_size: is 100, asked for 200"):
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
        client.table("a").insert_batch(rows(0, 10))
        first = client.checkpoint()

        def is_removed() -> bool:
            client.table("a").insert_batch(rows(0, 1))  # or the interval would save nothing
            return not os.path.exists(first)

        eventually(is_removed)
        assert len(find_checkpoints(directory)) in (3, 4)  # one more while the oldest is about to go
        assert client.stats()["daemon"]["checkpoint"]["error"] is None
    assert daemon.stop() == 0
    assert "checkpoint: table 'a' at insert 10, 10 items" in daemon.log()
    assert find_checkpoints(directory, "elsewhere") == []
    assert len(find_checkpoints(directory, daemon.instance)) in (3, 4)


NOTHING_NEW = "no checkpoint was saved: nothing is new since "


def test_an_interval_with_nothing_new_keeps_the_older_ones(make_daemon: StartDaemon, tmp_path: pathlib.Path) -> None:
    """Whatever changes is new. An idle daemon saves nothing, and so does the next one, which takes over."""
    directory = str(tmp_path / "saved")
    flags = ("--checkpoint-dir", directory, "--checkpoint-interval", "0.05", "--checkpoint-keep", "2")
    daemon = make_daemon().start(*flags)

    def is_idle(before: int = 0) -> bool:
        return daemon.log().count(NOTHING_NEW + find_checkpoints(directory)[0]) >= before + 3

    with daemon.connect() as client:
        client.create_tables([table("a", sampler=sr.selectors.Prioritized(1.0))])
        handle = client.table("a")
        eventually(lambda: bool(find_checkpoints(directory)))
        keys = handle.insert_batch(rows(0, 10))
        for change in (
            lambda: handle.sample(1),
            lambda: handle.update_priorities(keys[:1], np.full(1, 3.0)),
            lambda: handle.delete(keys[:1]),
            lambda: client.create_tables([table("b")]),
            lambda: client.drop_table("b"),
            lambda: handle.reset(),
        ):
            eventually(is_idle)
            kept = find_checkpoints(directory)
            change()
            eventually(lambda: find_checkpoints(directory)[0] != kept[0])  # noqa: B023
        eventually(is_idle)
        kept = find_checkpoints(directory)
        daemon.kill()
        told = daemon.log().count(NOTHING_NEW + kept[0])
        daemon.start(*flags)
        eventually(lambda: is_idle(told))
        assert find_checkpoints(directory) == kept
        assert client.stats()["daemon"]["checkpoint"]["path"] == kept[0]
        assert client.checkpoint() not in kept  # who asks for one gets one


def test_the_daemon_saves_at_its_stop_and_begins_with_that(make_daemon: StartDaemon, tmp_path: pathlib.Path) -> None:
    directory = str(tmp_path / "saved")
    flags = ("--checkpoint-dir", directory, "--checkpoint-at-stop", "--restore")
    daemon = make_daemon().start(*flags)
    assert f"there is no checkpoint of {daemon.instance} in" in daemon.log()
    with daemon.connect() as client:
        client.create_tables([table("a")])
        client.table("a").insert_batch(rows(0, 10))
        before = facts(client.table("a"))
    assert daemon.stop() == 0
    assert len(find_checkpoints(directory)) == 1
    daemon.start(*flags)
    with daemon.connect() as client:
        assert facts(client.table("a")) == before
        client.table("a").insert_batch(rows(0, 4))
        later = facts(client.table("a"))
        # Killed, not stopped: what it left in memory is newer than the checkpoint, and is taken over.
        daemon.kill()
        daemon.start(*flags)
        assert facts(client.table("a")) == later
    assert daemon.stop() == 0


def test_the_last_checkpoint_waits_for_one_of_the_interval_that_is_being_saved(
    make_daemon: StartDaemon, tmp_path: pathlib.Path
) -> None:
    """The first one ends some turns of the loop after somebody began to wait for it."""
    source = """
import asyncio, os, sys, threading
from shmreplay.checkpoints.checkpoint_file import CheckpointWriter, SectionKind
from shmreplay.daemon import main
from shmreplay.daemon.loop.workers import Workers
write, acquire, run = CheckpointWriter.write, asyncio.Lock.acquire, Workers.run
is_waited_for, reached, saving = threading.Event(), [], []
def slow_write(self, kind, *rest):
    if kind is SectionKind.ARENA and not reached:
        reached.append(True)
        open(os.environ["SHMREPLAY_TEST_REACHED"], "x").close()
        is_waited_for.wait()
    write(self, kind, *rest)
def turn(n):
    asyncio.get_running_loop().call_soon(turn, n - 1) if n else is_waited_for.set()
async def watched_acquire(self):
    if self.locked():
        turn(20)
    return await acquire(self)
async def watched_run(self, function, *arguments):
    if function.__name__ != "_write":
        return await run(self, function, *arguments)
    if saving:
        print("ERROR two at once", file=sys.stderr)
    def work():
        try:
            return function(*arguments)
        finally:
            saving.pop()
    saving.append(True)
    return await run(self, work)
CheckpointWriter.write, asyncio.Lock.acquire, Workers.run = slow_write, watched_acquire, watched_run
sys.exit(main.main())
"""
    directory, reached = str(tmp_path / "saved"), tmp_path / "reached"
    flags = ("--checkpoint-dir", directory, "--checkpoint-interval", "0.1", "--checkpoint-at-stop")
    daemon = make_daemon().start(*flags, source=source, env={**os.environ, "SHMREPLAY_TEST_REACHED": str(reached)})
    with daemon.connect() as client:
        client.create_tables([table("a")])
        eventually(lambda: client.stats() is not None and reached.exists())
        client.table("a").insert_batch(rows(0, 10))  # behind the instant of the one that is being saved
    assert daemon.stop() == 0
    assert "ERROR" not in daemon.log()
    assert not [name for name in os.listdir(directory) if name.endswith(PARTIAL)]
    assert verify(find_checkpoints(directory)[0])["states"][0]["tables"][0]["size"] == 10


def test_a_daemon_without_tables_saves_nothing_over_those_of_the_last_one(
    make_daemon: StartDaemon, tmp_path: pathlib.Path
) -> None:
    """As after a reboot, when it is started without --restore."""
    directory = str(tmp_path / "saved")
    daemon = make_daemon().start("--checkpoint-dir", directory)
    with daemon.connect() as client:
        client.create_tables([table("a")])
        path = client.checkpoint()
    assert daemon.stop() == 0
    source = """
import asyncio, sys
from shmreplay.daemon import main
sleep, turns = asyncio.sleep, []
async def counted(seconds):
    turns.append(seconds)
    if len(turns) == 6:
        print("six intervals are over", file=sys.stderr)
    await sleep(seconds)
asyncio.sleep = counted
sys.exit(main.main())
"""
    daemon.start("--checkpoint-dir", directory, "--checkpoint-interval", "0.01", source=source)
    eventually(lambda: "six intervals are over" in daemon.log())
    assert find_checkpoints(directory) == [path]
    assert daemon.stop() == 0


def test_a_table_that_is_dropped_before_its_turn_ends_the_checkpoint(
    make_daemon: StartDaemon, tmp_path: pathlib.Path
) -> None:
    source = """
import os, sys
from shmreplay.checkpoints.checkpoint_file import CheckpointWriter, SectionKind
from shmreplay.daemon import main
real = CheckpointWriter.write
def write(self, kind, *rest):
    if kind is SectionKind.ARENA:
        open(os.environ["SHMREPLAY_TEST_GATE"], "rb").read()
    real(self, kind, *rest)
CheckpointWriter.write = write
sys.exit(main.main())
"""
    gate, directory = tmp_path / "gate", tmp_path / "saved"
    os.mkfifo(gate)
    flags = ("--checkpoint-dir", str(directory))
    daemon = make_daemon().start(*flags, source=source, env={**os.environ, "SHMREPLAY_TEST_GATE": str(gate)})
    with daemon.connect() as client, daemon.connect() as saver, ThreadPoolExecutor(1) as pool:
        client.create_tables([table("a"), table("b")])
        saving = pool.submit(saver.checkpoint)
        with gate.open("wb"):  # until then the daemon is at the first of the two
            client.drop_table("b")
        with pytest.raises(sr.CheckpointFailed, match="no checkpoint was saved: arena 'b' was dropped meanwhile"):
            saving.result()
        assert find_checkpoints(str(directory)) == []
        assert not [name for name in os.listdir(directory) if name.endswith(PARTIAL)]
        assert sorted(client.stats()["arenas"]) == ["a"]


def test_the_interval_goes_on_whatever_a_checkpoint_failed_by(make_daemon: StartDaemon, tmp_path: pathlib.Path) -> None:
    source = """
import sys
from shmreplay.daemon import main
from shmreplay.daemon.checkpoints import arena_save
real, failed = arena_save.ArenaSave.run, []
def run(self, writer):
    if not failed:
        failed.append(True)
        raise MemoryError("no memory for a slice")
    return real(self, writer)
arena_save.ArenaSave.run = run
sys.exit(main.main())
"""
    directory = str(tmp_path / "saved")
    daemon = make_daemon().start("--checkpoint-dir", directory, "--checkpoint-interval", "0.05", source=source)
    with daemon.connect() as client:
        client.create_tables([table("a")])
        eventually(lambda: client.stats() is not None and bool(find_checkpoints(directory)))
    assert daemon.stop() == 0
    assert "ERROR no checkpoint was saved\nTraceback" in daemon.log()
    assert "MemoryError: no memory for a slice" in daemon.log()


def test_tables_stay_in_shared_memory_if_their_last_checkpoint_failed(
    make_daemon: StartDaemon, tmp_path: pathlib.Path
) -> None:
    """A disk that is full just then must not cost what nobody saved."""
    flags = ("--checkpoint-dir", str(tmp_path / "saved"), "--checkpoint-at-stop", "--restore")
    daemon = make_daemon().start(*flags)
    with daemon.connect() as client:
        client.create_tables([table("a")])
        client.checkpoint()
        client.table("a").insert_batch(rows(0, 900))
        before = facts(client.table("a"))
    resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))  # room for the log
    assert daemon.stop() == 1
    assert "ERROR no checkpoint was saved at the stop: [Errno 27] no checkpoint can be written to" in daemon.log()
    assert "so the tables stay in shared memory; the next shmreplayd of this instance takes them over" in daemon.log()
    daemon.start(*flags)
    with daemon.connect() as client:
        assert facts(client.table("a")) == before
    assert daemon.stop() == 0
    assert daemon.segments() == {}


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
        client.table("a").insert_batch(rows(0, 10))
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


@pytest.mark.long
def test_flags_that_make_no_sense_are_refused(make_daemon: StartDaemon, tmp_path: pathlib.Path) -> None:
    for flags in (("--checkpoint-interval", "3"), ("--checkpoint-at-stop",), ("--restore",)):
        daemon = make_daemon()
        assert daemon.run(*flags).wait(WAIT_S) == 2
        assert "need checkpoints.directory (--checkpoint-dir DIR)" in daemon.log()
    for flags in (("--checkpoint-interval", "0"), ("--checkpoint-interval", "nan"), ("--checkpoint-keep", "0")):
        daemon = make_daemon()
        assert daemon.run("--checkpoint-dir", str(tmp_path), *flags).wait(WAIT_S) == 2
        assert flags[0] in daemon.log()


def test_inspect_shows_the_checkpoint_of_a_directory_that_restore_would_take(
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
    assert "reading the one before it" in ran.stderr
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


@pytest.mark.long
def test_the_console_script_saves_verifies_inspects_and_restores(
    make_daemon: StartDaemon, tmp_path: pathlib.Path
) -> None:
    directory = str(tmp_path / "saved")
    daemon = make_daemon().start("--checkpoint-dir", directory)
    with daemon.connect() as client:
        client.create_tables([table("a"), table("b", max_size=7, arena="shared")])
        client.table("a").insert_batch(rows(0, 10))
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
    assert "table 'a' exists already" in ran.stderr
    with open(path, "r+b") as file:
        file.seek(300)
        file.write(b"\xff\xff\xff")
    ran = shmreplay("verify", directory)
    assert (ran.returncode, len(ran.stdout.splitlines())) == (1, 1)
    assert f"checkpoint {path} is damaged: section " in ran.stderr
    told = json.loads(shmreplay("verify", directory, "--json").stdout)
    assert [(one["path"] == path, one["damage"] is not None) for one in told] == [(False, False), (True, True)]
    assert shmreplay("inspect", path).returncode == 1
    assert shmreplay("verify", str(tmp_path)).returncode == 1

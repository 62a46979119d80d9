"""Making tables: all or none, room is checked first, nothing is left behind, other clients do not wait."""

import os
import pathlib
import shutil
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import shmreplay as sr
from tests.support.daemons import DaemonProcess, RawClient, Run, StartDaemon, table
from tests.support.namespaces import needs_mount
from tests.support.waiting import eventually


def big_table(name: str, num_bytes: int) -> sr.Table:
    """A table whose data segment takes about this many bytes."""
    return sr.Table(name, {"x": sr.ArraySpec((1024,), "uint8")}, num_bytes // 1024, max_streams=1, max_sessions=8)


def test_creating_the_same_tables_again_is_a_no_op(daemon: DaemonProcess, client: sr.Client) -> None:
    client.create_tables([table("a"), table("b")])
    before = daemon.segments()
    client.create_tables([table("b"), table("a")])
    client.create_tables([table("a")])
    assert daemon.segments() == before


def test_other_specs_under_a_name_are_refused_with_the_difference(client: sr.Client) -> None:
    client.create_tables([table()])
    other = sr.Table("replay", {"x": sr.ArraySpec((4,), "float32")}, 1000, sampler=sr.selectors.Fifo())
    with pytest.raises(ValueError, match="table 'replay' exists with other specs") as raised:
        client.create_tables([other])
    for part in ("sampler: is Uniform(), asked for Fifo()", "x", "n", "drop it first"):
        assert part in str(raised.value)


def test_all_tables_of_a_call_are_created_or_none(daemon: DaemonProcess, client: sr.Client) -> None:
    client.create_tables([table("old")])
    before = daemon.segments()
    with pytest.raises(ValueError, match="table 'old' exists with other specs"):
        client.create_tables([table("new"), table("old", max_size=7)])
    with pytest.raises(sr.ShmReplayError, match="needs"):
        client.create_tables([table("new"), table("huge", max_size=2**31 - 2, item_steps=1000)])
    assert daemon.segments() == before
    assert list(client.tables()) == ["old"]


def test_more_memory_than_there_is_says_needed_total_free_and_what_to_do(
    daemon: DaemonProcess, client: sr.Client
) -> None:
    with pytest.raises(sr.ShmReplayError) as raised:
        client.create_tables([table("huge", max_size=2**31 - 2, item_steps=1000)])
    text = str(raised.value)
    assert "arena 'huge' (table 'huge') needs " in text
    assert " in all and " in text
    assert " free; " in text
    assert "a smaller max_size" in text
    assert daemon.segments() == {}


def test_many_clients_that_create_the_same_tables_at_once_all_get_them(daemon: DaemonProcess) -> None:
    barrier = threading.Barrier(16)

    def create(_: int) -> None:
        with daemon.connect() as client:
            barrier.wait()
            client.create_tables([table("a"), table("b")])
            assert sorted(client.tables()) == ["a", "b"]

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(create, range(16)))
    assert len(daemon.segments()) == 4


@pytest.mark.long
def test_a_long_creation_holds_up_nobody_else(daemon: DaemonProcess, client: sr.Client) -> None:
    """While 1 GiB is reserved for one client, another client gets answers and creates its own table."""
    with daemon.connect() as patient:
        creating = threading.Thread(target=patient.create_tables, args=([big_table("big", 2**30)],))
        creating.start()
        answers = 0
        while creating.is_alive():
            client.stats()
            answers += 1
            if answers == 1:
                client.create_tables([table("small")])
        creating.join()
        assert answers > 3
        assert sorted(client.tables()) == ["big", "small"]


def test_stopping_in_the_middle_of_a_creation_leaves_nothing(daemon: DaemonProcess, client: sr.Client) -> None:
    problems: list[BaseException] = []

    def create() -> None:
        try:
            client.create_tables([big_table("big", 2**30)])
        except sr.ShmReplayError as problem:
            problems.append(problem)

    creating = threading.Thread(target=create)
    creating.start()
    while not daemon.segments():
        pass  # the listing of a directory is all there is to wait with
    assert daemon.stop() == 0
    creating.join()
    assert daemon.left_behind() == []
    if problems:  # otherwise it was quicker than the signal
        assert "the daemon is stopping" in str(problems[0])


def test_killing_the_daemon_in_the_middle_of_a_creation_leaves_nothing_to_the_next_one(daemon: DaemonProcess) -> None:
    with RawClient(daemon.socket) as raw:
        raw.hello()
        raw.send({"command": "create_tables", "tables": [big_table("big", 2**30).to_wire()]})
        while not daemon.segments():
            pass
        daemon.kill()
    daemon.start()
    with daemon.connect() as client:
        client.create_tables([table("big")])
        assert client.tables()["big"]["spec"] == table("big")


def test_tables_of_one_arena_share_one_pair_of_segments(daemon: DaemonProcess, client: sr.Client) -> None:
    tables = [table("a", arena="shared"), table("b", arena="shared", sampler=sr.selectors.Fifo())]
    client.create_tables(tables)
    assert [name.split(".")[2] for name in daemon.segments()] == ["shared", "shared"]
    one, two = client._attach("a"), client._attach("b")
    assert one.arena is two.arena
    assert (one.index, two.index) == (0, 1)
    client.create_tables(tables)
    with pytest.raises(ValueError, match=r"arena 'shared' exists with tables a, b; c cannot be added"):
        client.create_tables([table("c", arena="shared")])
    with pytest.raises(sr.ShmReplayError, match="table 'a' shares arena 'shared' with 'b'"):
        client.drop_table("a")


def test_tables_of_one_arena_go_together_and_wake_the_calls_blocked_in_any_of_them(
    daemon: DaemonProcess, client: sr.Client
) -> None:
    shared = [table("a", arena="shared"), table("b", arena="shared")]
    client.create_tables([*shared, table("alone"), table("kept")])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.table("b").sample, 1)
        eventually(lambda: client.tables()["b"]["blocked_samples"] == 1)
        with pytest.raises(
            sr.ShmReplayError,
            match=r"table 'a' shares arena 'shared' with 'b' and cannot be dropped .* drop_tables\(\['a', 'b'\]\)",
        ):
            client.drop_tables(["alone", "a"])
        with pytest.raises(sr.TableNotFound, match="no table 'nobody'"):
            client.drop_tables(["alone", "nobody"])
        assert sorted(client.tables()) == ["a", "alone", "b", "kept"]
        assert not waiting.done()
        client.drop_tables(["b", "alone", "a", "b"])
        with pytest.raises(sr.TableClosed):
            waiting.result()
    assert sorted(client.tables()) == ["kept"]
    assert {name.split(".")[2] for name in daemon.segments()} == {"kept"}
    client.create_tables(shared)
    assert len(client.table("a")) == 0


def test_drop_tables_wants_a_list_of_names(client: sr.Client) -> None:
    with pytest.raises(TypeError, match=r"expected a list of names, got 'a'; write \['a'\]"):
        client.drop_tables("a")
    with pytest.raises(TypeError, match="the table's name is 3"):
        client.drop_tables([3])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="expected at least one name"):
        client.drop_tables([])
    for wrong in (None, [], "a", [3]):
        with pytest.raises(sr.ShmReplayError, match="expected a list of names"):
            client._request("drop_tables", tables=wrong)


@pytest.mark.parametrize("kind", ["index", "data"])
def test_a_segment_truncated_under_the_daemon_fails_its_arena_and_nothing_else(
    daemon: DaemonProcess, client: sr.Client, kind: str
) -> None:
    client.create_tables([table("a"), table("b")])
    os.truncate(daemon.store.path(f"shmreplay.{daemon.instance}.a.{kind}"), 0)
    with pytest.raises(sr.SegmentFailed, match=f"arena 'a' has failed: its {kind} segment has 0 bytes instead of"):
        client._attach("a")
    assert "truncated it" in daemon.log()
    client._attach("b")
    assert "truncated" in client.stats()["arenas"]["a"]["failure"]
    assert client.stats()["arenas"]["b"]["failure"] is None
    assert sorted(client.tables()) == ["a", "b"]
    with pytest.raises(sr.SegmentFailed):
        client.reset("a")
    client.drop_table("a")
    client.create_tables([table("a")])
    client._attach("a")


def test_a_segment_unlinked_by_somebody_is_shown(daemon: DaemonProcess, client: sr.Client) -> None:
    client.create_tables([table()])
    assert not client.stats()["arenas"]["replay"]["is_unlinked"]
    os.unlink(daemon.store.path(f"shmreplay.{daemon.instance}.replay.data"))
    assert client.stats()["arenas"]["replay"]["is_unlinked"]
    client._attach("replay")  # by descriptors, which names have nothing to do with


# --- file systems of the test's own ----------------------------------------------------------------------------------


FULL = """
import os
import numpy as np
import shmreplay as sr
def big(n):
    return sr.Table("replay", {"x": sr.ArraySpec((1024,), "uint8")}, n << 10, max_streams=1, max_sessions=8)
with sr.Server() as server, server.client() as client:
    try:
        client.create_tables([big(100)])
    except sr.ShmReplayError as error:
        print(error, flush=True)
    print(sorted(name.split(".")[-1] for name in os.listdir("/dev/shm")), flush=True)
    client.create_tables([big(20)])
    print(list(client.tables()), flush=True)
print(os.listdir("/dev/shm"), flush=True)
"""


@needs_mount
def test_a_dev_shm_of_64_mb_gives_an_error_and_nothing_is_left(run_script: Run) -> None:
    mounted = 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"'
    script = run_script(FULL, wrapper=("unshare", "--mount", "sh", "-c", mounted, "sh"))
    code, out, err = script.finish()
    assert (code, err) == (0, "")
    error, left, tables, end = out.splitlines()
    assert "the file system at /dev/shm has 64.0 MiB in all and 64.0 MiB free" in error
    assert "--shm-size" in error
    assert left == "['lock']"
    assert tables == "['replay']"
    assert end == "[]"


FILLED = """
import os, sys
import shmreplay as sr
import shmreplay.daemon.arenas.creation as creation
from shmreplay.daemon.main import main
creation.check_room = lambda *arguments, **options: None  # as if another process took the room right after the check
sys.exit(main())
"""


@needs_mount
@pytest.mark.long
def test_room_that_is_taken_after_the_check_is_an_error_and_nothing_is_left(
    make_daemon: StartDaemon, run_script: Run
) -> None:
    script = run_script(
        """
import os, subprocess, sys
import shmreplay as sr
source, socket = sys.argv[1:]
daemon = subprocess.Popen([sys.executable, "-c", source, "--socket", socket, "--instance", "filled"])
with sr.connect(socket) as client:
    try:
        client.create_tables([sr.Table("replay", {"x": sr.ArraySpec((1024,), "uint8")}, 100 << 10, max_streams=1)])
    except sr.ShmReplayError as error:
        print(error)
    print(os.listdir("/dev/shm"))
    client.shutdown()
print(daemon.wait())
""",
        FILLED,
        make_daemon().socket,
        wrapper=("unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"', "sh"),
    )
    code, out, _ = script.finish()
    assert code == 0
    error, left, ended = out.splitlines()
    assert "the file system of the segments was full after" in error
    assert left == "['shmreplay.filled.lock']"
    assert ended == "0"


@needs_mount
def test_a_directory_on_another_tmpfs_holds_the_segments(run_script: Run, tmp_path: pathlib.Path) -> None:
    script = run_script(
        """
import os, sys
import shmreplay as sr
folder = sys.argv[1]
table = sr.Table("replay", {"x": sr.ArraySpec((1024,), "uint8")}, 1000, max_streams=1)
with sr.Server(tables=[table], directory=folder) as server, server.client() as client:
    client._attach("replay")
    print(sorted(name.split(".")[-1] for name in os.listdir(folder)))
    print([name for name in os.listdir("/dev/shm") if f"embedded-{os.getpid()}-" in name])
print(os.listdir(folder))
""",
        str(tmp_path),
        wrapper=("unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o size=64m tmpfs {tmp_path} && exec "$@"', "sh"),
    )
    assert script.finish() == (0, "['data', 'index', 'lock']\n[]\n[]\n", "")


@needs_mount
def test_a_directory_on_a_disk_is_refused(run_script: Run, tmp_path: pathlib.Path) -> None:
    image = tmp_path / "image"
    with open(image, "wb") as file:
        file.truncate(16 << 20)
    made = (
        subprocess.run(["mkfs.ext4", "-q", str(image)], capture_output=True, check=False)
        if shutil.which("mkfs.ext4")
        else None
    )
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = f'mount -o loop {image} {folder} && exec "$@"'
    if (
        made is None
        or made.returncode != 0
        or subprocess.run(
            ["unshare", "--mount", "sh", "-c", mounted, "sh", "true"], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("this machine cannot mount a disk of the test's own")
    script = run_script(
        "import sys\nimport shmreplay as sr\n"
        "try:\n    sr.Server(tables=[sr.Table('a', {'x': sr.ArraySpec((), 'int64')}, 9)], directory=sys.argv[1])\n"
        "except sr.ShmReplayError as error:\n    print(error)\n",
        str(folder),
        wrapper=("unshare", "--mount", "sh", "-c", mounted, "sh"),
    )
    _, out, err = script.finish()
    assert err == ""
    assert "it is on ext4, and shared memory needs a tmpfs" in out


@pytest.fixture
def shm_folder() -> Iterator[str]:
    path = f"/dev/shm/folder.{os.getpid()}"
    os.mkdir(path)
    yield path
    shutil.rmtree(path)


@pytest.mark.long
def test_a_killed_daemon_with_a_directory_is_succeeded_too(shm_folder: str, make_daemon: StartDaemon) -> None:
    daemon = make_daemon(directory=shm_folder).start()
    with daemon.connect() as client:
        client.create_tables([table()])
    daemon.kill()
    assert len(os.listdir(shm_folder)) == 3
    daemon.start()
    with daemon.connect() as client:
        assert list(client.tables()) == ["replay"]
    assert daemon.stop() == 0
    assert os.listdir(shm_folder) == []

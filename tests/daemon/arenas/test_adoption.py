"""What the next daemon makes of the arenas and sessions that a killed one left, damaged ones too."""

import asyncio
import errno
import logging
import os
import pathlib
import struct
import tempfile
from collections.abc import Callable, Iterator
from typing import NoReturn

import numpy as np
import pytest

from shmreplay import _core
from shmreplay.daemon.arenas.adoption import Adoption
from shmreplay.daemon.arenas.arena import ManagedArena
from shmreplay.daemon.arenas.registry import Registry
from shmreplay.daemon.loop.workers import Workers
from shmreplay.errors import ShmReplayError
from shmreplay.segments.arena_mark import ArenaMark
from shmreplay.segments.segment import Doing, SegmentStore, segment_names
from tests.support.daemons import DaemonProcess, Run, StartDaemon, table
from tests.support.namespaces import IN_OWN_PIDS, NEXT_PID, needs_own_pids

# A client ends while no daemon runs, and a thread gets its pid. Then the next daemon starts.
A_THREAD_HAS_A_CLIENTS_PID = f"""
import os, signal, subprocess, sys, threading
import numpy as np
import shmreplay as sr
{NEXT_PID}
socket, instance = sys.argv[1:]

def start():
    ready, ready_for_child = os.pipe()
    command = [sys.executable, "-m", "shmreplay.daemon", "--socket", socket, "--instance", instance]
    command += ["--ready-fd", str(ready_for_child)]
    daemon = subprocess.Popen(command, pass_fds=(ready_for_child,))
    os.close(ready_for_child)
    said = os.read(ready, 16)
    os.close(ready)
    assert said == b"ready\\n", f"the daemon ended with code {{daemon.wait()}}"
    return daemon

daemon = start()
client = sr.connect(socket)
client.create_tables([sr.Table("replay", {{"x": np.zeros(3, np.float32)}}, max_size=1000)])
attach = "import sys, shmreplay as sr; t = sr.connect(sys.argv[1]).table('replay'); print(len(t), flush=True); input()"
actor = subprocess.Popen([sys.executable, "-c", attach, socket], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
assert actor.stdout.readline() == b"0\\n"
daemon.kill()
daemon.wait()
actor.kill()
actor.wait()
done = threading.Event()
next_is(actor.pid)
thread = threading.Thread(target=done.wait)
thread.start()
try:
    assert thread.native_id == actor.pid
    daemon = start()
    while client.stats()["arenas"]["replay"]["sessions"]:
        os.sched_yield()
    print(list(client.tables()))
    daemon.terminate()
    assert daemon.wait() == 0
finally:
    done.set()
"""


@needs_own_pids
def test_a_thread_with_the_pid_of_a_dead_client_keeps_no_daemon_from_its_arenas(
    make_daemon: StartDaemon, run_script: Run
) -> None:
    """The daemon takes back what the client held."""
    place = make_daemon()
    script = run_script(A_THREAD_HAS_A_CLIENTS_PID, place.socket, place.instance, wrapper=IN_OWN_PIDS)
    code, out, err = script.finish()
    assert (code, out) == (0, "['replay']\n"), err
    assert "taken over with 0 live sessions; processes that have ended meanwhile" in err


# --- damage ----------------------------------------------------------------------------------------------------------

INSTANCE = "adoption"


def session_offset(index: bytes, pid: int) -> int:
    """Where the record of a process' session begins: the session's state, pid and role, start time, 8 bytes each."""
    return index.index(struct.pack("<IIQ", pid, 0, _core.process_start_time(pid))) - 8


@pytest.mark.parametrize(
    ("offset", "word", "reason"),
    [
        (8, 0, "its pid is 0"),
        (8, 2**31 + 5, "its pid is 2147483653"),
        (0, 0, "it is free, but has process"),
    ],
)
@pytest.mark.one_quick
def test_a_session_that_nobody_can_have_sets_its_arena_aside_and_no_other(
    daemon: DaemonProcess, offset: int, word: int, reason: str
) -> None:
    with daemon.connect() as client:
        client.create_tables([table("a"), table("b")])
        client.table("a").insert({"x": np.zeros(3, np.float32), "n": np.int64(1)})
        daemon.kill()
        path = pathlib.Path(daemon.store.path(segment_names(daemon.instance, "a").index))
        with open(path, "r+b") as file:
            at = session_offset(path.read_bytes(), os.getpid()) + offset
            os.pwrite(file.fileno(), struct.pack("<I", word), at)
    before = daemon.segments()
    daemon.start()
    assert "arena 'a' is not taken over: the record of session 0 is damaged: " + reason in daemon.log()
    with daemon.connect() as client:
        assert list(client.tables()) == ["b"]
    assert daemon.segments() == before
    daemon.kill()
    daemon.start("--discard")
    with daemon.connect() as client:
        assert list(client.tables()) == ["b"]
        client.create_tables([table("a")])
    assert "Traceback" not in daemon.log()


@pytest.fixture
def store() -> Iterator[SegmentStore]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield SegmentStore(folder)


def refusing(error: Exception) -> Callable[..., NoReturn]:
    def refuse(*args: object, **options: object) -> NoReturn:
        raise error

    return refuse


def left_aside(store: SegmentStore, caplog: pytest.LogCaptureFixture, *, discard: bool = False) -> str:
    """Has an adoption look at the segments, none of which it takes over, and returns what it says."""
    before = sorted(os.listdir(store.directory))
    with caplog.at_level(logging.ERROR):
        assert Adoption(store, INSTANCE, None, discard=discard).adopt_all() == []
    assert sorted(os.listdir(store.directory)) == before
    return caplog.text


@pytest.fixture
def arena(store: SegmentStore) -> Iterator[ManagedArena]:
    """Arena `a`, which this process uses."""

    async def main() -> ManagedArena:
        registry = Registry(store, INSTANCE, None, Workers())
        await registry.create_tables([table("a")], lambda describe: None)
        return registry.arenas[0]

    arena = asyncio.run(main())
    yield arena
    arena.close()


def ready_offset(index_fd: int) -> int:
    """Where the word is that says that the arena is in use."""
    for offset in range(0, 4096, 4):
        word = os.pread(index_fd, 4, offset)
        os.pwrite(index_fd, bytes(4), offset)
        header = _core.inspect_header(index_fd)
        os.pwrite(index_fd, word, offset)
        if header["magic_ok"] and header["ready"] == 0:
            return offset
    pytest.fail("there is no such word")


@pytest.mark.parametrize(
    ("word", "reason"),
    [(0, "is not in use yet, but a process uses it"), (3, "its word for being ready is 3, expected 1")],
)
def test_an_arena_in_use_is_not_removed_where_its_header_is_damaged(
    store: SegmentStore, arena: ManagedArena, caplog: pytest.LogCaptureFixture, word: int, reason: str
) -> None:
    os.pwrite(arena.fds[0], struct.pack("<I", word), ready_offset(arena.fds[0]))
    assert reason in left_aside(store, caplog)


def test_an_arena_that_a_mark_names_and_that_cannot_be_removed_is_not_taken_over(
    store: SegmentStore, arena: ManagedArena, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: SegmentStore, instance: str, name: str) -> None:
        raise ShmReplayError("it is stuck")

    ArenaMark(store, INSTANCE, ["a"], Doing.DROPPING).set()
    monkeypatch.setattr(SegmentStore, "remove_arena", refuse)
    assert "says that it was to be removed, but it is stuck" in left_aside(store, caplog)


@pytest.mark.parametrize("discard", [False, True])
@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("shmreplay.segments.segment.SegmentStore.open", OSError(errno.EMFILE, "Too many open files")),
        ("shmreplay.daemon.arenas.adoption.ManagedArena", OSError(errno.ENOMEM, "Cannot allocate memory")),
        ("shmreplay.daemon.arenas.adoption.unpack_specs", MemoryError("no room")),
        ("shmreplay.daemon.arenas.adoption._core.inspect_header", OSError(errno.EIO, "Input/output error")),
    ],
)
def test_what_this_process_lacks_is_not_held_against_an_arena(
    store: SegmentStore,
    arena: ManagedArena,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    discard: bool,
    where: str,
    error: Exception,
) -> None:
    """It stays, with --discard too: nothing is known to be wrong with it."""
    with monkeypatch.context() as patch:
        patch.setattr(where, refusing(error))
        text = left_aside(store, caplog, discard=discard)
    assert "arena 'a' is not taken over, and stays as it is, with --discard too: it cannot be looked at: " in text
    assert str(error) in text
    adopted = Adoption(store, INSTANCE, None, discard=False).adopt_all()
    assert [one.name for one in adopted] == ["a"]
    adopted[0].close()


@pytest.mark.parametrize("discard", [False, True])
def test_what_may_be_in_use_is_kept_where_nobody_can_say(
    store: SegmentStore,
    arena: ManagedArena,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    discard: bool,
) -> None:
    os.pwrite(arena.fds[0], struct.pack("<I", 0), ready_offset(arena.fds[0]))
    error = OSError(errno.EMFILE, "Too many open files")
    monkeypatch.setattr("shmreplay.segments.segment_users._can_be_leased", refusing(error))
    assert "nobody can say whether" in left_aside(store, caplog, discard=discard)


@pytest.mark.parametrize("fact", ["boot_id", "own_namespace"])
def test_without_a_boot_or_a_namespace_no_arena_is_looked_at(
    store: SegmentStore, arena: ManagedArena, monkeypatch: pytest.MonkeyPatch, fact: str
) -> None:
    """All of them would look foreign."""
    monkeypatch.setattr(f"shmreplay.daemon.arenas.adoption.{fact}", refusing(OSError(errno.EMFILE, "too many")))
    before = sorted(os.listdir(store.directory))
    with pytest.raises(OSError, match="too many"):
        Adoption(store, INSTANCE, None, discard=True)
    assert sorted(os.listdir(store.directory)) == before


def test_a_fault_of_ours_in_one_arena_is_logged_and_sets_it_aside(
    store: SegmentStore, arena: ManagedArena, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shmreplay.daemon.arenas.adoption.unpack_specs", lambda specs: 1 // 0)
    text = left_aside(store, caplog)
    assert "Traceback" in text
    assert "arena 'a' is not taken over: looking at it failed (ZeroDivisionError" in text

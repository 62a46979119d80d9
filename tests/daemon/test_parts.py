"""Parts of the daemon on their own: instance lock, the socket's directory, reaper, parent watch, workers."""

import asyncio
import errno
import gc
import os
import pathlib
import re
import secrets
import stat
import subprocess
import threading
from collections.abc import Iterator

import pytest

import shmreplay as sr
from shmreplay import _core
from shmreplay.daemon.arenas.reaper import Reaper, Session
from shmreplay.daemon.config.configuration import DaemonConfig
from shmreplay.daemon.control.socket_directory import make_socket_directory
from shmreplay.daemon.loop.bounded_wait import within
from shmreplay.daemon.loop.workers import Workers
from shmreplay.daemon.process.instance_lock import InstanceLock
from shmreplay.daemon.process.parent_watch import watch_parent
from shmreplay.errors import ShmReplayError
from shmreplay.segments.segment import SegmentStore, lock_name

WAIT_S = 30.0


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that sleeps until it is killed."""
    process = subprocess.Popen(["sleep", "1000"])
    yield process
    process.kill()
    process.wait()


# --- the instance lock -----------------------------------------------------------------------------------------------


@pytest.fixture
def instance() -> str:
    return f"unit-{secrets.token_hex(6)}"


def test_a_lock_is_had_once_and_again_after_its_release(instance: str) -> None:
    store = SegmentStore()
    path = store.path(lock_name(instance))
    lock = InstanceLock(store, instance, "/run/x.sock")
    with open(path, encoding="utf-8") as file:
        assert file.read() == f"{os.getpid()}\n/run/x.sock\n"
    with pytest.raises(sr.ShmReplayError, match=f"has a daemon already, pid {os.getpid()}"):
        InstanceLock(store, instance)
    lock.release()
    assert not os.path.exists(path)
    InstanceLock(store, instance).release()


def test_a_lock_file_that_nobody_holds_is_taken_over(instance: str) -> None:
    store = SegmentStore()
    with open(store.path(lock_name(instance)), "w", encoding="utf-8") as file:
        file.write("a daemon that was killed, with a long story to tell\n" * 9)
    lock = InstanceLock(store, instance)
    with open(lock.path, encoding="utf-8") as file:
        assert file.read() == f"{os.getpid()}\n\n"
    lock.release()


def test_releasing_a_lock_whose_file_was_removed_leaves_that_of_the_successor(instance: str) -> None:
    store = SegmentStore()
    first = InstanceLock(store, instance)
    os.unlink(first.path)
    second = InstanceLock(store, instance)
    first.release()
    assert os.path.exists(second.path)
    second.release()


def test_a_lock_is_not_inherited_by_programs_that_are_started(instance: str) -> None:
    lock = InstanceLock(SegmentStore(), instance)
    listed = subprocess.run(["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, check=True, close_fds=False)
    lock.release()
    assert instance not in listed.stdout


# --- the socket's directory ------------------------------------------------------------------------------------------


def test_of_the_sockets_directory_one_level_is_made(tmp_path: pathlib.Path) -> None:
    made = tmp_path / "one"
    assert make_socket_directory(DaemonConfig(str(made / "x.sock")))
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert not make_socket_directory(DaemonConfig(str(made / "x.sock"))), "it was there"
    directory, parent = tmp_path / "a" / "b", tmp_path / "a"
    text = f"directory {directory}: {parent} is not there, and only one level is made; make it, or choose another"
    with pytest.raises(ShmReplayError, match=re.escape(text)):
        make_socket_directory(DaemonConfig(str(directory / "x.sock")))
    assert not parent.exists()


def test_who_may_not_make_the_sockets_directory_is_told_where_it_could_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    def refuse(path: str, mode: int) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "mkdir", refuse)
    config = DaemonConfig("/run/none/default.sock")
    refused = "cannot make the socket's directory /run/none: Permission denied; choose another --socket, such as "
    for runtime, path in (
        (str(tmp_path), f"{tmp_path}/shmreplay/default.sock, where clients look by themselves"),
        ("/nowhere", "/home/me/.shmreplay/default.sock, and give clients that path in SHMREPLAY_SOCKET"),
    ):
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        monkeypatch.setenv("HOME", "/home/me")
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


# --- the reaper ------------------------------------------------------------------------------------------------------


def test_deaths_are_heard_of_and_every_session_is_closed_once(sleeper: "subprocess.Popen[bytes]") -> None:
    async def main() -> list[Session]:
        closed: list[Session] = []
        both = asyncio.Event()

        async def close(session: Session) -> None:
            closed.append(session)
            if len(closed) == 2:
                both.set()

        reaper = Reaper(close)
        start_time = _core.process_start_time(sleeper.pid)
        process = reaper.watch(sleeper.pid, start_time)
        assert reaper.watch(sleeper.pid, start_time, os.pidfd_open(sleeper.pid)) is process
        process.sessions |= {Session("a", 0, 1), Session("b", 3, 2)}
        sleeper.kill()
        await asyncio.wait_for(both.wait(), WAIT_S)
        assert process.is_dead
        assert reaper.processes == []
        sleeper.wait()
        with pytest.raises(ProcessLookupError):
            reaper.watch(sleeper.pid, start_time)
        return closed

    closed = asyncio.run(main())
    assert sorted(session.arena for session in closed) == ["a", "b"]


def test_a_pid_that_another_process_has_now_is_a_death(sleeper: "subprocess.Popen[bytes]") -> None:
    async def main() -> None:
        reaper = Reaper(lambda session: asyncio.sleep(0))
        start_time = _core.process_start_time(sleeper.pid)
        with pytest.raises(ProcessLookupError, match="another one has its pid"):
            reaper.watch(sleeper.pid, start_time - 1)
        assert reaper.processes == []

    asyncio.run(main())


def test_a_hidden_start_time_is_no_death(sleeper: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shmreplay._core.process_start_time", lambda pid: 0)

    async def main() -> None:
        reaper = Reaper(lambda session: asyncio.sleep(0))
        assert reaper.watch(sleeper.pid, 12345).pid == sleeper.pid
        reaper.close()

    asyncio.run(main())


def test_a_session_that_cannot_be_closed_is_logged(
    sleeper: "subprocess.Popen[bytes]", caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async def close(session: Session) -> None:
            raise sr.SegmentFailed("broken")

        reaper = Reaper(close)
        reaper.reap(Session("a", 0, 1))
        while "could not be taken back: broken" not in caplog.text:
            await asyncio.sleep(0)
        reaper.close()

    asyncio.run(asyncio.wait_for(main(), WAIT_S))


# --- the parent ------------------------------------------------------------------------------------------------------


def test_a_parent_that_is_not_ours_counts_as_ended(sleeper: "subprocess.Popen[bytes]") -> None:
    async def main() -> None:
        assert not watch_parent(sleeper.pid, lambda: None)
        assert not watch_parent(2**22 + 1, lambda: None)  # above any pid_max
        assert watch_parent(os.getppid(), lambda: None)

    asyncio.run(main())


# --- bounded waits ---------------------------------------------------------------------------------------------------


def test_a_bounded_wait_returns_raises_or_times_out() -> None:
    async def give(value: int) -> int:
        return value

    async def fail() -> None:
        raise ValueError("own")

    async def main() -> None:
        assert await within(WAIT_S, give(3)) == 3
        assert await within(None, give(4)) == 4
        with pytest.raises(ValueError, match="own"):
            await within(WAIT_S, fail())
        with pytest.raises(TimeoutError):
            await within(0.01, asyncio.Event().wait())

    asyncio.run(main())


def test_a_cancellation_that_comes_just_when_the_work_ends_is_not_lost() -> None:
    async def main() -> None:
        event = asyncio.Event()
        waiting = asyncio.ensure_future(within(WAIT_S, event.wait()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        event.set()
        await asyncio.sleep(0)  # the inner work ends in this step
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())


def test_an_error_that_comes_with_a_cancellation_is_no_loose_end() -> None:
    """asyncio would log "Task exception was never retrieved" with a traceback, as of a client that was killed."""

    async def fail() -> None:
        raise BrokenPipeError

    async def main() -> None:
        loose: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: loose.append(context["message"]))
        waiting = asyncio.ensure_future(within(WAIT_S, fail()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # the inner work ends in this step
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        del waiting
        gc.collect()
        assert loose == []

    asyncio.run(main())


def test_work_that_is_cut_short_has_ended_when_the_wait_returns() -> None:
    async def main() -> None:
        ended: list[str] = []

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                ended.append("work")

        with pytest.raises(TimeoutError):
            await within(0.01, work())
        assert ended == ["work"]
        waiting = asyncio.ensure_future(within(None, work()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert ended == ["work", "work"]

    asyncio.run(main())


# --- the workers -----------------------------------------------------------------------------------------------------


def test_workers_return_raise_and_say_whether_all_came_back() -> None:
    began, stuck = threading.Event(), threading.Event()

    def wait_for_long() -> None:
        began.set()
        stuck.wait()

    async def main() -> Workers:
        workers = Workers()
        assert await workers.run(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await workers.run(divmod, 7, 0)
        pending = asyncio.ensure_future(workers.run(wait_for_long))
        assert await workers.run(began.wait, 60)  # work that no thread has begun is only dropped by the cancel
        pending.cancel()
        return workers

    assert not asyncio.run(main()).close()
    stuck.set()

    async def nothing_left() -> Workers:
        workers = Workers()
        await workers.run(int)
        return workers

    assert asyncio.run(nothing_left()).close()

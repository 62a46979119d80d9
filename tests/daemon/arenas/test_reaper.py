"""The reaper: it notices each death, and closes each session of a dead process once."""

import asyncio
import os
import subprocess

import pytest

import shmreplay as sr
from shmreplay import _core
from shmreplay.daemon.arenas.reaper import Reaper, Session
from tests.support.waiting import WAIT_S


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
        with pytest.raises(ProcessLookupError, match="another process has its pid"):
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

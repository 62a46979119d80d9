"""Reaper: learns of the deaths of client processes from the kernel, and gives back what they held.

A process is dead if its pidfd says so, or if `open_process` does when the daemon begins to watch it. A process that
closed its socket, is silent, or is stopped is not dead. Clients send no heartbeat.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from shmreplay.base.process_names import process_name
from shmreplay.base.processes import check_start_time, open_process

log = logging.getLogger("shmreplayd")


@dataclass(frozen=True)
class Session:
    """One process' session in one arena."""

    arena: str
    index: int
    generation: int


@dataclass(eq=False)
class ClientProcess:
    """A process with sessions, watched until it ends."""

    pid: int
    start_time: int
    pidfd: int
    name: str  # the kernel's, for the log; empty if hidden
    is_dead: bool = False
    sessions: set[Session] = field(default_factory=set)

    def session_in(self, arena: str) -> Session | None:
        """Its session in an arena, if any. May be asked on a worker: the copy is made at once."""
        return next((session for session in tuple(self.sessions) if session.arena == arena), None)


class Reaper:
    """Watches processes on the event loop. Passes the sessions of dead ones to `close_session`."""

    def __init__(self, close_session: Callable[[Session], Awaitable[None]]) -> None:
        self._close_session = close_session
        self._processes: dict[tuple[int, int], ClientProcess] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.num_deaths = 0

    @property
    def processes(self) -> list[ClientProcess]:
        return list(self._processes.values())

    def watch(self, pid: int, start_time: int, pidfd: int | None = None) -> ClientProcess:
        """Starts to watch a process, and returns its record. Owns `pidfd`. Raises ProcessLookupError if it is dead.

        The process stays watched until it dies, even without sessions: it may be about to open another one.
        """
        known = self._processes.get((pid, start_time))
        if known is not None:
            if pidfd is not None:
                os.close(pidfd)
            return known
        if pidfd is None:
            pidfd = open_process(pid, start_time)
        else:
            try:
                check_start_time(pid, start_time)
            except ProcessLookupError:
                os.close(pidfd)
                raise
        process = ClientProcess(pid, start_time, pidfd, process_name(pid))
        try:
            asyncio.get_running_loop().add_reader(pidfd, self._on_death, process)
        except OSError:  # as when fs.epoll.max_user_watches is used up
            os.close(pidfd)
            raise
        self._processes[pid, start_time] = process
        return process

    def _on_death(self, process: ClientProcess) -> None:
        self._forget(process)
        process.is_dead = True
        if process.sessions:  # otherwise it had closed its clients
            self.num_deaths += 1
            arenas = ", ".join(sorted(repr(session.arena) for session in process.sessions))
            log.info(
                "process %d (%s) ended while attached; taking back its writers, leases and chunks in %s",
                process.pid,
                repr(process.name) if process.name else "its name is hidden",
                arenas,
            )
        for session in process.sessions:
            self.reap(session)

    def reap(self, session: Session) -> None:
        """Closes a dead process' session in the background, as soon as the arena's lock is free."""
        task = asyncio.ensure_future(self._close_session(session))
        self._tasks.add(task)
        task.add_done_callback(self._reaped)

    def _reaped(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a dead client's session could not be taken back: %s", task.exception())

    def forget_arena(self, arena: str) -> None:
        """Forgets all sessions of a dropped arena."""
        for process in self._processes.values():
            process.sessions = {session for session in process.sessions if session.arena != arena}

    def _forget(self, process: ClientProcess) -> None:
        asyncio.get_running_loop().remove_reader(process.pidfd)
        os.close(process.pidfd)
        del self._processes[process.pid, process.start_time]

    def close(self) -> None:
        """Stops watching. Leaves sessions as they are."""
        for process in self.processes:
            self._forget(process)
        for task in self._tasks:
            task.cancel()

"""Crew: the demo's processes, started and ended together."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing import connection, resource_tracker
from multiprocessing.context import SpawnProcess
from types import TracebackType

from shmreplay.base.blocked_signals import signals_blocked
from shmreplay.clients.demo.actor import act
from shmreplay.clients.demo.interrupts import NUMBERS
from shmreplay.clients.demo.learner import learn
from shmreplay.errors import ShmReplayError

GRACE_S = 1.0  # for a process to notice that the tables are closed

Work = Callable[..., Iterable[float] | None]


@dataclass(frozen=True)
class Member:
    """A process, and the end of the pipe where its reports arrive: floats, and a text if it failed."""

    name: str
    process: SpawnProcess
    reports: connection.Connection


class Crew:
    """One learner and some actors. Leaving the context ends those that are still there.

    They end by themselves when the tables are closed: close the server first.
    """

    def __init__(self) -> None:
        self._members: list[Member] = []

    def start(self, address: str, num_actors: int, seed: int) -> None:
        """Starts the processes. The address is all that they need to find the tables."""
        # There are many processes on few cores: threads of a matrix product would only wait for each other.
        os.environ["OMP_NUM_THREADS"] = "1"
        with _interrupts_blocked():
            self._add("the learner", learn, address, seed)
            for index in range(num_actors):
                self._add(f"actor {index}", act, address, index, num_actors, seed)

    def add_actor(self, address: str, index: int, num_actors: int, seed: int, num_steps: int) -> int:
        """Starts one more actor, which explores as one that made so many steps. Returns its process id."""
        with _interrupts_blocked():
            self._add(f"actor {index}", act, address, index, num_actors, seed, num_steps)
        return self._members[-1].process.pid or 0

    def kill(self, name: str) -> int:
        """Kills a process with SIGKILL. Its end is then no error. Returns its process id."""
        member = next(member for member in self._members if member.name == name)
        member.process.kill()
        member.process.join()
        self._members.remove(member)
        member.reports.close()
        return member.process.pid or 0

    def _add(self, name: str, work: Work, *arguments: object) -> None:
        # Spawned, not forked: a fork copies locks that other threads hold, and open files.
        context = multiprocessing.get_context("spawn")
        # A pipe for each. A multiprocessing.Queue has a lock that a killed process never releases.
        reports, reports_of_child = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(reports_of_child, work, arguments), name=name, daemon=True)
        process.start()
        reports_of_child.close()  # now only the child has this end, so the pipe ends with the child
        self._members.append(Member(name, process, reports))

    @property
    def pids(self) -> dict[str, int | None]:
        """Process ids by name."""
        return {member.name: member.process.pid for member in self._members}

    def receive(self, timeout_s: float) -> list[float]:
        """Returns what the actors reported. Waits up to `timeout_s` for a report.

        Raises:
            ShmReplayError: a process has ended; the text says which, and how.
        """
        ready = connection.wait([member.reports for member in self._members], timeout_s)
        return [report for member in self._members if member.reports in ready for report in _received(member)]

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        deadline = time.monotonic() + GRACE_S
        for member in self._members:
            member.reports.close()
            member.process.join(max(0.0, deadline - time.monotonic()))
            member.process.kill()  # in case it is stopped, or still starting
            member.process.join()


def _run(reports: connection.Connection, work: Work, arguments: tuple[object, ...]) -> None:
    """What each process runs: the work, reporting what it yields and how it failed."""
    with contextlib.suppress(BrokenPipeError):  # the parent has closed the pipe
        try:
            for report in work(*arguments) or ():
                reports.send(report)
        except Exception:  # noqa: BLE001  # whatever it is, the parent raises it
            reports.send(traceback.format_exc())
            raise SystemExit(1) from None


def _received(member: Member) -> Iterator[float]:
    """The reports in the pipe. Raises ShmReplayError if the process has failed or ended."""
    try:
        while member.reports.poll():
            report = member.reports.recv()
            if isinstance(report, str):
                raise ShmReplayError(f"{_obituary(member)}:\n{report.rstrip()}")
            yield report
    except (EOFError, ConnectionResetError):
        raise ShmReplayError(_obituary(member)) from None


def _obituary(member: Member) -> str:
    member.process.join()
    code = member.process.exitcode or 0
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"{member.name} (process {member.process.pid}) {how}"


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Processes that are started within ignore Ctrl-C and SIGTERM.

    A terminal, or whoever ends the whole job, sends them to all, but only this process acts on them.
    """
    resource_tracker.ensure_running()  # it is a process of multiprocessing, whose start would unblock them
    with signals_blocked(NUMBERS):
        yield

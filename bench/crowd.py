"""Crowd: forked processes that work side by side and count what they do. No library is needed."""

import contextlib
import ctypes
import mmap
import os
import pathlib
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

LINE = 8  # int64 of a cache line
NOTES = 2**17  # the last ones of a process are kept
START_TIMEOUT_S = 120.0
END_TIMEOUT_S = 10.0
PR_SET_PDEATHSIG = 1

Work = Callable[["Tally"], None]


class Tally:
    """What one process of a crowd has done so far; in shared memory, a cache line of its own."""

    def __init__(self, line: NDArray[np.int64], notes: NDArray[np.int64], stop: NDArray[np.int64], gate: int) -> None:
        self._line, self._notes, self._stop, self._gate = line, notes, stop, gate
        self.count = 0
        self._noted = 0

    def start(self) -> None:
        """What comes before is preparation; waits for the others', or the first ones would keep them from it."""
        self._line[2] = 1
        os.read(self._gate, 1)  # ends when the parent closes the other end

    def add(self, n: int) -> None:
        """n more were done."""
        self.count += n
        self._line[0] = self.count

    def note(self, ns: int) -> None:
        """So long one took."""
        self._notes[self._noted % NOTES] = ns
        self._noted += 1
        self._line[1] = self._noted

    def goes_on(self) -> bool:
        """Whether there is more to do."""
        return not self._stop[0]


class Crowd:
    """The processes of `crowd`."""

    def __init__(self, num: int, notes: int) -> None:
        self.pids: list[int] = []
        self.gate, self._bar = os.pipe()
        self._lines = _shared((num + 1, LINE))
        self._notes = _shared((num, notes)) if notes else np.zeros((num, 1), np.int64)

    def tally(self, at: int) -> Tally:
        return Tally(self._lines[at], self._notes[at], self._lines[-1], self.gate)

    def leave_the_bar(self) -> None:
        """In a child: the parent alone holds it."""
        os.close(self._bar)

    def counts(self) -> NDArray[np.int64]:
        """int64 `[processes]`: what each has counted."""
        return self._lines[:-1, 0].copy()

    def start(self) -> None:
        """Has all of them start, and waits until each has counted or noted something.

        Raises:
            RuntimeError: one has ended, or is not at it for two minutes.
        """
        self._wait_for(3)
        self._open_the_gate()
        self._wait_for(2)

    def _open_the_gate(self) -> None:
        if self._bar >= 0:
            os.close(self._bar)
            self._bar = -1

    def _wait_for(self, words: int) -> None:
        """Until one of so many words of each is set: what it counted, what it noted, that it is ready."""
        until = time.monotonic() + START_TIMEOUT_S
        while not self._lines[:-1, :words].any(axis=1).all():
            for pid in self.pids:
                if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                    raise RuntimeError(f"process {pid} of a benchmark has ended before it began to work")
            if time.monotonic() > until:
                raise RuntimeError(f"a process of a benchmark does not begin to work within {START_TIMEOUT_S:.0f} s")
            time.sleep(0.01)

    def rates(self, seconds: float) -> NDArray[np.float64]:
        """float64 `[processes]`: what each counts a second, over so many seconds from now."""
        before, since = self.counts(), time.monotonic()
        time.sleep(seconds)
        after, took = self.counts(), time.monotonic() - since
        return (after - before) / took

    def forget_notes(self) -> None:
        """Notes from now on are the only ones."""
        self._notes[:] = 0

    def notes(self, processes: slice) -> NDArray[np.int64]:
        """What they noted, nanoseconds, in no order."""
        notes = self._notes[processes].ravel()
        return notes[notes > 0]

    def cpu_s(self) -> NDArray[np.float64]:
        """float64 `[processes]`: seconds that each has been on a processor, to the nanosecond."""
        return np.array([on_cpu_s(pid) for pid in self.pids])

    def end(self) -> None:
        """Tells all to end, and ends those who do not: who holds another library's lock has to give it back."""
        self._lines[-1, 0] = 1
        self._open_the_gate()  # for those that have not started yet
        os.close(self.gate)
        until = time.monotonic() + END_TIMEOUT_S
        left = set(self.pids)
        while time.monotonic() < until:
            left = {pid for pid in left if os.waitpid(pid, os.WNOHANG)[0] == 0}
            if not left:
                return
            time.sleep(0.002)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        for pid in left:
            os.waitpid(pid, 0)


@contextlib.contextmanager
def crowd(works: Sequence[Work], notes: bool = False) -> Iterator[Crowd]:
    """Forks a process for each work; yields once all of them are at it; ends them.

    Args:
        works: each a loop that runs as long as its tally goes on.
        notes: whether they note how long things take.
    """
    them = Crowd(len(works), NOTES if notes else 0)
    try:
        for at, work in enumerate(works):
            pid = os.fork()
            if pid == 0:
                them.leave_the_bar()
                _work(work, them.tally(at))
            them.pids.append(pid)
        them.start()
        yield them
    finally:
        them.end()


def _work(work: Work, tally: Tally) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it, also by its own end
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    status = 1
    try:
        work(tally)
        status = 0
    except BaseException:  # noqa: BLE001 - the parent's except clauses are not this process's
        traceback.print_exc()
    finally:
        os._exit(status)


def on_cpu_s(pid: int) -> float:
    """Seconds that the threads of a process have been on a processor, to the nanosecond."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text(encoding="ascii").split()[0])
    return total / 1e9


def _shared(shape: tuple[int, ...]) -> NDArray[np.int64]:
    n = int(np.prod(shape))
    return np.frombuffer(mmap.mmap(-1, n * 8), np.int64, n).reshape(shape)

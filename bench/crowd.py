"""Crowd: forked processes that work side by side and count what they do. Needs only NumPy."""

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

LINE = 8  # int64 numbers in a cache line
NOTES = 2**17  # kept for each process, the newest ones
START_TIMEOUT_S = 120.0
END_TIMEOUT_S = 10.0
PR_SET_PDEATHSIG = 1

Work = Callable[["Tally"], None]


class Tally:
    """The counter of one process of a crowd, in shared memory, in its own cache line."""

    def __init__(self, line: NDArray[np.int64], notes: NDArray[np.int64], stop: NDArray[np.int64], gate: int) -> None:
        self._line, self._notes, self._stop, self._gate = line, notes, stop, gate
        self.count = 0
        self._noted = 0

    def start(self) -> None:
        """Ends the preparation, and waits until all processes are prepared, so that none slows the others down."""
        self._line[2] = 1
        os.read(self._gate, 1)  # ends when the parent closes the other end

    def add(self, n: int) -> None:
        """Counts n more."""
        self.count += n
        self._line[0] = self.count

    def note(self, ns: int) -> None:
        """Notes how long one operation took."""
        self._notes[self._noted % NOTES] = ns
        self._noted += 1
        self._line[1] = self._noted

    def goes_on(self) -> bool:
        """Whether the process should go on."""
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
        """Closes the bar in a child: the parent alone holds it."""
        os.close(self._bar)

    def counts(self) -> NDArray[np.int64]:
        """int64 `[processes]`: the count of each."""
        return self._lines[:-1, 0].copy()

    def start(self) -> None:
        """Starts all processes, and waits until each has counted or noted something.

        Raises:
            RuntimeError: a process has ended, or does not begin within two minutes.
        """
        self._wait_for(3)
        self._open_the_gate()
        self._wait_for(2)

    def _open_the_gate(self) -> None:
        if self._bar >= 0:
            os.close(self._bar)
            self._bar = -1

    def _wait_for(self, words: int) -> None:
        """Waits until one of the first `words` words of each is set: the count, the notes, and whether it is ready."""
        until = time.monotonic() + START_TIMEOUT_S
        while not self._lines[:-1, :words].any(axis=1).all():
            for pid in self.pids:
                if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                    raise RuntimeError(f"process {pid} of a benchmark has ended before it began to work")
            if time.monotonic() > until:
                raise RuntimeError(f"a process of a benchmark does not begin to work within {START_TIMEOUT_S:.0f} s")
            time.sleep(0.01)

    def rates(self, seconds: float) -> NDArray[np.float64]:
        """float64 `[processes]`: counts per second of each, over the next `seconds` seconds."""
        before, since = self.counts(), time.monotonic()
        time.sleep(seconds)
        after, took = self.counts(), time.monotonic() - since
        return (after - before) / took

    def forget_notes(self) -> None:
        """Drops all notes so far."""
        self._notes[:] = 0

    def notes(self, processes: slice) -> NDArray[np.int64]:
        """The notes of these processes, in nanoseconds, in any order."""
        notes = self._notes[processes].ravel()
        return notes[notes > 0]

    def cpu_s(self) -> NDArray[np.float64]:
        """float64 `[processes]`: seconds of processor time of each, exact to the nanosecond."""
        return np.array([on_cpu_s(pid) for pid in self.pids])

    def end(self) -> None:
        """Tells all to end, so that they give locks of other libraries back, and then ends those that do not."""
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
    """Forks a process for each work, yields when all work, and ends them.

    Args:
        works: loops that run as long as their tally goes on.
        notes: whether they note how long operations take.
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
    """Seconds of processor time of all threads of a process, exact to the nanosecond."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text(encoding="ascii").split()[0])
    return total / 1e9


def _shared(shape: tuple[int, ...]) -> NDArray[np.int64]:
    n = int(np.prod(shape))
    return np.frombuffer(mmap.mmap(-1, n * 8), np.int64, n).reshape(shape)

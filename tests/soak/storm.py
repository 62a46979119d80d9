"""A storm: dozens of processes at work while any of them, or their daemon, is killed, stopped or ended at any moment.

Everything is drawn from one seed; what the processes do beside one another is not, so that a seed brings back the same
orders and not the same moments. From time to time the storm holds still: every process is let go on and must get on,
and what the dead were told is compared with what is there. At its end all die, and the arenas must be whole, with
nothing left of the dead.
"""

import contextlib
import os
import pathlib
import select
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from tests.soak import workers
from tests.soak.ledger import Kept, Queued, read
from tests.system.conftest import DaemonProcess
from tests.tables import numbers

GETS_ON_S = 120.0  # a bound on waiting for what must happen, on however busy a machine
ROLES = ("keep", "produce", "consume", "act", "learn", "act in many", "consume", "learn")
MUSTER_EVERY = 25  # events
EVENTS = {"kill": 0.55, "stop": 0.27, "terminate": 0.12, "kill the daemon": 0.06}


@dataclass
class Worker:
    """One process of the storm, as the storm sees it."""

    role: str
    ident: int
    pid: int
    log: pathlib.Path
    is_stopped: bool = False

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)
        self.is_stopped = number == signal.SIGSTOP

    def has_told(self) -> int:
        return self.log.stat().st_size if self.log.exists() else 0

    def wait(self) -> None:
        """Returns when it is dead; it is reaped by then."""
        pidfd = os.pidfd_open(self.pid)
        try:
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            assert poll.poll(GETS_ON_S * 1000), f"{self.role} {self.ident}, pid {self.pid}, does not die"
        finally:
            os.close(pidfd)
        os.waitpid(self.pid, 0)


@dataclass
class Tally:
    """What a storm did and saw; printed, and kept in docs/reliability.md."""

    seed: int
    seconds: float = 0
    processes: int = 0
    events: dict[str, int] = field(default_factory=lambda: dict.fromkeys(EVENTS, 0))
    musters: int = 0
    kept_checked: int = 0
    consumed: int = 0
    may_be_lost: int = 0
    recoveries: int = 0  # holders that died in the lock

    def __str__(self) -> str:
        events = ", ".join(f"{name}: {count}" for name, count in self.events.items())
        return (
            f"seed {self.seed}, {self.seconds:.0f} s, {self.processes} processes; {events}; {self.musters} musters; "
            f"{self.kept_checked} items of the dead compared, {self.consumed} consumed once, "
            f"{self.may_be_lost} in doubt; {self.recoveries} deaths in the lock"
        )


class Storm:
    """`daemon` runs and has no tables yet; `folder` is empty. `count` processes at a time."""

    def __init__(self, daemon: DaemonProcess, folder: pathlib.Path, seed: int, count: int) -> None:
        self._daemon = daemon
        self._folder = folder
        self._rng = np.random.default_rng(seed)
        self._count = count
        self._workers: list[Worker] = []
        self._queued = Queued()
        self._dead_keepers: list[Worker] = []
        self.tally = Tally(seed)
        self._client = daemon.connect()
        self._client.create_tables(workers.tables())
        self._kept = self._client.table("kept")

    def blow(self, seconds: float) -> Tally:
        """The whole storm. Raises AssertionError for what must not be."""
        begin = time.monotonic()
        try:
            while len(self._workers) < self._count:
                self._add()
            while (now := time.monotonic() - begin) < seconds:
                for _ in range(MUSTER_EVERY):
                    self._do_something()
                self._muster()
            self.tally.seconds = now
            self._end()
        finally:
            self._kill_all()
            self._client.close()
        return self.tally

    # --- what happens ------------------------------------------------------------------------------------------------

    def _do_something(self) -> None:
        self._look_for_failures()
        event = str(self._rng.choice(list(EVENTS), p=list(EVENTS.values())))
        self.tally.events[event] += 1
        if event == "kill the daemon":
            self._daemon.kill()
            self._pause(0.3)
            self._daemon.start()
            return
        worker = self._workers[int(self._rng.integers(len(self._workers)))]
        if event == "stop":
            worker.signal(signal.SIGCONT if worker.is_stopped else signal.SIGSTOP)
        elif event == "kill":
            self._bury(worker, signal.SIGKILL)
            self._add()
        else:
            if worker.is_stopped:
                worker.signal(signal.SIGCONT)
            self._go_on_without(worker)
            self._bury(worker, signal.SIGTERM)
            self._add()
        self._pause(0.08)

    def _pause(self, most_s: float) -> None:
        """The moment of the next event: this is the one place where the storm looks at no event to wait for."""
        select.select([], [], [], float(self._rng.random()) * most_s)

    def _go_on_without(self, worker: Worker) -> None:
        """Lets all others go on, so that one that waits for the lock of a stopped one can end."""
        for other in self._workers:
            if other.is_stopped and other is not worker:
                other.signal(signal.SIGCONT)

    def _add(self) -> None:
        ident = self.tally.processes = self.tally.processes + 1
        role = ROLES[ident % len(ROLES)]
        log = self._folder / f"{ident}.log"
        # One in two connects itself, the other takes the client that it inherits.
        client = self._client if self._rng.random() < 0.5 else self._daemon.socket
        seed = int(self._rng.integers(2**31))
        pid = os.fork()
        if pid == 0:
            try:
                workers.run(role, client, ident, log, seed)
            finally:
                os._exit(2)
        self._workers.append(Worker(role, ident, pid, log))

    def _bury(self, worker: Worker, number: int) -> None:
        worker.signal(number)
        worker.wait()
        self._workers.remove(worker)
        if worker.role in ("produce", "consume"):
            self._queued.add(read(worker.log))
        if worker.role == "keep":
            self._dead_keepers.append(worker)
        else:
            worker.log.unlink(missing_ok=True)

    def _look_for_failures(self) -> None:
        failed = next(iter(self._folder.glob("*.failed")), None)
        assert failed is None, failed.read_text()

    # --- what must be true -------------------------------------------------------------------------------------------

    def _muster(self) -> None:
        """Every process goes on, and what the dead were told holds."""
        self.tally.musters += 1
        for worker in self._workers:
            worker.signal(signal.SIGCONT)
        told = {worker.ident: worker.has_told() for worker in self._workers}
        self._eventually(
            lambda: all(worker.has_told() > told[worker.ident] for worker in self._workers),
            lambda: (
                "these do not get on: "
                + ", ".join(f"{w.role} {w.ident} (pid {w.pid})" for w in self._workers if w.has_told() <= told[w.ident])
            ),
        )
        self._compare_kept()

    def _eventually(self, condition: Callable[[], bool], otherwise: Callable[[], str]) -> None:
        deadline = time.monotonic() + GETS_ON_S
        while not condition():
            self._look_for_failures()
            assert time.monotonic() < deadline, otherwise()
            select.select([], [], [], 0.01)  # leaves the processor to those it waits for

    def _compare_kept(self) -> None:
        """The items of dead keepers are there with their bytes, as they were told; then they go."""
        for worker in self._dead_keepers:
            kept = Kept.of(read(worker.log))
            worker.log.unlink(missing_ok=True)
            expected = kept.certain
            found = self._kept.get(list(expected.values())) if expected else None
            assert (0 if found is None else len(found)) == len(expected), f"items of {worker} are gone"
            if found is not None and len(found):
                assert sorted(numbers(found).tolist()) == sorted(expected)
                assert self._kept.delete(list(expected.values())) == len(expected)
            self.tally.kept_checked += len(expected)
        self._dead_keepers.clear()

    def _end(self) -> None:
        self._muster()
        self._kill_all()
        self._compare_kept()
        # What is left of `kept` are the items of calls that did not return.
        left = self._kept.get(self._kept.keys())
        if len(left):
            numbers(left)
        queue = self._client.table("queue")
        while len(queue):
            self._queued.drained(numbers(queue.sample(min(len(queue), 16), timeout_s=GETS_ON_S)).tolist())
        self._queued.check()
        self.tally.consumed = self._queued.num_consumed
        self.tally.may_be_lost = self._queued.may_be_lost
        self._nothing_is_left_of_the_dead()

    def _nothing_is_left_of_the_dead(self) -> None:
        self._eventually(self._only_we_are_attached, lambda: f"sessions of the dead are left: {self._client.stats()}")
        for name in ("kept", "queue", "sums", "recent"):
            table = self._client.table(name)
            faults = table._arena.check()
            assert faults == [], f"the arena of {name}: {faults}"
            info = table.info()
            assert info.inserts - info.deletes == len(table), f"table {name}: {info}"
            table.reset()
        for name in ("kept", "queue", "sums"):
            stats = self._client.table(name)._arena.stats()
            self.tally.recoveries += stats["recoveries"]
            assert stats["used_chunks"] == 0, f"the arena of {name} keeps chunks that nobody has: {stats}"
            assert stats["free_chunks"] + stats["retired_chunks"] == stats["num_chunks"], stats
            assert self._client.table(name)._arena.check() == []

    def _only_we_are_attached(self) -> bool:
        arenas = self._client.stats()["arenas"].values()
        return {entry["pid"] for arena in arenas for entry in arena["sessions"]} <= {os.getpid()}

    def _kill_all(self) -> None:
        for worker in list(self._workers):
            with contextlib.suppress(ProcessLookupError):
                self._bury(worker, signal.SIGKILL)


@contextlib.contextmanager
def daemon_for(folder: pathlib.Path) -> Iterator[DaemonProcess]:
    """A daemon of its own instance that leaves nothing behind."""
    daemon = DaemonProcess(str(folder / "storm.sock"), f"storm-{os.getpid()}")
    try:
        daemon.start()
        yield daemon
        assert daemon.stop() == 0, daemon.log()
        assert daemon.left_behind() == []
    finally:
        daemon.clean_up()

"""A storm: dozens of processes at work while any of them, or their daemon, is killed, stopped or ended at any moment.

Everything is drawn from one seed; what the processes do beside one another is not, so that a seed brings back the same
orders and not the same moments. From time to time the storm holds still: every process is let go on and must get on,
and what the dead were told is compared with what is there. At its end a checkpoint is saved beside everybody, all die,
and the arenas must be whole, with nothing left of the dead; the checkpoint, restored, must have what they were told.
"""

import contextlib
import os
import pathlib
import select
import signal
import time
from collections.abc import Callable, Iterator

import numpy as np

import shmreplay as sr
from tests.soak import roles
from tests.soak.learners import items_of
from tests.soak.ledger import Kept, Queued, read
from tests.soak.process import GETS_ON_S, Process
from tests.soak.restored import Moment, compare_at_rest, compare_at_work
from tests.soak.tables import KEPT, NAMES, tables
from tests.soak.tally import Tally
from tests.support.daemons import DaemonProcess
from tests.support.tables import check, numbers

ROLES = tuple(roles.ROLES)
KEEPERS = {"keep": "kept", "store": "stored"}  # the tables they keep their items in
MUSTER_EVERY = 25  # events
EVENTS = {"kill": 0.55, "stop": 0.27, "terminate": 0.12, "kill the daemon": 0.06}


class Storm:
    """`daemon_for(folder)` runs `daemon`, which has no tables yet. `count` processes at a time."""

    def __init__(self, daemon: DaemonProcess, folder: pathlib.Path, seed: int, count: int) -> None:
        self._daemon = daemon
        self._folder = folder
        self._rng = np.random.default_rng(seed)
        self._count = count
        self._workers: list[Process] = []
        self._queued = Queued()
        self._dead_keepers: list[Process] = []
        self.tally = Tally(seed, events=dict.fromkeys(EVENTS, 0))
        self._client = sr.connect(daemon.socket, timeout_s=GETS_ON_S)
        self._client.create_tables(tables())

    def blow(self, seconds: float) -> Tally:
        """The whole storm. Raises AssertionError for what must not be."""
        begin = time.monotonic()
        try:
            for i in range(self._count):
                self._add(ROLES[i % len(ROLES)])
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
            self._daemon.start(*_flags(self._folder))
            return
        worker = self._workers[int(self._rng.integers(len(self._workers)))]
        if event == "stop":
            worker.signal(signal.SIGCONT if worker.is_stopped else signal.SIGSTOP)
        elif event == "kill":
            self._bury(worker, signal.SIGKILL)
            self._add(worker.role)
        else:
            if worker.is_stopped:
                worker.signal(signal.SIGCONT)
            self._go_on_without(worker)
            self._bury(worker, signal.SIGTERM)
            self._add(worker.role)
        self._pause(0.08)

    def _pause(self, most_s: float) -> None:
        """The moment of the next event: this is the one place where the storm looks at no event to wait for."""
        select.select([], [], [], float(self._rng.random()) * most_s)

    def _go_on_without(self, worker: Process) -> None:
        """Lets all others go on, so that one that waits for the lock of a stopped one can end."""
        for other in self._workers:
            if other.is_stopped and other is not worker:
                other.signal(signal.SIGCONT)

    def _add(self, role: str) -> None:
        ident = self.tally.processes = self.tally.processes + 1
        log = self._folder / f"{ident}.log"
        # One in two connects itself, the other takes the client that it inherits.
        client = self._client if self._rng.random() < 0.5 else self._daemon.socket
        seed = int(self._rng.integers(2**31))
        pid = os.fork()
        if pid == 0:
            try:
                roles.run(role, client, ident, log, seed)
            finally:
                os._exit(2)
        self._workers.append(Process(role, ident, pid, log))

    def _bury(self, worker: Process, number: int) -> None:
        worker.signal(number)
        worker.wait()
        self._workers.remove(worker)
        if worker.role in ("produce", "consume"):
            self._queued.add(read(worker.log))
        if worker.role == "save":
            self.tally.checkpoints += sum(what == "verified" for what, _ in read(worker.log))
        if worker.role in KEEPERS:
            self._dead_keepers.append(worker)
        else:
            worker.log.unlink(missing_ok=True)

    def _look_for_failures(self) -> None:
        failed = next(iter(self._folder.glob("*.failed")), None)
        assert failed is None, f"{failed.read_text()}\n{self._daemon.log()[-4000:]}"

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
            keys = list(expected.values())
            name = KEEPERS[worker.role]
            table = self._client.table(name)
            batch = table.get(keys)
            ns, versions = items_of(name, batch)
            assert sorted(ns) == sorted(expected), f"items of {worker} are gone"
            for number, version in zip(ns, versions, strict=True):
                assert version in kept.possible(number), f"{worker}: {number} has the state of version {version}"
            assert table.delete(keys) == len(keys)
            self.tally.kept_checked += len(keys)
        self._dead_keepers.clear()

    def _end(self) -> None:
        self._muster()
        before, path, after = self._save_at_work()
        self._kill_all()
        compare_at_rest(self._client.checkpoint(), self._client)
        self.tally.restored = compare_at_work(path, before, after)
        self._compare_kept()
        # What is left of them are the items of calls that did not return.
        for name in KEPT:
            left = self._client.table(name)
            items_of(name, left.get(left.keys()))
        queue = self._client.table("queue")
        while len(queue):
            self._queued.drained(numbers(queue.sample(min(len(queue), 16), timeout_s=GETS_ON_S)).tolist())
        self._queued.check()
        self.tally.consumed = len(self._queued.consumed)
        self.tally.may_be_lost = self._queued.may_be_lost
        self._nothing_is_left_of_the_dead()

    def _save_at_work(self) -> tuple[Moment, str, Moment]:
        """A checkpoint while everybody works, and what they had been told before and after."""
        own = self._folder / "of-the-end.checkpoint"
        deadline = time.monotonic() + GETS_ON_S
        while True:
            self._look_for_failures()
            assert time.monotonic() < deadline, "no checkpoint is saved beside all that work"
            before = self._moment()
            # It may be given up for a writer; and those of the directory go when newer ones come.
            with contextlib.suppress(sr.CheckpointFailed, FileNotFoundError):
                os.link(self._client.checkpoint(), own)
                return before, str(own), self._moment()

    def _moment(self) -> Moment:
        queued = self._queued.copy()
        for worker in self._workers:
            if worker.role in ("produce", "consume"):
                queued.add(read(worker.log))
        keepers = [worker for worker in self._workers if worker.role in KEEPERS]
        kept = {name: [Kept.of(read(w.log)) for w in keepers if KEEPERS[w.role] == name] for name in KEPT}
        return Moment(kept, queued)

    def _nothing_is_left_of_the_dead(self) -> None:
        self._eventually(self._only_we_are_attached, lambda: f"sessions of the dead are left: {self._client.stats()}")
        handles = {name: self._client.table(name) for name in NAMES}
        for name, table in handles.items():
            assert (faults := check(table)) == [], f"the arena of {name}: {faults}"
            info = table.info()
            assert info.inserts - info.deletes == len(table), f"table {name}: {info}"
            table.reset()
        for arena, table in {table.spec.arena_name: table for table in handles.values()}.items():
            stats = table._arena.stats()
            self.tally.recoveries += stats["recoveries"]
            assert stats["used_chunks"] == 0, f"the arena of {arena} keeps chunks that nobody has: {stats}"
            assert stats["free_chunks"] + stats["retired_chunks"] == stats["num_chunks"], stats
            assert check(table) == []
        files = _checkpoints(self._folder).iterdir()
        left = [path.name for path in files if path.suffix not in (".checkpoint", ".lock")]
        assert left == [], f"savers that were killed left {left}"

    def _only_we_are_attached(self) -> bool:
        arenas = self._client.stats()["arenas"].values()
        return {entry["pid"] for arena in arenas for entry in arena["sessions"]} <= {os.getpid()}

    def _kill_all(self) -> None:
        for worker in list(self._workers):
            with contextlib.suppress(ProcessLookupError):
                self._bury(worker, signal.SIGKILL)


def _checkpoints(folder: pathlib.Path) -> pathlib.Path:
    return folder / "checkpoints"


def _flags(folder: pathlib.Path) -> tuple[str, ...]:
    return "--checkpoint-dir", str(_checkpoints(folder)), "--checkpoint-keep", "3"


@contextlib.contextmanager
def daemon_for(folder: pathlib.Path) -> Iterator[DaemonProcess]:
    """A daemon of a new instance; at the end nothing may be left of it."""
    daemon = DaemonProcess(str(folder / "storm.sock"), f"storm-{os.getpid()}")
    try:
        daemon.start(*_flags(folder))
        yield daemon
        assert daemon.stop() == 0, daemon.log()
        assert daemon.left_behind() == []
    finally:
        daemon.clean_up()

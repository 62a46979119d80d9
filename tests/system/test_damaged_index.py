"""A byte of a live arena's index is flipped, and everything that Python can call is called: no crash, no endless loop.

tests/native/damage/flips_test.cc tries thousands on the core alone; these tests try what the binding and the clients
make of what they read. SHMREPLAY_FLIPS=<n> tries more.
"""

import contextlib
import os
import resource
import signal
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NoReturn, cast

import numpy as np
import pytest

import shmreplay as sr
from shmreplay import _core
from shmreplay.clients.link.attachments import Attachment
from shmreplay.clients.link.connection import fork_count
from shmreplay.clients.tables.table import TableHandle
from shmreplay.tables.packed_specs import pack_specs
from shmreplay.tables.plan import plan
from tests.support import tables as plain
from tests.support.rounds import rounds

FLIPS = int(os.environ.get("SHMREPLAY_FLIPS", rounds(50, 150)))
BLOCK = min(FLIPS, 150)  # flips a test, each of seeds of its own
CPU_S = 20  # an endless loop is told by the time it burns
SLEEP_S = 100  # for one that sleeps
MEMORY = 4 << 30  # of address space: a length that was flipped must not become a batch of gigabytes

# Also a column in the block heap, and one that changes.
COLUMNS = {
    **plain.COLUMNS,
    "packed": sr.ArraySpec((30,), "uint16", compression="lz4", mean_bytes=40),
    "state": sr.ArraySpec((2,), "float32", mutable=True),
}


def steps(ns: Any) -> dict[str, Any]:
    """The steps of those numbers, as `insert_batch` takes them."""
    ns = np.asarray(ns)
    packed = (ns[:, None] * np.arange(30)).astype(np.uint16)
    return {**plain.steps(ns), "packed": packed, "state": np.zeros((len(ns), 2), np.float32)}


def step(n: int) -> dict[str, Any]:
    """One of them."""
    return {**plain.step(n), "packed": np.full(30, n, np.uint16), "state": np.zeros(2, np.float32)}


SPECS = [
    sr.Table("trees", COLUMNS, 40, sampler=sr.selectors.Prioritized(0.6), arena="a", max_streams=8, max_sessions=4),
    sr.Table.queue("queue", COLUMNS, 20, arena="a", max_streams=8, max_sessions=4),
    sr.Table(
        "spans", COLUMNS, 30, remover=sr.selectors.MinHeap(), item_steps=4, arena="a", max_streams=8, max_sessions=4
    ),
]


class Segments:
    """Two segments that no daemon knows of, and their bytes when nothing was wrong with them."""

    def __init__(self) -> None:
        native = plan(SPECS).native()
        sizes = _core.plan_arena(native)
        self.index = os.memfd_create("index", os.MFD_CLOEXEC)
        self.data = os.memfd_create("data", os.MFD_CLOEXEC)
        os.ftruncate(self.index, sizes["index_bytes"])
        os.ftruncate(self.data, sizes["data_bytes"])
        _core.format_arena(self.index, self.data, native, "test", "a")
        daemon = _core.Arena(self.index, self.data)
        self.session, self.generation = daemon.open_session(os.getpid(), _core.process_start_time(os.getpid()), 1.0)
        fill(self.attach())
        self.whole = os.pread(self.index, sizes["index_bytes"], 0)

    def restore(self) -> None:
        os.pwrite(self.index, self.whole, 0)

    def attach(self) -> dict[str, TableHandle]:
        arena = _core.Arena(self.index, self.data, self.session, self.generation)
        client = cast(sr.Client, Alone())
        return {
            spec.name: TableHandle(client, spec.name, Attachment(arena, i, spec, fork_count()), seed=3)
            for i, spec in enumerate(SPECS)
        }

    def close(self) -> None:
        os.close(self.index)
        os.close(self.data)


class Alone:
    """As much of a client as a handle needs that never attaches anew."""

    is_closed = False
    _closed = _core.Flag()
    address = "nowhere"

    def _add_dependent(self, dependent: object) -> None:
        """There is no end to tell it of."""


def fill(tables: dict[str, TableHandle]) -> None:
    tables["trees"].insert_batch(steps(range(50)), np.arange(50) % 5)
    tables["queue"].insert_batch(steps(range(8)))
    with tables["spans"].writer(history=8) as writer:
        for n in range(20):
            writer.append(step(n))
            if n >= 3:
                writer.create_item(length=1 + n % 4, priority=n)
    tables["trees"].sample(10)
    tables["queue"].sample(2)


def calls_of(table: TableHandle) -> list[Callable[[], object]]:
    def look() -> None:
        with table.view(4, timeout_s=0) as items:
            for item in items:
                np.asarray(item.data["n"]).tolist()

    def each_once() -> None:
        try:
            table.sample(4, timeout_s=0, count=False, replacement=False)
        except ValueError as error:
            if "expected at most as many" not in str(error):  # other calls may have left fewer
                raise

    return [
        lambda: table.sample(16, timeout_s=0),
        lambda: table.sample(4, timeout_s=0, count=False),
        each_once,
        lambda: table.update_data(table.keys(), {"state": np.ones((len(table.keys()), 1, 2), np.float32)}),
        lambda: table.get(table.keys()),
        lambda: table.update_priorities(table.keys(), np.ones(len(table.keys()))),
        lambda: table.delete(table.keys()[:3]),
        look,
        lambda: (table.info(), len(table), table.can_insert(1), table.can_sample(1), repr(table)),
        lambda: table.set_rate_limiter(sr.rate_limiters.MinSize(1)),
    ]


def everything(tables: dict[str, TableHandle], rng: np.random.Generator) -> list[Callable[[], object]]:
    trees, queue, spans = tables["trees"], tables["queue"], tables["spans"]
    arena = trees._arena

    def write() -> None:
        with spans.writer(history=6) as writer:
            for n in range(30):
                writer.append(step(n), timeout_s=0)
                writer.create_item(length=min(n + 1, 4), timeout_s=0)
            writer.end_episode()

    calls: list[Callable[[], object]] = [write, lambda: arena.check(1.0), lambda: arena.rebuild(1.0), arena.stats]
    calls += [arena.sessions, lambda: arena.open_session(os.getpid(), 1, 1.0), arena.lock_holder]
    for table in (trees, queue, spans):
        calls += calls_of(table)
    for table in (trees, queue):
        calls += [
            partial(table.insert, step(7), timeout_s=0),
            partial(table.insert_batch, steps(range(60)), timeout_s=0),
        ]
    order = rng.permutation(len(calls))
    return [calls[i] for i in order] + [lambda: spans.reset(timeout_s=1), lambda: arena.drop(1.0)]


def attack(segments: Segments, offset: int, mask: int, attached: bool, seed: int) -> int:
    """In the child. Exit codes: 0 as it should be, 3 an exception of a kind that tells the user nothing."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.setitimer(signal.ITIMER_REAL, SLEEP_S)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def flip() -> None:
        os.pwrite(segments.index, bytes([os.pread(segments.index, 1, offset)[0] ^ mask]), offset)

    if not attached:
        flip()
    try:
        tables = segments.attach()
    except sr.ShmReplayError:
        return 0
    if attached:
        flip()
    for call in everything(tables, np.random.default_rng(seed)):
        with contextlib.suppress(sr.ShmReplayError, MemoryError):
            call()
    return 0


def die(code: int) -> NoReturn:
    os._exit(code)


@pytest.fixture
def segments() -> Iterator[Segments]:
    segments = Segments()
    yield segments
    segments.close()


def offsets_in_use(segments: Segments, rng: np.random.Generator, count: int) -> list[int]:
    """Offsets of bytes in words that are in use, except that of the mutex, the first after the specs."""
    words = np.frombuffer(segments.whole, np.uint64)
    is_used = (words != 0) & (words != np.uint64(2**64 - 1))
    specs = pack_specs(SPECS)
    mutex = -(-(segments.whole.index(specs) + len(specs)) // 128) * 128 // 8
    assert words[mutex] & np.uint64(2**32 - 1) == 0, "the mutex, which nobody has, is not where this looks for it"
    is_used[mutex] = False  # see test_lock_words.py
    used = np.flatnonzero(is_used)
    # One in three from anywhere; the others from words of which there are few, so that each kind gets its share.
    values, counts = np.unique(words[used], return_counts=True)
    rare = used[np.isin(words[used], values[counts < 50])]
    picked = [rng.choice(used if rng.random() < 0.33 else rare) for _ in range(count)]
    return [int(word) * 8 + int(rng.integers(8)) for word in picked]


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.parametrize("block", range(-(-FLIPS // BLOCK)))
@pytest.mark.one_quick
def test_a_flipped_byte_is_an_error_that_says_so_or_a_wrong_answer(
    segments: Segments, rng: np.random.Generator, tmp_path: Any, block: int
) -> None:
    report = tmp_path / "report"
    for offset in offsets_in_use(segments, rng, BLOCK):
        mask, attached, seed = int(rng.integers(1, 256)), bool(rng.random() < 0.7), int(rng.integers(2**31))
        segments.restore()
        pid = os.fork()
        if pid == 0:
            try:
                die(attack(segments, offset, mask, attached, seed))
            except BaseException:  # noqa: BLE001  # told to the test
                report.write_text(traceback.format_exc())
                die(3)
        _, status = os.waitpid(pid, 0)
        where = f"offset {offset} ^ {mask}, {'attached before' if attached else 'attached after'}, order {seed}"
        assert not os.WIFSIGNALED(status), f"{where}: killed by signal {os.WTERMSIG(status)}"
        assert os.WEXITSTATUS(status) == 0, f"{where}:\n{report.read_text()}"


def test_the_same_calls_are_all_answered_where_nothing_is_flipped(segments: Segments) -> None:
    tables = segments.attach()
    for call in everything(tables, np.random.default_rng(1)):
        with contextlib.suppress(sr.RateLimitTimeout, sr.TableClosed):
            call()

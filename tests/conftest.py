"""What every test has: a printed seed, a check that nothing stays behind, and the fixtures that many folders share.

Random tests take `seed` or `rng`. A run prints its seed; SHMREPLAY_TEST_SEED=<that number> repeats it, for one test as
for all of them, since each test's own seed follows from the run's and the test's name.
"""

import os
import pathlib
import random
import signal
import zlib
from collections.abc import Generator, Iterator
from typing import Any

import hypothesis
import numpy as np
import psutil
import pytest

from tests.support.children import fork
from tests.support.daemons import client, daemon, make_daemon, run_script
from tests.support.namespaces import take_own_shm
from tests.support.tables import make_table, running_servers, server

__all__ = ["client", "daemon", "fork", "make_daemon", "make_table", "run_script", "running_servers", "server"]

SHM = pathlib.Path("/dev/shm")
SEED_VARIABLE = "SHMREPLAY_TEST_SEED"
PYTHON_HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")  # live until this process ends
DEATH_WAIT_S = 60.0  # how long a process that is ending may take before it counts as left over

# Folders of tests/clients that tests/test_apart.py runs in a process of their own: the library has threads, and warns
# of every fork from then on.
APART = {"jax"}

run_seed = pytest.StashKey[int]()
first_seen = pytest.StashKey[dict[str, str]]()  # segment -> the test after whose teardown it was there

# `make test` takes the same examples each time, `make test-long` others each time; "dev" is for a run by hand.
hypothesis.settings.register_profile("fixed", deadline=None, derandomize=True, print_blob=True, max_examples=50)
hypothesis.settings.register_profile("dev", deadline=None, print_blob=True, max_examples=50)
hypothesis.settings.register_profile("long", deadline=None, print_blob=True, max_examples=120)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def pytest_ignore_collect(collection_path: pathlib.Path, config: pytest.Config) -> bool | None:
    """Folders that have a process of their own are left out, unless they are named."""
    is_apart = collection_path.name in APART and collection_path.parent == pathlib.Path(__file__).parent / "clients"
    return True if is_apart and not any(collection_path.name in argument for argument in config.args) else None


# --- several workers ------------------------------------------------------------------------------------------------
# `make test` has pytest-xdist give each worker whole files, where each can have a /dev/shm of its own: what one leaves
# behind, another would be blamed for.


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["seed"] = node.config.stash[run_seed]


@pytest.hookimpl(tryfirst=True)  # before -m chooses by the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the hunts, and puts the files with slow tests first: then no worker is left alone with one at the end."""
    mark_other_cases(items)
    for item in items:
        if is_hunt(item):
            item.add_marker("hunt")
    slow = {item.path for item in items if item.get_closest_marker("slow") or item.get_closest_marker("long")}
    items.sort(key=lambda item: item.path not in slow)


def mark_other_cases(items: list[pytest.Item]) -> None:
    """Of each test that is marked `one_quick`, all cases after the first become `long`."""
    seen = set()
    for item in items:
        if item.get_closest_marker("one_quick") is not None:
            function = item.nodeid.partition("[")[0]
            if function in seen:
                item.add_marker("long")
            seen.add(function)


def is_hunt(item: pytest.Item) -> bool:
    """Whether `make test-long` finds more by a test than `make test`: it is long, random, or has more rounds there."""
    function = getattr(item, "function", None)
    is_random = {"seed", "rng"} & set(getattr(item, "fixturenames", ())) or hypothesis.is_hypothesis_test(function)
    has_rounds = hasattr(getattr(item, "module", None), "rounds")
    return item.get_closest_marker("long") is not None or bool(is_random) or has_rounds


# --- the seed --------------------------------------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    heed_all_signals()
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker is not None:
        take_own_shm()
        config.stash[run_seed] = worker["seed"]
        return
    config.stash[run_seed] = int(os.environ.get(SEED_VARIABLE, random.SystemRandom().randrange(2**32)))


def heed_all_signals() -> None:
    """Undoes what the caller ignores: a shell SIGINT in the background, nohup SIGHUP. Tests send both, and a daemon
    goes on ignoring what it was started with."""
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:  # Python itself ignores these two
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionstart(session: pytest.Session) -> None:
    # Not pytest_report_header: -q leaves that out, and a run that hangs or dies never comes to a summary.
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line(f"{SEED_VARIABLE}={session.config.stash[run_seed]}")


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A seed of 32 bits for this test; it follows from the run's seed and the test's name."""
    name = zlib.crc32(request.node.nodeid.encode())
    return int(np.random.SeedSequence([request.config.stash[run_seed], name]).generate_state(1)[0])


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    """A generator made from `seed`."""
    return np.random.default_rng(seed)


# --- what is left behind ---------------------------------------------------------------------------------------------


def segments() -> set[str]:
    """Names of the shared-memory objects of shmreplay on this machine."""
    return {path.name for path in SHM.glob("shmreplay.*")}


def is_used_elsewhere(name: str) -> bool:
    """Whether a process that is neither this one nor a descendant has it open or mapped: then it is not ours."""
    ours = {os.getpid(), *children()}
    return any(pid not in ours and uses(pathlib.Path("/proc", str(pid)), SHM / name) for pid in psutil.pids())


def uses(process: pathlib.Path, file: pathlib.Path) -> bool:
    try:
        return str(file) in (process / "maps").read_text() or any(
            os.readlink(link) == str(file) for link in (process / "fd").iterdir()
        )
    except OSError:
        return False  # it ended, or belongs to another user: neither is a leftover of this run


def children() -> dict[int, psutil.Process]:
    """Living descendants of this process, without the helpers that multiprocessing keeps until exit."""
    found = {}
    for process in psutil.Process().children(recursive=True):
        try:
            command = " ".join(process.cmdline())
            if process.status() != psutil.STATUS_ZOMBIE and not any(helper in command for helper in PYTHON_HELPERS):
                found[process.pid] = process
        except psutil.NoSuchProcess:
            continue  # it ended while we looked, which is all we want of it
    return found


def describe(process: psutil.Process) -> str:
    try:
        return f"process {process.pid}: {' '.join(process.cmdline())[:200]}"
    except psutil.NoSuchProcess:
        return f"process {process.pid}, which ended by now"


def fail_for_leftovers(segments_before: set[str], children_before: set[int], seen: dict[str, str]) -> None:
    """Fail the test in whose teardown this runs if a segment or a child process is left over."""
    _, alive = psutil.wait_procs([p for pid, p in children().items() if pid not in children_before], DEATH_WAIT_S)
    left = [describe(process) for process in alive]
    for process in alive:
        process.kill()  # a child of ours; the next run shall not meet it
    for name in sorted(segments() - segments_before):
        if is_used_elsewhere(name) or not (SHM / name).exists():
            continue
        left.append(f"segment {name}" + (f", first seen after {seen[name]}" if name in seen else ""))
    if left:
        pytest.fail("left behind (close it in a fixture or a with):\n  " + "\n  ".join(left), pytrace=False)


@pytest.fixture(scope="session", autouse=True)
def nothing_stays_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """At the end of the run: no segment and no child process that was not there at its start.

    For the whole run, since a daemon that several tests share is no leftover between two of them. A segment is reported
    with the test after which it was first seen.
    """
    segments_before, children_before = segments(), set(children())
    yield
    fail_for_leftovers(segments_before, children_before, request.config.stash.get(first_seen, {}))


@pytest.fixture
def nothing_left_by_this_test() -> Iterator[None]:
    """The same for one test that shares no daemon. Request it first: what is requested first is torn down last."""
    segments_before, children_before = segments(), set(children())
    yield
    fail_for_leftovers(segments_before, children_before, {})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    try:
        return (yield)
    finally:
        seen = item.config.stash.setdefault(first_seen, {})
        for name in segments():  # a listing of one small directory
            seen.setdefault(name, item.nodeid)

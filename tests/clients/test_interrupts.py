"""A call that a signal ends hands out what it took out or put in, at whatever moment the signal comes.

The fast tests interrupt at every moment at which Python calls signal handlers. The long one does it at random, also
several times at once.
"""

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import shmreplay as sr
from tests.support.interrupts import Interrupt, RandomInterrupts, at_every_moment

# What a handler raises while Python drops an object, Python itself reports so, and goes on.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SIGNATURE = {"n": sr.ArraySpec((), "int64"), "terminated": sr.ArraySpec((), "bool")}
N = 4  # items a call
MANY = 64


class Case(NamedTuple):
    """A call that takes items out or puts them in."""

    tables: list[Any]
    prepare: Callable[[], None]  # makes what the next call needs
    call: Callable[[], Any]
    keys_of: Callable[[Any], Any]  # the keys of what a call returned, or of what its error has; None: nothing
    takes_out: bool = True


@pytest.fixture
def client() -> Iterator[sr.Client]:
    """A client of a server with tables of every kind that the calls need."""
    tables = [
        sr.Table.queue("queue", max_size=4 * MANY, signature=SIGNATURE),
        sr.Table.queue("other", max_size=4 * MANY, signature=SIGNATURE),
        sr.Table("shards", SIGNATURE, max_size=4 * MANY, shards=2),
        sr.Table("plain", SIGNATURE, max_size=4 * MANY),
        sr.Table("pairs", SIGNATURE, max_size=4 * MANY, item=sr.Sequence(2, 1)),
    ]
    with sr.Server(tables) as server, server.client() as client:
        yield client


def steps(n: int) -> dict[str, Any]:
    return {"n": np.arange(n), "terminated": np.zeros(n, np.bool_)}


def fill(*tables: Any) -> None:
    for table in tables:
        if len(table) < MANY:
            table.insert_batch(steps(MANY))


def batch_of(outcome: Any) -> Any:
    return getattr(outcome, "batch", None) if isinstance(outcome, BaseException) else outcome


def keys_of_batch(outcome: Any) -> Any:
    batch = batch_of(outcome)
    return None if batch is None else batch.keys


def first_of(batches: Any) -> Any:
    for batch in batches:  # next() is a native call of this test, which can be interrupted when the batch is out
        return batch
    raise AssertionError("a sampler does not end")


def sampling(client: sr.Client) -> Case:
    queue = client.table("queue")
    return Case([queue], lambda: fill(queue), lambda: queue.sample(N), keys_of_batch)


def sampling_columns(client: sr.Client) -> Case:
    queue = client.table("queue")
    return Case([queue], lambda: fill(queue), lambda: queue.sample(N, columns=["n"], time_major=True), keys_of_batch)


def sampling_too_many(client: sr.Client) -> Case:
    queue = client.table("queue")

    def prepare() -> None:
        if len(queue) == 0:
            queue.insert_batch(steps(2))

    return Case([queue], prepare, lambda: queue.sample(N, timeout_s=0), keys_of_batch)


def viewing(client: sr.Client) -> Case:
    queue = client.table("queue")

    def keys_of(outcome: Any) -> Any:
        view = batch_of(outcome)
        if view is None:
            return None
        view.release()
        return view.keys

    return Case([queue], lambda: fill(queue), lambda: queue.view(N), keys_of)


def viewing_too_many(client: sr.Client) -> Case:
    case = viewing(client)
    return sampling_too_many(client)._replace(
        call=lambda: client.table("queue").view(N, timeout_s=0), keys_of=case.keys_of
    )


def from_a_sampler(client: sr.Client) -> Case:
    queue = client.table("queue")
    sampler = queue.sampler(N)
    return Case([queue], lambda: fill(queue), lambda: first_of(sampler), keys_of_batch)


def from_shards(client: sr.Client) -> Case:
    """Shards keep their items, so what counts is how many samples each side knows of."""
    table = client.table("shards")
    return Case([table], lambda: fill(table), lambda: table.sample(N), keys_of_batch)


def mixing(client: sr.Client) -> Case:
    tables = [client.table("queue"), client.table("other")]
    mix = sr.mix([(table, 2) for table in tables])
    return Case(tables, lambda: fill(*tables), mix.sample, keys_of_batch)


def mixing_half(client: sr.Client) -> Case:
    tables = [client.table("queue"), client.table("other")]
    fill(*tables)
    tables[1].sample(MANY)
    mix = sr.mix([(table, 2) for table in tables])
    return Case(tables, lambda: fill(tables[0]), lambda: mix.sample(timeout_s=0), keys_of_batch)


def from_a_mix_sampler(client: sr.Client) -> Case:
    tables = [client.table("queue"), client.table("other")]
    sampler = sr.mix([(table, 2) for table in tables]).sampler()
    return Case(tables, lambda: fill(*tables), lambda: first_of(sampler), keys_of_batch)


def inserting(client: sr.Client) -> Case:
    table = client.table("plain")
    rows = steps(N)

    def keys_of(outcome: Any) -> Any:
        return getattr(outcome, "keys", None) if isinstance(outcome, BaseException) else outcome

    return Case([table], lambda: table.reset(), lambda: table.insert_batch(rows), keys_of, takes_out=False)


def extending(client: sr.Client) -> Case:
    case, table, rows = inserting(client), client.table("pairs"), steps(N)
    return case._replace(tables=[table], prepare=table.reset, call=lambda: table.extend(rows))


def appending_to_many(client: sr.Client) -> Case:
    case, table, rows = inserting(client), client.table("pairs"), steps(2)
    writer = table.vector_writer(2)
    return case._replace(tables=[table], prepare=table.reset, call=lambda: writer.append(rows))


CASES = [
    sampling, sampling_columns, sampling_too_many, viewing, viewing_too_many, from_a_sampler, from_shards, mixing,
    mixing_half, from_a_mix_sampler, inserting, extending, appending_to_many,
]  # fmt: skip


def live(case: Case) -> list[int]:
    """The keys in the tables; of a table with shards, a number for each sample."""
    if any(table.spec.shards > 1 for table in case.tables):
        return list(range(-case.tables[0].info().samples, 0))
    return sorted(key for table in case.tables for key in table.keys().tolist())


def in_hand(case: Case, outcome: Any) -> list[int]:
    """The keys that a call handed out, by what it returned or by its error."""
    keys = case.keys_of(outcome)
    return [] if keys is None else sorted(key for key in np.ravel(keys).tolist() if key != 0)


def changed(case: Case, before: list[int]) -> list[int]:
    """The keys that have gone since then or, of a call that puts items in, that have come."""
    then, now = Counter(before), Counter(live(case))
    return sorted((then - now if case.takes_out else now - then).elements())


def check_outcome(case: Case, before: list[int], outcome: Any) -> int:
    """Checks that a call handed out what it took or put in. Returns how many items that are."""
    found = in_hand(case, outcome)
    if any(table.spec.shards > 1 for table in case.tables):
        assert len(found) == len(live(case)) - len(before)
    else:
        assert found == changed(case, before)
    return len(found)


@pytest.mark.parametrize("make", CASES)
@pytest.mark.one_quick
def test_what_a_call_took_or_put_in_is_on_its_error_at_whatever_moment_it_is_interrupted(
    client: sr.Client, make: Callable[[sr.Client], Case]
) -> None:
    case = make(client)
    with_results = interrupts = 0
    case.prepare()
    before = live(case)
    for found, error in at_every_moment(case.call):
        num_items = check_outcome(case, before, error if error is not None else found)
        interrupts += isinstance(error, Interrupt)
        with_results += isinstance(error, Interrupt) and num_items > 0
        case.prepare()
        before = live(case)
    assert interrupts > 0
    assert with_results > 0  # some came when the table had changed


@pytest.mark.long
@pytest.mark.parametrize("make", CASES)
def test_random_interrupts_lose_nothing_that_a_call_took_or_put_in(
    client: sr.Client, seed: int, make: Callable[[sr.Client], Case]
) -> None:
    case = make(client)
    before_all = signal.getsignal(signal.SIGALRM)
    try:
        interrupts = RandomInterrupts(seed, 200e-6)
        for _ in range(4000):
            case.prepare()
            before = live(case)
            found, error = interrupts.during(case.call)
            assert error is None or isinstance(error, (Interrupt, sr.RateLimitTimeout)), repr(error)
            check_outcome(case, before, error if error is not None else found)
    finally:
        signal.signal(signal.SIGALRM, before_all)
    assert interrupts.num_interrupted > 0

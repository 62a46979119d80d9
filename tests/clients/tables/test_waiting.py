"""Calls that wait for a rate limiter: what wakes them, timeouts and their texts, Ctrl-C, the GIL, pauses, changes."""

import logging
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from tests.support.children import Fork
from tests.support.tables import TableMaker, numbers, step, steps, values
from tests.support.waiting import eventually

RateLimiter = sr.rate_limiters.RateLimiter
FOREVER = float("inf")


@contextmanager
def in_thread(work: Callable[[], object]) -> Iterator[list[Any]]:
    """Runs it in a thread; the list has what it returned or raised once the context is left."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:  # noqa: BLE001  # the test looks at it
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    yield outcome
    thread.join()


def until_blocked(table: TableHandle, *, inserts: int = 0, samples: int = 0) -> None:
    """Waits until this many other calls sleep."""
    eventually(lambda: (table.info().blocked_inserts, table.info().blocked_samples) == (inserts, samples))


# --- waking ----------------------------------------------------------------------------------------------------------


def test_the_gil_is_free_while_a_call_waits(make_table: TableMaker) -> None:
    """Else the insert that ends the wait would never be reached."""
    table = make_table()
    with in_thread(lambda: numbers(table.sample(3)).tolist()) as outcome:
        until_blocked(table, samples=1)
        table.insert(step(7))
    assert outcome == [[7, 7, 7]]


def test_an_insert_in_one_process_wakes_a_sample_in_another(make_table: TableMaker, fork: Fork) -> None:
    table = make_table()

    def sampler(pipe: Any) -> list[int]:
        return [int(n) for n in numbers(table.sample(2))]

    children = [fork(sampler) for _ in range(3)]
    until_blocked(table, samples=3)
    table.insert(step(5))
    assert [child.result() for child in children] == [[5, 5]] * 3
    assert table.info().blocked_samples_total == 3


def test_a_sample_in_one_process_wakes_inserts_in_others(make_table: TableMaker, fork: Fork) -> None:
    """Each call is woken by what lets it go on, and wakes the next one if that may go on, too."""
    table = make_table(rate_limiter=RateLimiter(1.0, 1, -FOREVER, 3.0))
    table.insert_batch(steps(range(3)))
    children = [fork(lambda pipe, n=n: table.insert(step(n))) for n in range(3, 7)]  # type: ignore[misc]
    until_blocked(table, inserts=4)
    assert not table.can_insert()
    table.sample(1)
    until_blocked(table, inserts=3)
    table.sample(3)
    assert len({child.result() for child in children}) == 4
    assert sorted(values(table)) == list(range(7))
    assert not table.can_insert()


def test_two_sides_that_wait_for_each_other_by_turns_go_on(make_table: TableMaker, fork: Fork) -> None:
    """A limiter that admits one insert, then one sample, then one insert: eight processes, a thousand of each."""
    table = make_table(10, rate_limiter=RateLimiter(1.0, 1, 0.0, 1.0))

    def insert(pipe: Any) -> None:
        for n in range(250):
            table.insert(step(n))

    def sample(pipe: Any) -> None:
        for _ in range(250):
            numbers(table.sample(1))

    children = [fork(work) for work in (insert, sample) * 4]
    for child in children:
        child.result()
    info = table.info()
    assert (info.inserts, info.samples, info.difference) == (1000, 1000, 0)
    assert (info.blocked_inserts, info.blocked_samples) == (0, 0)


# --- timeouts and their texts ----------------------------------------------------------------------------------------


def test_timeout_zero_never_waits_and_a_second_is_waited(make_table: TableMaker) -> None:
    table = make_table()
    with pytest.raises(sr.RateLimitTimeout):
        table.sample(1, timeout_s=0)
    with pytest.raises(TimeoutError):
        table.sample(1, timeout_s=0.02)
    assert table.info().blocked_samples_s >= 0.02
    assert table.info().blocked_samples == 0
    with in_thread(lambda: len(table.sample(1, timeout_s=60))) as outcome:
        until_blocked(table, samples=1)
        table.insert(step(0))
    assert outcome == [1]


def test_a_blocked_sample_says_what_is_missing(make_table: TableMaker) -> None:
    table = make_table(rate_limiter=RateLimiter(2.0, 2, -1.0, 100.0))
    table.insert(step(0))
    with pytest.raises(sr.RateLimitTimeout) as raised:
        table.sample(1, timeout_s=0)
    text = str(raised.value)
    assert re.match(
        rf"table {table.name!r}: sample not admitted within 0 s: the table has 1 item, and "
        r"min_size_to_sample is 2; waiting for an insert, the last was \d+ s ago; no other process is attached, so "
        "only another thread of this process could end the wait",
        text,
    )
    table.insert(step(1))
    with pytest.raises(sr.RateLimitTimeout) as raised:
        table.sample(9, timeout_s=0.01)
    assert len(raised.value.batch) == 5
    assert re.search(
        r"sample not admitted within 0\.01 s after 5 of 9 items, which are in the error's \.batch: the rate limiter: "
        r"samples are as far ahead of inserts as it allows; waiting for an insert, the last was \d+ s ago; ",
        str(raised.value),
    )
    assert str(raised.value).endswith(
        "one more sample would lower the difference from -1 to -2, below min_diff -1 (2 inserts, 0 deletes, 5 samples, "
        "at 2 samples per insert)"
    )


def test_a_blocked_insert_names_what_is_missing_and_the_attached_processes(make_table: TableMaker, fork: Fork) -> None:
    table = make_table(rate_limiter=RateLimiter(1.0, 1, -FOREVER, 3.0))
    table.insert_batch(steps(range(3)))

    def attach(pipe: Any) -> None:
        numbers(table.sample(1, count=False))
        pipe.send()
        pipe.recv()

    child = fork(attach)
    child.receive()
    with pytest.raises(sr.RateLimitTimeout) as raised:
        table.insert_batch(steps(range(3, 6)), timeout_s=0)
    assert raised.value.keys is not None
    assert len(raised.value.keys) == 0
    assert str(raised.value) == (
        f"table {table.name!r}: insert_batch not admitted within 0 s: the rate limiter: inserts are as far "
        "ahead of samples as it allows; waiting for a sample, there was none yet, or for set_rate_limiter(); 1 other "
        "process is attached; one more insert would raise the difference from 3 to 4, above max_diff 3 (3 inserts, 0 "
        "deletes, 0 samples, at 1 samples per insert)"
    )
    child.send()
    child.result()


def test_a_batch_that_is_admitted_in_part_gives_the_keys_that_went_in(make_table: TableMaker) -> None:
    table = make_table(rate_limiter=RateLimiter(1.0, 1, -FOREVER, 3.0))
    with pytest.raises(sr.RateLimitTimeout, match=r"after 3 items, whose keys are in the error's \.keys") as raised:
        table.insert_batch(steps(range(5)), timeout_s=0)
    assert raised.value.keys is not None
    assert raised.value.keys.tolist() == table.keys().tolist()
    assert values(table) == [0, 1, 2]


def test_a_long_wait_is_logged_in_the_process_that_waits(
    make_table: TableMaker, caplog: pytest.LogCaptureFixture
) -> None:
    table = make_table(rate_limiter=sr.rate_limiters.MinSize(3))
    with caplog.at_level(logging.WARNING, "shmreplay"), in_thread(lambda: len(table.sample(1))) as outcome:
        eventually(lambda: len(caplog.records) > 0)
        table.insert_batch(steps(range(3)))
    assert outcome == [1]
    [record] = caplog.records
    assert record.getMessage().startswith(
        f"table {table.name!r}: blocked for 1 s: the table has 0 items, and min_size_to_sample is 3; "
        "waiting for an insert, there was none yet; no other process is attached, so only another thread"
    )


# --- Ctrl-C ----------------------------------------------------------------------------------------------------------


def interrupted(work: Callable[[], object]) -> Any:
    """What the KeyboardInterrupt of a call carries: the batch's numbers, or how many keys."""
    try:
        work()
    except KeyboardInterrupt as error:
        batch, keys = getattr(error, "batch", None), getattr(error, "keys", None)
        return (None if batch is None else numbers(batch).tolist(), None if keys is None else len(keys))
    return "not interrupted"


def test_ctrl_c_ends_a_wait_and_what_was_done_before_it_is_in_the_exception(make_table: TableMaker, fork: Fork) -> None:
    queue = make_table.queue(4)
    full = make_table.queue(4)
    full.insert_batch(steps(range(4)))
    works: list[tuple[TableHandle, Callable[[], object], object]] = [
        (queue, lambda: queue.sample(3), (None, None)),
        (queue, lambda: queue.sample(3, timeout_s=1000), (None, None)),
        (full, lambda: full.insert(step(4)), (None, None)),
        (full, lambda: full.insert_batch(steps([4, 5])), (None, 0)),
    ]
    for table, work, expected in works:
        child = fork(lambda pipe, work=work: interrupted(work))  # type: ignore[misc]
        until_blocked(table, inserts=int(table is full), samples=int(table is queue))
        child.signal(signal.SIGINT)
        assert child.result() == expected
        until_blocked(table)
    assert values(full) == [0, 1, 2, 3]

    queue.insert_batch(steps([10, 11]))
    child = fork(lambda pipe: interrupted(lambda: queue.sample(5)))
    eventually(lambda: len(queue) == 0)
    until_blocked(queue, samples=1)
    child.signal(signal.SIGINT)
    assert child.result() == ([10, 11], None)

    child = fork(lambda pipe: interrupted(lambda: queue.insert_batch(steps(range(7)))))
    until_blocked(queue, inserts=1)
    child.signal(signal.SIGINT)
    assert child.result() == (None, 4)
    assert values(queue) == [0, 1, 2, 3]


def test_a_handled_signal_does_not_end_a_wait(make_table: TableMaker, fork: Fork) -> None:
    table = make_table()

    def work(pipe: Any) -> tuple[list[int], int]:
        seen: list[int] = []

        def handle(number: int, frame: object) -> None:
            seen.append(number)
            pipe.send()

        signal.signal(signal.SIGUSR1, handle)
        return numbers(table.sample(1)).tolist(), len(seen)

    child = fork(work)
    until_blocked(table, samples=1)
    for _ in range(3):
        child.signal(signal.SIGUSR1)
        child.receive()
    until_blocked(table, samples=1)
    table.insert(step(6))
    assert child.result() == ([6], 3)


# --- pauses and changes ----------------------------------------------------------------------------------------------


def test_a_pause_holds_one_side_or_both_until_it_is_resumed(make_table: TableMaker) -> None:
    table = make_table()
    table.insert(step(0))
    table.pause(samples=False)
    assert (table.info().paused_inserts, table.info().paused_samples) == (True, False)
    table.sample(1, timeout_s=0)
    with pytest.raises(sr.RateLimitTimeout, match="inserts are paused"):
        table.insert(step(1), timeout_s=0)
    table.pause(inserts=False)
    with pytest.raises(sr.RateLimitTimeout, match="samples are paused"):
        table.sample(1, timeout_s=0)
    assert not table.can_insert()
    assert not table.can_sample()
    with in_thread(lambda: table.insert(step(1))) as inserted, in_thread(lambda: len(table.sample(1))) as sampled:
        until_blocked(table, inserts=1, samples=1)
        table.resume()
    assert inserted[0] > 0
    assert sampled == [1]
    assert (table.info().paused_inserts, table.info().paused_samples) == (False, False)


def test_another_limiter_lets_blocked_callers_look_again(make_table: TableMaker) -> None:
    table = make_table(rate_limiter=sr.rate_limiters.MinSize(50))
    table.insert(step(1))
    with in_thread(lambda: numbers(table.sample(2)).tolist()) as outcome:
        until_blocked(table, samples=1)
        table.set_rate_limiter(sr.rate_limiters.MinSize(1))
    assert outcome == [[1, 1]]
    with pytest.raises(TypeError, match=r"expected a rate limiter of shmreplay\.rate_limiters, got 3"):
        table.set_rate_limiter(3)  # type: ignore[arg-type]


def test_a_change_late_in_a_run_blocks_nobody_for_hours(make_table: TableMaker) -> None:
    """Rebased, the difference starts in the middle of the new bounds; else the counters of the past speak."""
    table = make_table()
    table.insert_batch(steps(range(60)))
    for _ in range(10):
        table.sample(100)
    new = RateLimiter(2.0, 1, -6.0, 10.0)  # by the counters: 120 - 1000 samples, far under -6
    table.set_rate_limiter(new, rebase=False)
    assert table.info().difference == 120 - 1000
    assert (table.can_insert(), table.can_sample()) == (True, False)
    table.set_rate_limiter(new)
    assert table.info().difference == 2.0
    assert [table.can_sample(n) for n in (8, 9)] == [True, False]
    assert [table.can_insert(n) for n in (4, 5)] == [True, False]
    table.sample(8, timeout_s=0)
    with pytest.raises(sr.RateLimitTimeout):
        table.sample(1, timeout_s=0)
    table.insert_batch(steps(range(8)), timeout_s=0)
    assert table.info().difference == 10
    with pytest.raises(sr.RateLimitTimeout, match="one more insert would raise the difference from 10 to 12, above"):
        table.insert(step(0), timeout_s=0)


@pytest.mark.parametrize(
    ("limiter", "difference"),
    [
        (RateLimiter(1.0, 1, -FOREVER, FOREVER), 3.0),  # nothing to keep: as it was
        (RateLimiter(1.0, 1, 10.0, FOREVER), 11.0),  # one sample can be had
        (RateLimiter(1.0, 1, -10.0, FOREVER), 3.0),
        (RateLimiter(1.0, 1, -FOREVER, 2.0), 1.0),  # one insert can be had
        (RateLimiter(1.0, 1, -FOREVER, 50.0), 3.0),
    ],
)
def test_a_rebase_to_one_bound_leaves_room_for_one_call(
    make_table: TableMaker, limiter: sr.rate_limiters.RateLimiter, difference: float
) -> None:
    table = make_table()
    table.insert_batch(steps(range(5)))
    table.sample(2)
    table.set_rate_limiter(limiter)
    assert table.info().difference == difference
    assert table.can_insert()
    assert table.can_sample()


def test_a_reset_lets_blocked_inserts_go_on(make_table: TableMaker) -> None:
    table = make_table.queue(3)
    table.insert_batch(steps(range(3)))
    with in_thread(lambda: table.insert(step(3))) as outcome:
        until_blocked(table, inserts=1)
        table.reset()
    assert outcome == table.keys().tolist()
    assert values(table) == [3]


def test_the_clients_calls_are_the_tables(make_table: TableMaker) -> None:
    table, client = make_table(), make_table.client
    table.insert(step(0))
    client.pause(table.name, inserts=True, samples=True)
    assert not table.can_insert()
    client.resume(table.name)
    client.set_rate_limiter(table.name, sr.rate_limiters.MinSize(2))
    assert not table.can_sample()
    client.reset(table.name)
    assert len(table) == 0


def test_a_limiter_that_waits_for_more_items_than_there_can_be_is_warned_of(make_table: TableMaker) -> None:
    table = make_table(10)
    text = f"table {table.name!r}: min_size_to_sample is 11, more than max_size 10: sampling never starts"
    limiter = sr.rate_limiters.MinSize(11)
    for change in (table.set_rate_limiter, lambda limiter: make_table.client.set_rate_limiter(table.name, limiter)):
        with pytest.warns(UserWarning, match=text) as caught:
            change(limiter)
        assert [warning.filename for warning in caught] == [__file__]
    table.set_rate_limiter(sr.rate_limiters.MinSize(10))


def test_a_look_waits_for_the_first_item_alone(make_table: TableMaker) -> None:
    """It is not the limiter that it waits for: one insert of fifty is enough."""
    table = make_table(rate_limiter=sr.rate_limiters.MinSize(50))
    with in_thread(lambda: numbers(table.sample(2, count=False)).tolist()) as outcome:
        eventually(lambda: table.info().blocked_samples_total == 1)
        table.insert(step(4))
    assert outcome == [[4, 4]]


def test_a_blocked_call_says_nothing_more_before_there_is_more_to_say(
    make_table: TableMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of them wake every second: what they ask of Python is what a machine with blocked clients burns."""
    told: list[tuple[Any, ...]] = []
    monkeypatch.setattr("shmreplay.clients.handles.handle.report_wait", lambda *report: told.append(report[3:]))
    with pytest.raises(sr.RateLimitTimeout):
        make_table().sample(1, timeout_s=2.2)
    assert told == [("blocked", 0, 1)]

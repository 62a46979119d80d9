"""Samplers: draws repeat with the seed, arrays are used again when nothing refers to them, all ends are clean."""

import ctypes
import gc
import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from tests.support.children import Fork
from tests.support.tables import TableMaker, address, by_path, columns_of, filled, numbers, spans, step, steps
from tests.support.waiting import WAIT_S, eventually

PREFETCH = [0, 1, 3]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Nor is one that was there before ended."""
    before = set(threading.enumerate())
    yield
    gc.collect()
    eventually(lambda: set(threading.enumerate()) <= before)


def num_threads() -> int:
    return sum(thread.name == "shmreplay-sampler" for thread in threading.enumerate())


def ask(sampler: sr.Sampler, ends: list[sr.ShmReplayError]) -> None:
    """For a thread: what ends its wait for a batch."""
    try:
        next(sampler)
    except sr.ShmReplayError as error:
        ends.append(error)


def asking(sampler: sr.Sampler, ends: list[sr.ShmReplayError]) -> threading.Thread:
    thread = threading.Thread(target=ask, args=(sampler, ends))
    thread.start()
    return thread


# --- draws -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", PREFETCH)
def test_batches_are_those_that_sample_draws_with_the_seed_in_order(make_table: TableMaker, prefetch: int) -> None:
    table = filled(make_table)
    plain = make_table.client.table(table.name, seed=11)
    expected = [plain.sample(8) for _ in range(30)]
    with table.sampler(8, prefetch=prefetch, seed=11) as sampler:
        for batch, want in zip(sampler, expected, strict=False):
            np.testing.assert_array_equal(numbers(batch), numbers(want))
            np.testing.assert_array_equal(batch.keys, want.keys)
            np.testing.assert_array_equal(batch.probabilities, want.probabilities)
        assert sampler.prefetch == prefetch


@pytest.mark.parametrize("prefetch", PREFETCH)
def test_samplers_of_one_seed_draw_alike_whatever_else_is_drawn(make_table: TableMaker, prefetch: int) -> None:
    table = filled(make_table)
    with table.sampler(4, prefetch=prefetch, seed=5) as one, table.sampler(4, prefetch=prefetch, seed=5) as two:
        first = [numbers(next(one)).tolist() for _ in range(10)]
        table.sample(100)
        second = []
        for _ in range(10):
            second.append(numbers(next(two)).tolist())
            table.sample(3)
            next(one)
    assert first == second
    with table.sampler(4, prefetch=prefetch) as one, table.sampler(4, prefetch=prefetch) as two:
        assert [numbers(next(one)).tolist() for _ in range(10)] != [numbers(next(two)).tolist() for _ in range(10)]


def test_options_are_those_of_sample(make_table: TableMaker) -> None:
    table = make_table(20, item_steps=3)
    with table.writer(history=3) as writer:
        for n in range(10):
            writer.append(step(n))
            if n >= 2:
                writer.create_item(length=3)
    with table.sampler(5, columns=["n", "x"], pad_to=4, time_major=True, seed=0) as sampler:
        for _ in range(5):
            batch = next(sampler)
            assert batch.data["x"].shape == (4, 5, 5)
            assert batch.data.keys() == {"n", "x"}
            assert not batch.mask["n"][3].any()
            np.testing.assert_array_equal(batch.data["x"][:3], columns_of(batch.data["n"][:3])["x"])
    before = table.info().samples
    with table.sampler(5, count=False) as sampler:
        assert len(spans(next(sampler))) == 5
    assert table.info().samples == before


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"prefetch": -1}, ValueError, "prefetch is -1; expected at least 0"),
        ({"prefetch": 1.0}, TypeError, r"prefetch is 1\.0; expected a number of batches, or None"),
        ({"prefetch": True}, TypeError, "prefetch is True; expected a number of batches"),
        ({"out": None}, ValueError, "a sampler uses its own arrays, so it takes no out="),
        (
            {"colums": ["n"]},
            TypeError,
            "sampler: got an unexpected keyword argument 'colums'; expected options of sample",
        ),
        ({"n": 3}, TypeError, "sampler: got an unexpected keyword argument 'n'; expected options of sample"),
        ({"batch_size": 0}, ValueError, "batch_size is 0; expected 1 to"),
    ],
)
def test_wrong_options_are_refused_at_once(
    make_table: TableMaker, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    table = filled(make_table, 3)
    with pytest.raises(error, match=f"table {table.name!r}: {text}"):
        table.sampler(**{"batch_size": 2, **options})


def test_what_only_sample_can_judge_comes_out_of_next(make_table: TableMaker) -> None:
    table = filled(make_table, 3)
    for prefetch in (0, 2):
        with table.sampler(2, prefetch=prefetch, columns=["nn"]) as sampler:
            for _ in range(2):
                with pytest.raises(sr.SignatureMismatch, match="columns has 'nn'"):
                    next(sampler)
        with (
            table.sampler(2, prefetch=prefetch, timeout_s=-1) as sampler,
            pytest.raises(ValueError, match="timeout_s is -1"),
        ):
            next(sampler)


def test_nothing_is_sampled_ahead_where_items_are_consumed(make_table: TableMaker) -> None:
    table = make_table.queue(100)
    with pytest.raises(ValueError, match="prefetch is 1, but items are consumed"):
        table.sampler(2, prefetch=1)
    table.insert_batch(steps(range(20)))
    with table.sampler(4) as sampler:
        assert sampler.prefetch == 0
        held = [next(sampler) for _ in range(3)]
        assert len(table) == 8
    assert [numbers(batch).tolist() for batch in held] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert len(table) == 8
    with table.sampler(2, prefetch=2, count=False) as sampler:  # a look consumes nothing
        assert numbers(next(sampler)).tolist() == [12, 12]
    assert len(table) == 8


def test_a_partial_batch_of_a_consuming_table_comes_with_the_error(make_table: TableMaker) -> None:
    table = make_table.queue(10)
    table.insert_batch(steps(range(3)))
    with (
        table.sampler(4, timeout_s=0) as sampler,
        pytest.raises(sr.RateLimitTimeout, match="after 3 of 4 items") as raised,
    ):
        next(sampler)
    assert numbers(raised.value.batch).tolist() == [0, 1, 2]


# --- arrays ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", PREFETCH)
def test_arrays_are_used_again_once_nobody_holds_them(make_table: TableMaker, prefetch: int) -> None:
    table = filled(make_table)
    with table.sampler(8, prefetch=prefetch) as sampler:
        seen = [address(next(sampler).data["x"]) for _ in range(100)]
    assert len(set(seen)) <= prefetch + 2


HOLDS: dict[str, Callable[[sr.Batch], Any]] = {
    "the batch": lambda batch: batch,
    "its data": lambda batch: batch.data,
    "an array": lambda batch: batch.data["x"],
    "a row": lambda batch: batch.data["x"][3],
    "a view of a view": lambda batch: batch.data["x"][1:][::2].T,
    "another dtype": lambda batch: batch.data["x"].view(np.uint8),
    "a memoryview": lambda batch: memoryview(batch.data["x"]),
    "a broadcast": lambda batch: np.broadcast_to(batch.data["x"], (3, *batch.data["x"].shape)),
    "through its interface": lambda batch: np.asarray(memoryview(batch.data["x"])),
}


@pytest.mark.parametrize("prefetch", PREFETCH)
@pytest.mark.parametrize("hold", HOLDS.values(), ids=HOLDS)
def test_arrays_that_somebody_holds_are_not_written_to(
    make_table: TableMaker, hold: Callable[[sr.Batch], Any], prefetch: int
) -> None:
    table = filled(make_table)
    with table.sampler(8, prefetch=prefetch, columns=["x", "n"]) as sampler:
        held, memory = [], []
        for batch in itertools.islice(sampler, 12):
            held.append(hold(batch))
            memory.append((address(batch.data["x"]), batch.data["x"].nbytes, batch.data["x"].tobytes()))
        del batch
        for _ in range(30):
            next(sampler)
        assert len({first for first, _, _ in memory}) == len(memory)
        assert [ctypes.string_at(first, size) for first, size, _ in memory] == [content for _, _, content in memory]
        assert len(held) == 12


def test_a_caller_who_keeps_every_batch_has_them_all(make_table: TableMaker) -> None:
    table = filled(make_table)
    with table.sampler(8, seed=1) as sampler:
        batches = [next(sampler) for _ in range(50)]
    plain = make_table.client.table(table.name, seed=1)
    for batch in batches:
        np.testing.assert_array_equal(numbers(batch), numbers(plain.sample(8)))


@pytest.mark.parametrize("prefetch", PREFETCH)
def test_a_longer_item_makes_longer_arrays(make_table: TableMaker, prefetch: int) -> None:
    table = make_table(100, chunk_steps=64)
    with table.writer(history=20) as writer, table.sampler(4, prefetch=prefetch, seed=2) as sampler:
        for length in (1, 2, 7, 20):
            for n in range(length):
                writer.append(step(n))
            writer.create_item(length=length)
            writer.end_episode()
            for _ in range(prefetch + 1):  # what was sampled before
                next(sampler)
            for _ in range(6):
                batch = next(sampler)
                assert batch.data["n"].shape == (4, length)
                assert all(span == list(range(len(span))) for span in spans(batch))


# --- timeouts and other errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", PREFETCH)
@pytest.mark.parametrize("timeout_s", [0, 0.05])
def test_after_a_timeout_a_sampler_goes_on(make_table: TableMaker, prefetch: int, timeout_s: float) -> None:
    table = make_table(10)
    with table.sampler(2, prefetch=prefetch, timeout_s=timeout_s) as sampler:
        for _ in range(3):
            with pytest.raises(sr.RateLimitTimeout, match="the table is empty") as raised:
                next(sampler)
            assert raised.value.batch is None
        table.insert(step(3))
        for _ in range(3):
            assert numbers(next(sampler)).tolist() == [3, 3]


def test_errors_come_after_the_batches_sampled_before_them(make_table: TableMaker) -> None:
    """The limiter admits five batches; the wait for the sixth times out while nobody has asked for it."""
    table = make_table(10, rate_limiter=sr.rate_limiters.RateLimiter(10.0, 1, 0.0, 1000.0))
    table.insert(step(7))
    with table.sampler(2, prefetch=8, timeout_s=0) as sampler:
        assert numbers(next(sampler)).tolist() == [7, 7]
        eventually(lambda: table.info().samples == 10)
        for _ in range(4):
            assert numbers(next(sampler)).tolist() == [7, 7]
        with pytest.raises(sr.RateLimitTimeout):
            next(sampler)


def test_a_timeout_of_a_wait_that_nobody_waited_for_is_tried_again(make_table: TableMaker) -> None:
    table = make_table(10, rate_limiter=sr.rate_limiters.RateLimiter(4.0, 1, 0.0, 1000.0))
    table.insert(step(7))
    with table.sampler(2, prefetch=8, timeout_s=0) as sampler:
        next(sampler)
        ahead = sampler._ahead
        assert ahead is not None
        eventually(lambda: ahead._ready.qsize() == 2)  # one batch, and the timeout of the one after it
        next(sampler)
        table.insert(step(8))
        assert set(numbers(next(sampler)).tolist()) <= {7, 8}


def test_a_dropped_table_ends_what_waits(make_table: TableMaker) -> None:
    for prefetch in (0, 2):
        table = make_table(10)
        sampler = table.sampler(2, prefetch=prefetch)
        ends: list[sr.ShmReplayError] = []
        thread = asking(sampler, ends)
        eventually(lambda table=table: table.info().blocked_samples == 1)  # type: ignore[misc]
        make_table.client.drop_table(table.name)
        thread.join(WAIT_S)
        assert [type(error) for error in ends] == [sr.TableClosed]
        with pytest.raises(sr.TableClosed):
            next(sampler)
        sampler.close()
        with pytest.raises(sr.TableClosed):
            table.sampler(2)


def test_ctrl_c_ends_the_wait_and_the_sampler_goes_on(make_table: TableMaker) -> None:
    for prefetch in (0, 2):
        table = make_table(10)
        with table.sampler(2, prefetch=prefetch) as sampler:

            def interrupt(table: TableHandle = table) -> None:
                eventually(lambda: table.info().blocked_samples == 1)
                os.kill(os.getpid(), signal.SIGINT)

            thread = threading.Thread(target=interrupt)
            thread.start()
            with pytest.raises(KeyboardInterrupt):
                next(sampler)
            thread.join(WAIT_S)
            table.insert(step(1))
            assert numbers(next(sampler)).tolist() == [1, 1]


# --- ends ------------------------------------------------------------------------------------------------------------


def test_a_closed_sampler_says_so_and_keeps_no_thread(make_table: TableMaker) -> None:
    table = filled(make_table)
    for prefetch, threads in ((0, 0), (2, 1)):
        sampler = table.sampler(2, prefetch=prefetch)
        batch = next(sampler)
        before = numbers(batch).tolist()
        assert num_threads() == threads
        assert not sampler.is_closed
        sampler.close()
        sampler.close()
        assert num_threads() == 0
        assert sampler.is_closed
        assert repr(sampler) == f"<shmreplay sampler of table {table.name!r} closed>"
        with pytest.raises(sr.ShmReplayError, match="this sampler is closed; make another one"):
            next(sampler)
        assert numbers(batch).tolist() == before


def test_a_loop_that_is_left_leaves_no_thread(make_table: TableMaker) -> None:
    table = filled(make_table)
    for batch in table.sampler(2):
        assert num_threads() == 1
        assert len(batch) == 2
        break
    gc.collect()
    eventually(lambda: num_threads() == 0)


def test_a_sampler_that_is_garbage_leaves_no_thread_wherever_that_is(make_table: TableMaker) -> None:
    table, empty = filled(make_table), make_table(3)
    samplers = [table.sampler(2), empty.sampler(2)]
    next(samplers[0])
    waits = asking(samplers[1], [])
    eventually(lambda: empty.info().blocked_samples == 1)
    samplers[1].close()
    waits.join(WAIT_S)
    assert num_threads() == 1
    samplers.clear()
    gc.collect()
    eventually(lambda: num_threads() == 0)


def test_a_sampler_never_asked_for_a_batch_samples_nothing(make_table: TableMaker) -> None:
    table = filled(make_table)
    with table.sampler(2):
        assert num_threads() == 0
    assert table.info().samples == 0


@pytest.mark.parametrize("prefetch", PREFETCH)
def test_closing_ends_a_call_of_next_that_waits(make_table: TableMaker, prefetch: int) -> None:
    table = make_table(10)
    for _ in range(20):
        sampler = table.sampler(2, prefetch=prefetch)
        ends: list[sr.ShmReplayError] = []
        threads = [asking(sampler, ends) for _ in range(3)]
        eventually(lambda: table.info().blocked_samples == (3 if prefetch == 0 else 1))
        sampler.close()
        for thread in threads:
            thread.join(WAIT_S)
        assert len(ends) == 3
        assert all("closed" in str(error) for error in ends)


@pytest.mark.parametrize("prefetch", PREFETCH)
def test_closing_the_client_closes_its_samplers(make_table: TableMaker, server: sr.Server, prefetch: int) -> None:
    table = filled(make_table)
    client = server.client()
    sampler = client.table(table.name).sampler(2, prefetch=prefetch)
    batch = next(sampler)
    before = numbers(batch).tolist()
    client.close()
    assert sampler.is_closed
    assert num_threads() == 0
    with pytest.raises(sr.ShmReplayError, match="its client is closed"):
        next(sampler)
    assert numbers(batch).tolist() == before
    sampler.close()


def test_other_waits_of_the_table_go_on_when_a_sampler_is_closed(make_table: TableMaker) -> None:
    table = make_table.queue(4)
    found: list[int] = []
    waiter = threading.Thread(target=lambda: found.extend(numbers(table.sample(1)).tolist()))
    waiter.start()
    eventually(lambda: table.info().blocked_samples == 1)
    for _ in range(10):
        sampler = table.sampler(1)
        other = asking(sampler, [])
        eventually(lambda: table.info().blocked_samples == 2)
        sampler.close()
        other.join(WAIT_S)
    assert waiter.is_alive()
    table.insert(step(9))
    waiter.join(WAIT_S)
    assert found == [9]


# --- threads and forks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", PREFETCH)
def test_threads_share_a_sampler_each_batch_goes_to_one_of_them(make_table: TableMaker, prefetch: int) -> None:
    table = filled(make_table)
    plain = make_table.client.table(table.name, seed=4)
    expected = [plain.sample(3).keys.tolist() for _ in range(400)]
    taken: list[list[list[int]]] = [[], [], [], []]
    with table.sampler(3, prefetch=prefetch, seed=4) as sampler:

        def take(into: list[list[int]]) -> None:
            for _ in range(100):
                batch = next(sampler)
                data = by_path(batch.data)
                np.testing.assert_array_equal(data["x"], columns_of(data["n"])["x"])
                into.append(batch.keys.tolist())

        threads = [threading.Thread(target=take, args=(into,)) for into in taken]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
    if prefetch > 0:  # one thread draws: the draws of the seed, each given to one
        assert sorted(itertools.chain(*taken)) == sorted(expected)
    assert sum(map(len, taken)) == 400


MAY_FORK = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@MAY_FORK
@pytest.mark.parametrize("prefetch", PREFETCH)
def test_a_forked_child_goes_on_with_a_thread_and_numbers_of_its_own(
    make_table: TableMaker, fork: Fork, prefetch: int
) -> None:
    table = filled(make_table)

    def first_draws(sampler: sr.Sampler) -> list[list[int]]:
        return [numbers(next(sampler)).tolist() for _ in range(5)]

    for seed in (None, 6):
        with table.sampler(8, prefetch=prefetch, seed=seed) as sampler:
            batch = next(sampler)
            before = numbers(batch).tolist()

            def work(_: object, sampler: sr.Sampler = sampler, batch: sr.Batch = batch) -> tuple[Any, ...]:
                found = first_draws(sampler)
                threads = num_threads()
                sampler.close()
                return found, threads, num_threads(), numbers(batch).tolist()

            found, threads, left, kept = fork(work).result()
            assert (threads, left) == (min(prefetch, 1), 0)
            assert kept == before
            assert found != first_draws(sampler)
            again = fork(work).result()[0]
            assert again != found
            assert numbers(batch).tolist() == before


@MAY_FORK
def test_a_child_leaves_its_parents_sampler_alone_however_it_ends(make_table: TableMaker, fork: Fork) -> None:
    table = filled(make_table)
    with table.sampler(8) as sampler:
        next(sampler)

        def closes(_: object) -> None:
            sampler.close()

        def drops(_: object) -> int:
            table._client.close()
            return num_threads()

        for work in (closes, drops):
            assert not fork(work).result()
            assert len(next(sampler)) == 8
        assert num_threads() == 1

"""The rate limiter over shards: bounds that hold over all, shards that are blocked while others serve, waits."""

import signal
import threading
import time
from multiprocessing.connection import Connection

import numpy as np
import pytest

import shmreplay as sr
from tests.clients.shards.conftest import MakeShards, shards_of
from tests.support.children import Fork
from tests.support.tables import client_of, numbers, step, steps
from tests.support.waiting import WAIT_S, eventually


def test_an_empty_table_lets_a_sample_time_out_and_says_why_by_shard(make_shards: MakeShards) -> None:
    table = make_shards(30)
    for timeout_s in (0, 0.05):
        begun = time.monotonic()
        with pytest.raises(sr.RateLimitTimeout) as caught:
            table.sample(4, timeout_s=timeout_s)
        assert time.monotonic() - begun >= timeout_s
        assert caught.value.batch is None
    text = str(caught.value)
    assert f"table '{table.name}': sample not admitted within 0.05 s, by none of its shards: '{table.name}~0'" in text
    assert f"'{table.name}~2': the table is empty; waiting for an insert" in text
    with pytest.raises(sr.RateLimitTimeout, match=r"sample\(count=False\) not admitted"):
        table.sample(4, timeout_s=0.02, count=False)
    with pytest.raises(sr.RateLimitTimeout):
        table.sample(4, timeout_s=0.02, columns="n")
    assert table.info().blocked_samples == 0


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("count", [True, False])
def test_a_blocked_sample_is_woken_by_an_insert_into_any_shard(
    make_shards: MakeShards, number: int, count: bool
) -> None:
    table = make_shards(30)
    shard, found = shards_of(table)[number], list[int]()
    thread = threading.Thread(target=lambda: found.extend(numbers(table.sample(4, WAIT_S, count=count)).tolist()))
    thread.start()
    if count:
        eventually(lambda: table.info().blocked_samples == 3)
    shard.insert(step(7))
    thread.join(WAIT_S)
    assert found == [7] * 4
    assert table.info().blocked_samples == 0


def test_a_shard_that_is_blocked_counts_as_empty(make_shards: MakeShards) -> None:
    table = make_shards(300, rate_limiter=sr.rate_limiters.MinSize(30))
    first, second, _ = shards_of(table)
    first.insert_batch(steps(np.arange(9)))
    second.insert_batch(steps(np.arange(100, 115)))
    for _ in range(5):
        batch = table.sample(64, timeout_s=0)
        assert numbers(batch).min() >= 100  # the first has 9 of its 10
        np.testing.assert_allclose(batch.probabilities, 1 / 15)
    first.insert(step(9))
    batch = table.sample(200, timeout_s=0)
    assert set(batch.keys >> 56) == {0, 1}
    np.testing.assert_allclose(batch.probabilities, 1 / 25)


def test_what_is_admitted_before_a_timeout_is_in_the_error_and_at_the_front(make_shards: MakeShards) -> None:
    limiter = sr.rate_limiters.RateLimiter(1.0, 3, 0.0, 1000.0)
    table = make_shards(300, rate_limiter=limiter)
    for number, shard in enumerate(shards_of(table)):
        shard.insert_batch(steps(np.arange(10 * number, 10 * number + 4 + number)))
    assert table.can_sample(15)
    assert not table.can_sample(16)
    out = {"n": np.full(40, -1), "x": np.zeros((40, 5), np.float32)}
    with pytest.raises(sr.RateLimitTimeout, match="after 15 of 40 items") as caught:
        table.sample(40, timeout_s=0, columns=["n", "x"], out=out)
    batch = caught.value.batch
    assert len(batch) == len(batch.keys) == len(batch.data["n"]) == 15
    assert np.array_equal(out["n"][:15], batch.data["n"])
    assert batch.data["n"].min() >= 0
    np.testing.assert_array_equal(batch.data["x"], batch.data["n"][:, None] * 3 + np.arange(5))
    assert table.get(batch.keys).data["n"].tolist() == batch.data["n"].tolist()
    assert table.info().difference == 0
    shards_of(table)[1].insert_batch(steps(np.arange(2)))
    assert len(table.sample(40, timeout_s=0, at_least=2)) == 2


def test_bounds_hold_over_all_shards_while_writers_and_learners_run(make_shards: MakeShards, fork: Fork) -> None:
    """Four writers in three shards, of unequal speed: none starves, and the ratio always holds."""
    limiter = sr.rate_limiters.SampleToInsertRatio(4, 30, 60)
    table = make_shards(300, rate_limiter=limiter, max_sessions=64)

    def write(pipe: Connection) -> None:
        own, slowness = client_of(table).table(table.name), pipe.recv()
        while not pipe.poll():
            try:
                own.insert(step(1), timeout_s=0.05)
            except sr.RateLimitTimeout:
                continue
            pipe.poll(slowness)

    children = [fork(write) for _ in range(4)]
    for child, slowness in zip(children, (0, 0, 0.001, 0.01), strict=True):
        child.send(slowness)
    total = 0
    while total < 4000:
        total += len(table.sample(16, timeout_s=WAIT_S))
        for info in table.shard_infos():
            # Read without the lock: inserts and samples may be a call apart.
            assert info.difference <= info.max_diff + 16
            assert info.samples == 0 or info.difference >= info.min_diff - 16
    info = table.info()
    assert info.samples >= 4000
    assert limiter.min_diff - 48 <= info.difference <= limiter.max_diff + 48
    for child in children:
        child.send()
        child.result()
    eventually(lambda: table.info().blocked_inserts == 0)
    info = table.info()
    assert limiter.min_diff <= info.difference <= limiter.max_diff


def test_pauses_and_resets_and_drops_reach_a_blocked_sample(make_shards: MakeShards) -> None:
    table = make_shards(30)
    shards_of(table)[0].insert(step(1))
    table.pause()
    outcome = list[object]()

    def sample() -> None:
        try:
            outcome.append(len(table.sample(4)))
        except sr.TableClosed as error:
            outcome.append(type(error))

    def blocked() -> threading.Thread:
        thread = threading.Thread(target=sample)
        thread.start()
        eventually(lambda: table.info().blocked_samples == 3)
        return thread

    thread = blocked()
    table.resume()
    thread.join(WAIT_S)
    assert outcome.pop() == 4
    table.pause()
    thread = blocked()
    client_of(table).drop_table(table.name)
    thread.join(WAIT_S)
    assert outcome.pop() == sr.TableClosed
    with pytest.raises(sr.TableNotFound):
        client_of(table).table(table.name)


def test_a_sampler_that_waits_for_all_shards_ends_at_once(make_shards: MakeShards) -> None:
    table = make_shards(30)
    batches = table.sampler(4, prefetch=1)

    def take() -> None:
        with pytest.raises(sr.ShmReplayError, match="this sampler is closed"):
            next(batches)

    thread = threading.Thread(target=take)
    thread.start()
    eventually(lambda: table.info().blocked_samples == 3)
    batches.close()
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_a_signal_ends_a_wait_for_all_shards(make_shards: MakeShards, fork: Fork) -> None:
    table = make_shards(30)

    def work(pipe: Connection) -> str:
        signal.signal(signal.SIGUSR1, lambda *_: (_ for _ in ()).throw(KeyError("raised")))
        pipe.send("ready")
        try:
            table.sample(4)
        except KeyError:
            return "raised"
        return "sampled"

    child = fork(work)
    child.receive()
    eventually(lambda: table.info().blocked_samples == 3)
    child.signal(signal.SIGUSR1)
    assert child.result() == "raised"
    eventually(lambda: table.info().blocked_samples == 0)


def test_a_dead_sleeper_of_all_shards_is_counted_off_in_each(make_shards: MakeShards, fork: Fork) -> None:
    table = make_shards(30)
    child = fork(lambda pipe: table.sample(4))
    eventually(lambda: table.info().blocked_samples == 3)
    child.kill()
    eventually(lambda: table.info().blocked_samples == 0)

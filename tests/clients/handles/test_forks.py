"""Forks, other start methods, threads: handles go on in each process and thread by themselves."""

import os
import pathlib
import pickle
import signal
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from tests.support.children import Fork
from tests.support.tables import TableMaker, numbers, step, steps, values
from tests.support.waiting import eventually

PROGRAM = """
import multiprocessing, pickle, sys
import numpy as np
import shmreplay as sr

def work(client, name, n):
    table = client.table(name)
    keys = [table.insert({"n": n * 10 + i, "x": np.full(2, n * 10 + i, np.float32)}) for i in range(5)]
    batch = table.sample(20)
    assert (batch.data["x"] == batch.data["n"][:, None]).all()
    assert table.update_priorities(np.array(keys), np.full(5, 2.0)) == 5
    client.close()

if __name__ == "__main__":
    method, address, name = sys.argv[1:]
    client = sr.connect(address)
    client.table(name).insert({"n": 0, "x": np.zeros(2, np.float32)})
    assert len(pickle.dumps(client)) < 1000
    context = multiprocessing.get_context(method)
    children = [context.Process(target=work, args=(client, name, n)) for n in range(1, 4)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    print([child.exitcode for child in children], len(client.table(name)))
    client.close()
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.one_quick
def test_children_of_every_start_method_attach_by_the_clients_address(
    make_table: TableMaker, tmp_path: pathlib.Path, method: str
) -> None:
    """The program's errors are empty: no resource tracker complains, nothing is unlinked under another's feet."""
    table = make_table(
        signature={"n": np.int64(0), "x": np.zeros(2, np.float32)}, sampler=sr.selectors.Prioritized(1.0)
    )
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program), method, make_table.client.address, table.name],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[0, 0, 0] 16\n", "")
    assert len(table) == 16
    eventually(lambda: len(table._arena.sessions()) == 1)


def test_a_handle_goes_on_in_a_forked_child_with_a_session_of_its_own(make_table: TableMaker, fork: Fork) -> None:
    table = make_table(1000, chunk_steps=8)
    mine = [table.insert(step(n)) for n in range(20)]

    def work(pipe: Any) -> list[int]:
        keys = []
        for n in range(100, 150):
            keys.append(table.insert(step(n)))
            numbers(table.sample(3))
        pipe.send(sorted(session["pid"] for session in table._arena.sessions()))
        pipe.recv()
        return keys

    child = fork(work)
    pids = child.receive()
    mine += [table.insert(step(n)) for n in range(20, 60)]
    assert pids == sorted([os.getpid(), child.pid])
    child.send()
    theirs = child.result()
    assert len({*mine, *theirs}) == 110
    by_key = dict(zip(table.keys().tolist(), values(table), strict=True))
    assert [by_key[key] for key in mine] == list(range(60))
    assert [by_key[key] for key in theirs] == list(range(100, 150))


def test_a_childs_first_call_does_not_touch_rows_that_the_parent_is_writing(make_table: TableMaker, fork: Fork) -> None:
    """The parent's insert waits with its row written, in a chunk that the child knows from before the fork."""
    table = make_table(rate_limiter=sr.rate_limiters.RateLimiter(1.0, 1, float("-inf"), 2.0), chunk_steps=16)
    table.insert(step(1))
    table.insert_batch(steps([2]))

    def work(pipe: Any) -> None:
        pipe.recv()
        for call in (
            lambda: table.insert(step(666), timeout_s=0),
            lambda: table.insert_batch(steps([667]), timeout_s=0),
        ):
            with pytest.raises(sr.RateLimitTimeout):
                call()

    child = fork(work)
    thread = threading.Thread(target=lambda: table.insert(step(3)))
    thread.start()
    eventually(lambda: table.info().blocked_inserts == 1)
    child.send()
    child.result()
    table.sample(1)
    thread.join()
    assert values(table) == [1, 2, 3]


def test_the_death_of_a_child_does_not_hurt_the_parent(make_table: TableMaker, fork: Fork) -> None:
    """Killed while it waits, with an open writer, and with items of its own in the table."""
    table = make_table(64, rate_limiter=sr.rate_limiters.RateLimiter(1.0, 1, float("-inf"), 30.0))
    table.insert_batch(steps(range(28)))

    def work(pipe: Any) -> None:
        table.insert(step(28))
        writer = table.writer(history=3)
        writer.append(step(1000))
        table.insert_batch(steps(range(29, 64)))

    for _ in range(3):
        child = fork(work)
        eventually(lambda: table.info().blocked_inserts == 1)
        child.kill()
        assert values(table) == list(range(30))
        eventually(lambda: len(table._arena.sessions()) == 1 and table.info().blocked_inserts == 0)
        table.delete(table.keys()[-2:])
        table.sample(2)
    assert table.insert(step(99)) > 0


def test_a_writer_does_not_go_on_in_a_forked_child(make_table: TableMaker, fork: Fork) -> None:
    table = make_table(item_steps=3)
    writer = table.writer()
    writer.append(step(1))
    writer.append({"n": 2}, partial=True)

    def work(pipe: Any) -> list[str]:
        texts = []
        for call in (
            lambda: writer.append(step(3)),
            lambda: writer.append({"x": step(2)["x"]}, partial=True),
            lambda: writer.create_item(length=1),
            lambda: writer.end_episode(clear_history=False),
        ):
            with pytest.raises(sr.ShmReplayError) as raised:
                call()
            texts.append(str(raised.value))
        writer.close()
        with table.writer() as own:
            own.append(step(77))
            own.create_item(length=1)
        return texts

    expected = (
        f"table {table.name!r}: this writer belongs to the parent process; make one in the child with table.writer()"
    )
    assert fork(work).result() == [expected] * 4
    writer.append({"x": step(2)["x"], "image": step(2)["image"], "pair": step(2)["pair"]})
    writer.create_item(length=2)
    writer.close()
    batch = table.get(table.keys())
    assert batch.data["n"].tolist() == [[77, 0, 0], [1, 2, 0]]
    assert batch.data["x"][1, 1].tolist() == step(2)["x"].tolist()


def test_children_draw_differently_and_seeded_ones_repeatably(make_table: TableMaker, fork: Fork, seed: int) -> None:
    plain = make_table(1000)
    plain.insert_batch(steps(range(1000)))

    def families(given: int | None) -> list[list[int]]:
        table = make_table.client.table(plain.name, seed=given)
        children = [fork(lambda pipe: numbers(table.sample(30)).tolist()) for _ in range(3)]
        return [*(child.result() for child in children), numbers(table.sample(30)).tolist()]

    for given in (None, seed):
        assert len({tuple(draws) for draws in families(given)}) == 4
    # Which fork of this process a child is counts for its draws; the parent's own do not hang on its forks.
    assert families(seed)[-1] == numbers(make_table.client.table(plain.name, seed=seed).sample(30)).tolist()


@pytest.mark.long
def test_two_hundred_clients_at_once(make_table: TableMaker, fork: Fork) -> None:
    """All of them attached at the same time, each inserting and sampling: from one table of two hundred streams."""
    count = 200
    table = make_table(10_000, max_streams=256, max_sessions=256, chunk_steps=4)

    def work(pipe: Any, number: int) -> int:
        with sr.connect(make_table.client.address) as client:
            own = client.table(table.name)
            own.insert(step(number * 100))
            pipe.send()
            pipe.recv()
            own.insert_batch(steps(range(number * 100 + 1, number * 100 + 9)))
            seen = numbers(own.sample(16))
            own.insert(step(number * 100 + 9))
            return len(seen)

    children = [fork(lambda pipe, i=i: work(pipe, i)) for i in range(count)]  # type: ignore[misc]
    for child in children:
        child.receive()
    assert len(table._arena.sessions()) == count + 1
    for child in children:
        child.send()
    assert [child.result() for child in children] == [16] * count
    assert sorted(values(table)) == [number * 100 + i for number in range(count) for i in range(10)]
    info = table.info()
    assert (info.inserts, info.samples, info.size) == (10 * count, 16 * count, 10 * count)
    eventually(lambda: len(table._arena.sessions()) == 1)
    assert table._arena.stats()["retired_chunks"] + table._arena.stats()["free_chunks"] > 0


@pytest.mark.filterwarnings("ignore:.*update_priorities hit none:UserWarning")  # others may have evicted them all
def test_threads_share_a_handle(make_table: TableMaker) -> None:
    table = make_table(500, sampler=sr.selectors.Prioritized(0.5), chunk_steps=4, max_streams=32)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        try:
            for i in range(60):
                keys = [table.insert(step(number * 1000 + i), float(rng.random()))]
                keys += table.insert_batch(steps(range(number * 1000 + 100, number * 1000 + 105))).tolist()
                batch = table.sample(20)
                numbers(batch)
                table.update_priorities(batch.keys, rng.random(20))
                table.delete(np.array(keys[:2], np.int64))
                table.keys()
                table.info()
        except BaseException as error:  # noqa: BLE001  # the test fails with it below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    info = table.info()
    assert (info.inserts, info.samples) == (8 * 60 * 6, 8 * 60 * 20)
    assert info.inserts - info.deletes == info.size == len(values(table))


def test_a_pickled_client_is_one_of_the_same_daemon(make_table: TableMaker) -> None:
    table = make_table()
    with pickle.loads(pickle.dumps(make_table.client)) as client:
        client.table(table.name).insert(step(4))
    assert values(table) == [4]


def test_clients_that_come_and_go_leave_no_session(make_table: TableMaker, fork: Fork) -> None:
    """By close, by exit, by SIGTERM: streams, leases and sessions are back."""
    table = make_table(30, max_streams=2, max_sessions=3)

    def work(pipe: Any, number: int) -> None:
        table.insert(step(number))
        writer = table.writer()
        writer.append(step(number))
        if number % 3 == 0:
            writer.close()
            make_table.client.close()
        pipe.send()
        pipe.recv()

    for number in range(9):
        child = fork(lambda pipe, number=number: work(pipe, number))  # type: ignore[misc]
        child.receive()
        if number % 3 == 2:
            child.signal(signal.SIGTERM)
        else:
            child.send()
            child.result()
        eventually(lambda: len(table._arena.sessions()) == 1)
    assert values(table) == list(range(9))


def test_one_process_too_many_is_told_what_to_raise(make_table: TableMaker, fork: Fork) -> None:
    table = make_table(10, max_sessions=2)
    table.insert(step(1))

    def work(pipe: Any) -> None:
        numbers(table.sample(1))
        pipe.send()
        pipe.recv()

    first = fork(work)
    first.receive()

    def one_too_many(pipe: Any) -> str:
        with pytest.raises(sr.ShmReplayError) as raised:
            table.sample(1)
        return str(raised.value)

    assert "all sessions of the arena are taken; raise max_sessions" in fork(one_too_many).result()
    first.send()
    first.result()
    eventually(lambda: len(table._arena.sessions()) == 1)
    again = fork(work)  # its place is free again
    again.receive()
    again.send()
    again.result()

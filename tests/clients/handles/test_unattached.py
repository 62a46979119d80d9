"""Handles in other processes: pickled, they attach there with their first use; what belongs to one process says so."""

import copy
import pathlib
import pickle
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients import params
from shmreplay.clients.link.attachments import mappings
from tests.support.tables import TableMaker, client_of, numbers, step, steps
from tests.support.waiting import WAIT_S

# What people write: the handles themselves are the arguments of processes that the start method does not fork.
PROGRAM = """
import multiprocessing, sys
import numpy as np
import shmreplay as sr
from shmreplay.clients.params import Params

def work(n, told, replay, shards, mix, weights):
    replay.insert({"n": n})
    shards.insert({"n": n})
    with weights.latest() as newest:
        assert newest.data["w"].tolist() == [1, 2]
    batch = mix.sample()
    assert mix.update_priorities(batch, np.ones(len(batch))) == len(batch)
    told.put((n, replay.sample(20).data["n"].tolist(), mix.sample().data["n"].tolist()))

if __name__ == "__main__":
    method, address, *names = sys.argv[1:]
    with sr.connect(address) as client:
        replay, shards = (client.table(name, seed=1) for name in names[:2])
        given = replay, shards, sr.mix([(replay, 16)], seed=1), Params(client.table(names[2]))
        context = multiprocessing.get_context(method)
        told = context.Queue()
        children = [context.Process(target=work, args=(n, told, *given)) for n in (1, 2)]
        for child in children:
            child.start()
        for child in children:
            child.join()  # what they tell fits into the pipe
        print([child.exitcode for child in children], len(shards))
        drawn = [told.get(timeout=60) for child in children if child.exitcode == 0]
        assert len({str(draws) for _, *draws in drawn}) == 2, drawn
        print(sorted(n for n, *_ in drawn))
"""


@pytest.fixture
def table(make_table: TableMaker) -> sr.TableHandle:
    """A table of 50 items, whose handle has a seed."""
    made = make_table(1000)
    made.insert_batch(steps(range(50)))
    return make_table.client.table(made.name, seed=7)


def again(handle: Any) -> Any:
    """The handle as another process gets it."""
    return pickle.loads(pickle.dumps(handle))


def draws(table: Any) -> tuple[int, ...]:
    return tuple(numbers(table.sample(20)).tolist())


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.one_quick
def test_handles_are_arguments_of_processes_of_every_start_method(
    make_table: TableMaker, tmp_path: pathlib.Path, method: str
) -> None:
    signature = {"n": sr.ArraySpec((), "int64")}
    plain = make_table(100, signature=signature)
    make_table.client.create_tables(
        [sr.Table(f"{plain.name}s", signature, 100, shards=2), params.table(f"{plain.name}p", {"w": np.zeros(2)})]
    )
    plain.insert_batch({"n": np.arange(90)})
    params.Params(make_table.client.table(f"{plain.name}p")).publish({"w": np.array([1.0, 2.0])})
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    names = plain.name, f"{plain.name}s", f"{plain.name}p"
    command = [sys.executable, str(program), method, make_table.client.address, *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * WAIT_S)
    assert done.stderr == ""
    assert (done.returncode, done.stdout) == (0, "[0, 0] 2\n[1, 2]\n")
    for name in names[1:]:
        make_table.client.drop_table(name)


def test_it_attaches_with_its_first_use(table: sr.TableHandle) -> None:
    other = again(table)
    assert isinstance(other, sr.TableHandle)
    assert repr(other) == f"{repr(table)[:-1]}, not used yet in this process>"
    assert other.spec == table.spec
    assert repr(other) == repr(table)
    assert type(other) is sr.TableHandle
    other.insert(step(50))
    assert other.get(other.keys()[-1:]).data["n"].tolist() == [50]
    assert len(table) == 51
    client_of(other).close()
    assert len(table) == 51
    with pytest.raises(sr.ShmReplayError, match="its client is closed"):
        other.insert(step(51))


def test_handles_in_one_pickle_share_their_client(table: sr.TableHandle, make_table: TableMaker) -> None:
    client, one, two = pickle.loads(pickle.dumps((client_of(table), table, make_table.client.table(table.name))))
    with client:
        assert len(one) == len(two) == 50
        assert client_of(one) is client_of(two) is client


def test_each_pickle_has_random_numbers_of_its_own(table: sr.TableHandle, make_table: TableMaker) -> None:
    """With a seed they are repeatable, and the handle's own do not hang on how often it was pickled."""
    found = [draws(again(table)) for _ in range(3)]
    found += [draws(again(again(table))), draws(copy.copy(table)), draws(table)]
    assert len(set(found)) == 6
    twin = make_table.client.table(table.name, seed=7)
    assert found[0] == draws(again(twin))
    assert found[-1] == draws(twin)
    unseeded = make_table.client.table(table.name)
    assert draws(again(unseeded)) != draws(again(unseeded))


def test_threads_may_be_the_first_to_use_it_at_the_same_time(table: sr.TableHandle) -> None:
    """They get one handle: no two of them draw by the same numbers."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            other, found, barrier = again(table), list[tuple[int, ...]](), threading.Barrier(3)

            def work(other: Any = other, found: Any = found, barrier: Any = barrier) -> None:
                barrier.wait(WAIT_S)
                found.append(draws(other))

            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(set(found)) == 3
    finally:
        sys.setswitchinterval(interval)


def test_unpickling_neither_waits_nor_fails(make_table: TableMaker) -> None:
    """A pool whose worker cannot unpickle a task waits for ever. So the error comes with the first call."""
    made = make_table.client
    made.create_tables([sr.Table("gone", {"n": np.int64(0)}, 10)])
    other = again(made.table("gone"))
    made.drop_table("gone")
    for _ in range(2):
        with pytest.raises(sr.TableNotFound, match="there is no table 'gone'"):
            other.insert({"n": 1})
    made.create_tables([sr.Table("gone", {"n": np.int64(0)}, 10, shards=2)])
    with pytest.raises(sr.TableClosed, match="was dropped; take a handle of the new one of its name"):
        len(other)  # it is there again, with shards
    made.drop_table("gone")
    with sr.Server([sr.Table("gone", {"n": np.int64(0)}, 10)]) as server, server.client() as client:
        other = again(client.table("gone"))
    with pytest.raises(sr.DaemonUnavailable, match="has ended"):
        len(other)


def test_a_mix_goes_on_elsewhere_and_takes_batches_of_its_twin(table: sr.TableHandle) -> None:
    mix = sr.mix([(table, 8)], seed=3)
    other, batch = pickle.loads(pickle.dumps((mix, mix.sample())))
    assert isinstance(other, sr.Mix)
    assert not np.array_equal(other.sample().keys, mix.sample().keys)
    assert other.update_priorities(batch, np.ones(8)) == mix.update_priorities(batch, np.ones(8)) == 8


def test_params_know_a_tree_of_many_arrays_elsewhere_too(make_table: TableMaker) -> None:
    tree = {f"w{i}": np.full(i % 3 + 1, i, np.float32) for i in range(130)}
    make_table.client.create_tables([params.table("many", tree)])
    weights = params.Params(make_table.client.table("many"), like=tree)
    other = again(weights)
    assert other.publish(tree) == 1
    with weights.latest() as newest:
        assert newest.data["w129"].tolist() == [129]
    make_table.client.drop_table("many")


def test_what_belongs_to_its_process_says_what_to_pass_instead(make_table: TableMaker) -> None:
    table = make_table()
    table.insert(step(1))
    make_table.client.create_tables([params.table("policy", {"w": np.zeros(2)})])
    weights = params.Params(make_table.client.table("policy"))
    weights.publish({"w": np.zeros(2)})
    with table.writer(patterns=[sr.Sequence(2)]) as writer, table.sampler(1) as sampler, table.view(1) as view:
        refused = {
            f"<shmreplay sampler of table {table.name!r}> cannot be pickled, its thread and arrays are this process' "
            "own; pass the table, and make one there": sampler,
            f"<View of 1 items of table {table.name!r}> cannot be pickled, it leases memory to this process; pass "
            "copies of its arrays": view,
            "<Snapshot of version 1> cannot be pickled, it leases memory to this process; pass its copy(), or the "
            "Params it is from": weights.latest(),
            f"table {table.name!r}: a writer cannot be pickled, it is a stream of one process; pass the table, and "
            "call table.writer() there": writer,
        }
        for text, given in refused.items():
            with pytest.raises(TypeError) as raised:
                pickle.dumps(given)
            assert str(raised.value) == text
        refused.clear()
    make_table.client.drop_table("policy")


def test_handles_that_nobody_closed_keep_no_memory_of_dropped_tables(make_table: TableMaker) -> None:
    client = make_table.client
    before = len(mappings().by_identity)
    for _ in range(5):
        client.create_tables([sr.Table("brief", {"n": np.int64(0)}, 10)])
        assert len(again(client.table("brief"))) == 0
        client.drop_table("brief")
    assert len(mappings().by_identity) <= before + 1

"""Versions between processes: no reader sees a mix of two, and the death of a process harms no other."""

from multiprocessing.connection import Connection
from typing import Any

import pytest

import shmreplay as sr
from shmreplay.clients.params import Params
from tests.clients.params.conftest import PolicyMaker, number_of, publish_until_full, seen, tree
from tests.support.children import Fork, Work
from tests.support.waiting import eventually


def attached(policy: Params) -> Params:
    """As another process has it."""
    client = sr.connect(policy._table._client.address)
    return Params(client.table(policy._table.name))


def publishes(policy: Params, versions: int | None = None) -> Work:
    """Publishes this many versions; without a number, for ever."""

    def work(pipe: Connection) -> int:
        own = attached(policy)
        number = own.version
        while versions is None or number < versions:
            number += 1
            assert own.publish(tree(number), timeout_s=100) == number
            if number == 20:
                pipe.send(None)
        return number

    return work


def reads(policy: Params, last: int) -> Work:
    """Reads until that version: all it sees are whole, and newer each time."""

    def work(pipe: Connection) -> list[int]:
        own = attached(policy)
        versions = [0]
        while versions[-1] < last:
            versions.append(seen(own.latest(min_version=versions[-1] + 1, timeout_s=100)))
        return versions

    return work


def test_readers_see_whole_versions_each_newer_than_the_one_before(make_policy: PolicyMaker, fork: Fork) -> None:
    policy = make_policy()
    readers = [fork(reads(policy, 400)) for _ in range(3)]
    publisher = fork(publishes(policy, 400))
    publisher.receive()
    assert publisher.result() == 400
    for reader in readers:
        versions = reader.result()
        assert versions == sorted(set(versions))
        assert versions[-1] == 400


@pytest.mark.crash
def test_after_the_death_of_a_publisher_the_next_one_goes_on_where_it_was(make_policy: PolicyMaker, fork: Fork) -> None:
    policy = make_policy()
    for _ in range(8):
        publisher = fork(publishes(policy))
        before = policy.version
        eventually(lambda: policy.version > before + 10)  # noqa: B023  # it is called here
        publisher.kill()
        with policy.latest(timeout_s=100) as snapshot:
            assert number_of(snapshot.data) == snapshot.version
    last = policy.version
    eventually(lambda: _publishes(policy, last + 1))  # the dead one's stream comes back with its session
    assert seen(policy.latest(min_version=last + 1)) == last + 1


def _publishes(policy: Params, number: int) -> bool:
    try:
        return policy.publish(tree(number), timeout_s=100) == number
    except sr.ShmReplayError:
        return False


@pytest.mark.crash
def test_what_a_dead_reader_held_is_free_again(make_policy: PolicyMaker, fork: Fork) -> None:
    policy = make_policy()

    def hoards(pipe: Connection) -> Any:
        own = attached(policy)
        held: list[Any] = []
        while True:
            pipe.recv()
            held.append(own.latest(min_version=len(held) + 1))
            pipe.send(None)

    reader = fork(hoards)

    def keep() -> None:
        reader.send(None)
        reader.receive()

    assert "no room for more steps" in publish_until_full(policy, keep)
    last = policy.version
    reader.kill()
    for number in range(last + 1, last + 40):
        assert policy.publish(tree(number), timeout_s=100) == number
    assert seen(policy.latest()) == last + 39


@pytest.mark.crash
def test_a_reader_that_dies_waiting_is_nobodys_loss(make_policy: PolicyMaker, fork: Fork) -> None:
    policy = make_policy()
    reader = fork(reads(policy, 1))
    eventually(lambda: policy._table._native.is_awaited)
    reader.kill()
    other = fork(reads(policy, 2))
    for number in (1, 2):
        policy.publish(tree(number))
    assert other.result()[-1] == 2


def test_a_forked_child_reads_and_publishes_by_the_same_object(make_policy: PolicyMaker, fork: Fork) -> None:
    policy = make_policy()
    policy.publish(tree(1))

    def work(pipe: Connection) -> int:
        assert seen(policy.latest()) == 1
        policy.publish(tree(2))
        return seen(policy.latest(min_version=3, timeout_s=100))

    child = fork(work)
    assert seen(policy.latest(min_version=2, timeout_s=100)) == 2
    policy.publish(tree(3))
    assert child.result() == 3


def test_versions_outlive_the_daemons_restart_from_a_checkpoint(tmp_path: Any) -> None:
    from shmreplay.clients import params

    with sr.Server([params.table("policy", tree(0))], checkpoint_dir=tmp_path) as server, server.client() as client:
        policy = Params(client.table("policy"))
        for number in range(1, 6):
            policy.publish(tree(number))
        path = client.checkpoint()
    with sr.Server(restore=path) as server, server.client() as client:
        policy = Params(client.table("policy"))
        assert policy.version == 5
        assert seen(policy.latest(min_version=5, timeout_s=0)) == 5
        assert policy.publish(tree(6)) == 6
        assert seen(policy.latest(min_version=6, timeout_s=0)) == 6

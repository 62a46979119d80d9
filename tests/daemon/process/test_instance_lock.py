"""The lock of an instance: one holder, taken over from the dead, not inherited."""

import os
import secrets
import subprocess

import pytest

import shmreplay as sr
from shmreplay.daemon.process.instance_lock import InstanceLock
from shmreplay.segments.segment import SegmentStore, lock_name


@pytest.fixture
def instance() -> str:
    return f"unit-{secrets.token_hex(6)}"


def test_a_lock_is_taken_once_and_again_after_its_release(instance: str) -> None:
    store = SegmentStore()
    path = store.path(lock_name(instance))
    lock = InstanceLock(store, instance, "/run/x.sock")
    with open(path, encoding="utf-8") as file:
        assert file.read() == f"{os.getpid()}\n/run/x.sock\n"
    with pytest.raises(sr.ShmReplayError, match=f"already has a daemon, pid {os.getpid()}"):
        InstanceLock(store, instance)
    lock.release()
    assert not os.path.exists(path)
    InstanceLock(store, instance).release()


def test_a_lock_file_that_nobody_holds_is_taken_over(instance: str) -> None:
    store = SegmentStore()
    with open(store.path(lock_name(instance)), "w", encoding="utf-8") as file:
        file.write("a daemon that was killed, with a long story to tell\n" * 9)
    lock = InstanceLock(store, instance)
    with open(lock.path, encoding="utf-8") as file:
        assert file.read() == f"{os.getpid()}\n\n"
    lock.release()


def test_releasing_a_lock_whose_file_was_removed_leaves_that_of_the_successor(instance: str) -> None:
    store = SegmentStore()
    first = InstanceLock(store, instance)
    os.unlink(first.path)
    second = InstanceLock(store, instance)
    first.release()
    assert os.path.exists(second.path)
    second.release()


def test_a_lock_is_not_inherited_by_programs_that_are_started(instance: str) -> None:
    lock = InstanceLock(SegmentStore(), instance)
    listed = subprocess.run(["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, check=True, close_fds=False)
    lock.release()
    assert instance not in listed.stdout

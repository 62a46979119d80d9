"""Whether a segment is used, as the kernel says."""

import mmap
import os
import secrets
from collections.abc import Iterator

import pytest

from shmreplay.errors import ShmReplayError
from shmreplay.segments.segment import SegmentStore
from shmreplay.segments.segment_users import is_in_use
from tests.support.children import Fork
from tests.support.waiting import eventually


@pytest.fixture
def store() -> SegmentStore:
    return SegmentStore()


@pytest.fixture
def name(store: SegmentStore) -> Iterator[str]:
    name = f"unit-{secrets.token_hex(6)}"
    fd = store.create(name)
    os.ftruncate(fd, 4096)
    os.close(fd)
    yield name
    store.unlink(name)


def test_a_segment_that_is_open_for_writing_or_mapped_is_in_use(store: SegmentStore, name: str) -> None:
    assert not is_in_use(store, name)
    fd = store.open(name)
    assert is_in_use(store, name)
    mapped = mmap.mmap(fd, 4096)
    os.close(fd)
    assert is_in_use(store, name)
    mapped.close()
    assert not is_in_use(store, name)


def test_who_only_reads_a_segment_does_not_use_it(store: SegmentStore, name: str) -> None:
    with open(store.path(name), "rb"):
        assert not is_in_use(store, name)


def test_a_segment_that_is_not_there_is_not_in_use(store: SegmentStore) -> None:
    assert not is_in_use(store, "unit-nothing")


def test_of_what_is_no_file_nobody_can_say(store: SegmentStore, name: str) -> None:
    os.mkdir(store.path(f"{name}.folder"))
    try:
        with pytest.raises(ShmReplayError, match=f"nobody can say whether {store.path(name)}.folder is in use"):
            is_in_use(store, f"{name}.folder")
    finally:
        os.rmdir(store.path(f"{name}.folder"))


def test_looking_ends_nobody_who_opens_the_segment_meanwhile(store: SegmentStore, name: str, fork: Fork) -> None:
    """A lease that is broken sends a signal, which by default ends its owner."""

    def open_again_and_again(pipe: object) -> None:
        while True:
            os.close(store.open(name))

    fork(open_again_and_again)
    answers = set()

    def both_were_seen() -> bool:
        answers.add(is_in_use(store, name))
        return len(answers) == 2

    eventually(both_were_seen)

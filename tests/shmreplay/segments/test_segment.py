"""Segments: names, making and removing them, reserving, access, and what is refused at the receiving end."""

import errno
import os
import pathlib
import secrets
import signal
import threading
from collections.abc import Iterator

import pytest

from shmreplay.errors import SegmentFailed, ShmReplayError
from shmreplay.segments import segment as segments
from shmreplay.segments.segment import SegmentStore, check_received, reserve, segment_names, set_access


@pytest.fixture
def instance() -> Iterator[str]:
    name = f"unit-{secrets.token_hex(6)}"
    yield name
    store = SegmentStore()
    for arena in store.arenas(name):
        store.remove_arena(name, arena)


@pytest.fixture
def folder(instance: str) -> Iterator[pathlib.Path]:
    path = pathlib.Path("/dev/shm") / f"folder.{instance}"
    path.mkdir()
    yield path
    for file in path.iterdir():
        file.unlink()
    path.rmdir()


@pytest.fixture(params=["posix", "directory"])
def store(request: pytest.FixtureRequest, folder: pathlib.Path) -> SegmentStore:
    return SegmentStore() if request.param == "posix" else SegmentStore(str(folder))


def test_names_hold_both_parts_between_dots() -> None:
    assert segment_names("a", "b-c_1") == segments.SegmentNames("shmreplay.a.b-c_1.index", "shmreplay.a.b-c_1.data")
    assert segments.lock_name("a") == "shmreplay.a.lock"


def test_an_embedded_instance_names_its_parent() -> None:
    assert segments.is_embedded(segments.embedded_instance(42, "c0ffee"))
    assert not segments.is_embedded("default")
    assert not segments.is_embedded("embedded-x-c0ffee")


def test_instances_are_found_by_their_locks(store: SegmentStore, instance: str) -> None:
    os.close(store.create(segments.lock_name(instance)))
    os.close(store.create(segment_names("unit-other", "lock").index))
    assert instance in store.locked_instances()
    assert "unit-other" not in store.locked_instances()
    store.unlink(segments.lock_name(instance))
    store.remove_arena("unit-other", "lock")


@pytest.mark.parametrize("name", ["", "a.b", "a/b", "..", "ä", "a b", "x" * 65, "a\n"])
def test_a_name_that_could_be_mistaken_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="instance name"):
        segment_names(name, "arena")
    with pytest.raises(ValueError, match="arena name"):
        segment_names("instance", name)


def test_a_created_segment_is_empty_private_and_close_on_exec(store: SegmentStore, instance: str) -> None:
    name = segment_names(instance, "a").index
    old = os.umask(0)
    try:
        fd = store.create(name)
    finally:
        os.umask(old)
    status = os.fstat(fd)
    assert (status.st_size, status.st_mode & 0o777) == (0, 0o600)
    assert not os.get_inheritable(fd)
    assert os.path.samestat(status, os.stat(store.path(name)))
    os.close(fd)


def test_a_name_that_is_taken_is_refused_and_left_alone(store: SegmentStore, instance: str) -> None:
    name = segment_names(instance, "a").index
    fd = store.create(name)
    os.write(fd, b"precious")
    with pytest.raises(ShmReplayError, match=r"exists already.*--discard"):
        store.create(name)
    assert os.pread(fd, 8, 0) == b"precious"
    os.close(fd)


def test_arenas_are_found_by_instance_and_kind(store: SegmentStore, instance: str) -> None:
    names = segment_names(instance, "one")
    for name in (names.index, names.data, segment_names(instance, "two").data, f"shmreplay.{instance}.lock"):
        os.close(store.create(name))
    os.close(store.create(segment_names(instance + "-other", "one").index))
    assert store.arenas(instance) == {"one": {"index", "data"}, "two": {"data"}}
    store.remove_arena(instance, "one")
    store.remove_arena(instance, "two")
    assert store.arenas(instance) == {}
    assert store.unlink(f"shmreplay.{instance}.lock")
    assert not store.unlink(f"shmreplay.{instance}.lock")
    store.remove_arena(instance + "-other", "one")


@pytest.mark.parametrize("doing", segments.Doing)
def test_the_marks_of_an_instance_are_files_of_it(store: SegmentStore, instance: str, doing: segments.Doing) -> None:
    mark = segments.mark_name(instance, "one", doing)
    os.close(store.create(mark))
    assert store.marks(instance) == store.files(instance) == [mark]
    assert instance in store.instances()
    assert store.unlink(mark)


def test_a_segment_is_opened_but_a_link_is_not_followed(store: SegmentStore, instance: str) -> None:
    name = segment_names(instance, "a").index
    os.close(store.create(name))
    os.close(store.open(name))
    other = segment_names(instance, "b").index
    os.symlink(store.path(name), store.path(other))
    with pytest.raises(OSError, match="symbolic"):
        store.open(other)


def test_a_directory_that_is_not_there_is_refused() -> None:
    with pytest.raises(ShmReplayError, match="/nowhere does not exist; create it on a tmpfs"):
        SegmentStore("/nowhere")


def test_sizes_are_rounded_up_to_pages(store: SegmentStore) -> None:
    page = os.statvfs(store.directory).f_bsize
    assert [store.round_up(n) for n in (0, 1, page, page + 1)] == [0, page, page, 2 * page]


def test_reserving_takes_every_page_and_tells_how_far_it_is(
    store: SegmentStore, instance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "SLICE_BYTES", 2**20)
    fd = store.create(segment_names(instance, "a").data)
    told: list[int] = []
    reserve(fd, 5 * 2**19, told.append)
    assert told == [2**20, 2 * 2**20, 5 * 2**19]
    status = os.fstat(fd)
    assert status.st_size == 5 * 2**19
    assert status.st_blocks * 512 >= 5 * 2**19
    os.close(fd)


def test_a_progress_call_that_raises_ends_the_reservation(instance: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SLICE_BYTES", 2**20)
    fd = SegmentStore().create(segment_names(instance, "a").data)

    def cancel(done: int) -> None:
        raise ShmReplayError("enough")

    with pytest.raises(ShmReplayError, match="enough"):
        reserve(fd, 4 * 2**20, cancel)
    assert os.fstat(fd).st_size == 2**20
    os.close(fd)


def test_a_slice_that_a_signal_interrupted_is_begun_again(instance: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []
    real = os.posix_fallocate

    def interrupted(fd: int, offset: int, length: int) -> None:
        calls.append((offset, length))
        if len(calls) < 3:
            raise InterruptedError(errno.EINTR, "interrupted")
        real(fd, offset, length)

    monkeypatch.setattr(os, "posix_fallocate", interrupted)
    fd = SegmentStore().create(segment_names(instance, "a").data)
    reserve(fd, 4096)
    assert calls == [(0, 4096)] * 3
    os.close(fd)


def test_reserving_goes_on_under_a_storm_of_signals(instance: str) -> None:
    stop = threading.Event()
    me = threading.get_ident()
    old = signal.signal(signal.SIGUSR1, lambda number, frame: None)

    def storm() -> None:
        while not stop.is_set():
            signal.pthread_kill(me, signal.SIGUSR1)

    thread = threading.Thread(target=storm)
    fd = SegmentStore().create(segment_names(instance, "a").data)
    thread.start()
    try:
        reserve(fd, 16 * 2**20)
    finally:
        stop.set()
        thread.join()
        signal.signal(signal.SIGUSR1, old)
    assert os.fstat(fd).st_blocks * 512 >= 16 * 2**20
    os.close(fd)


def test_a_full_file_system_says_how_far_it_came(instance: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SLICE_BYTES", 2**20)
    real = os.posix_fallocate

    def full(fd: int, offset: int, length: int) -> None:
        if offset:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(fd, offset, length)

    monkeypatch.setattr(os, "posix_fallocate", full)
    fd = SegmentStore().create(segment_names(instance, "a").data)
    with pytest.raises(ShmReplayError, match=r"full after 1.0 MiB, 1.0 MiB more were needed.*--shm-size"):
        reserve(fd, 4 * 2**20)
    os.close(fd)


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_access_is_what_was_asked_for_whatever_the_umask(store: SegmentStore, instance: str, umask: int) -> None:
    names = segment_names(instance, "a")
    old = os.umask(umask)
    try:
        private, shared = store.create(names.index), store.create(names.data)
        set_access(private, None)
        set_access(shared, os.getgid())
    finally:
        os.umask(old)
    assert os.fstat(private).st_mode & 0o7777 == 0o600
    assert os.fstat(shared).st_mode & 0o7777 == 0o660
    assert os.fstat(shared).st_gid == os.getgid()
    os.close(private)
    os.close(shared)


@pytest.fixture
def received(instance: str) -> Iterator[int]:
    fd = SegmentStore().create(segment_names(instance, "a").data)
    os.ftruncate(fd, 4096)
    yield fd
    os.close(fd)


def test_a_received_segment_that_is_as_promised_passes(received: int) -> None:
    check_received(received, "the index", 4096, {os.geteuid(), 12345})


@pytest.mark.parametrize(
    ("num_bytes", "owners", "mode", "reason"),
    [
        (8192, None, 0o600, "the index is refused: it has 4096 bytes, expected 8192"),
        (4096, {4242}, 0o600, "belongs to uid 0, expected 4242"),
        (4096, None, 0o666, "mode is 0666: anybody can open it"),
        (4096, None, 0o604, "mode is 0604: anybody can open it"),
    ],
)
def test_a_received_segment_that_is_not_as_promised_is_refused(
    received: int, num_bytes: int, owners: set[int] | None, mode: int, reason: str
) -> None:
    os.fchmod(received, mode)
    reason = reason.replace("uid 0", f"uid {os.geteuid()}")
    with pytest.raises(SegmentFailed, match=reason):
        check_received(received, "the index", num_bytes, owners or {os.geteuid()})


def test_a_received_descriptor_that_is_no_writable_file_is_refused(received: int) -> None:
    reader, writer = os.pipe()
    with pytest.raises(SegmentFailed, match="not a regular file"):
        check_received(reader, "the index", 0, {os.geteuid()})
    for fd in (reader, writer):
        os.close(fd)
    read_only = os.open(f"/proc/self/fd/{received}", os.O_RDONLY)
    with pytest.raises(SegmentFailed, match="not opened for reading and writing"):
        check_received(read_only, "the index", 4096, {os.geteuid()})
    os.close(read_only)

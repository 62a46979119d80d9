"""Full disks, cut and flipped files, at a living daemon: it says what is wrong, goes on, and takes the one before."""

import os
import pathlib
import resource
import shutil

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.checkpoints.checkpoint_file import CheckpointReader, SectionKind
from tests.daemon.checkpoints.saved import facts
from tests.support.daemons import DaemonProcess, StartDaemon, table


def rows(first: int, n: int) -> dict[str, object]:
    return {"x": np.full((n, 3), 7, np.float32), "n": np.arange(first, first + n)}


@pytest.fixture
def saver(make_daemon: StartDaemon, directory: str) -> DaemonProcess:
    """A daemon with two tables, that saves."""
    daemon = make_daemon().start("--checkpoint-dir", directory)
    with daemon.connect() as client:
        client.create_tables([table("a", sampler=sr.selectors.Prioritized(1.0)), table("b", arena="other")])
        client.table("a").insert_batch(rows(0, 60))
    return daemon


def borders(path: str) -> list[int]:
    """Where each section begins."""
    reader = CheckpointReader(path)
    found = [16]
    while True:
        section = reader.next()
        found.append(section.offset)
        if section.kind is SectionKind.END:
            reader.close()
            return found


def test_a_full_disk_is_an_error_and_leaves_the_checkpoint_before(saver: DaemonProcess, directory: str) -> None:
    """Field case P9, by the limit on a file's size: every byte at which a disk may be full."""
    with saver.connect() as client:
        path = client.checkpoint()
        size = os.path.getsize(path)
        for limit in (0, 10, 16, 300, size // 2, size - 1):
            resource.prlimit(saver.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            with pytest.raises(OSError, match=f"no checkpoint can be written to {directory}: File too large"):
                client.checkpoint()
            assert [name for name in os.listdir(directory) if not name.endswith(".lock")] == [os.path.basename(path)]
            assert f"may have {limit} bytes: raise ulimit -f" in client.stats()["daemon"]["checkpoint"]["error"]
            client.table("a").insert_batch(rows(60, 5))  # nothing is withheld from anybody
            assert client.table("a")._arena.check() == []
        resource.prlimit(saver.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert client.checkpoint() > path


def test_a_directory_that_is_gone_or_closed_is_an_error(saver: DaemonProcess, directory: str) -> None:
    shutil.rmtree(directory)
    pathlib.Path(directory).write_bytes(b"a file")
    with saver.connect() as client, pytest.raises(OSError, match="saved"):
        client.checkpoint()
    os.unlink(directory)
    with saver.connect() as client:
        assert client.checkpoint().startswith(directory)


def test_a_file_cut_at_every_border_is_refused_and_the_one_before_it_taken(
    saver: DaemonProcess, directory: str, make_daemon: StartDaemon
) -> None:
    with saver.connect() as client:
        before = facts(client.table("a"))
        first = client.checkpoint()
        client.table("a").insert_batch(rows(60, 30))
        second = client.checkpoint()
    whole = pathlib.Path(second).read_bytes()
    restoring = make_daemon().start()
    with restoring.connect() as client:
        for border in [0, 7, *borders(second), len(whole) - 1]:
            pathlib.Path(second).write_bytes(whole[:border])
            with pytest.raises(sr.DamagedCheckpoint) as error:
                client.restore(second)
            assert second in str(error.value)
            assert f"; the next older one is {first}" in str(error.value)
            assert border < 16 or f"at offset {border}" in str(error.value) or border == len(whole) - 1
            assert client.tables() == {}
            assert restoring.segments() == {}
        found = client.restore(directory)
        assert found["path"] == first
        assert f"{second} is damaged" in found["notes"][0]
        assert "the next older one was restored" in found["notes"][0]
        assert facts(client.table("a")) == before
    assert f"{second} is damaged" in restoring.log()


def test_flipped_bits_are_found_wherever_they_are(
    saver: DaemonProcess, directory: str, make_daemon: StartDaemon, rng: np.random.Generator
) -> None:
    with saver.connect() as client:
        path = client.checkpoint()
    whole = bytearray(pathlib.Path(path).read_bytes())
    restoring = make_daemon().start()
    with restoring.connect() as client:
        for at, bit in zip(
            rng.integers(len(whole), size=300).tolist(), rng.integers(8, size=300).tolist(), strict=True
        ):
            whole[at] ^= 1 << bit
            pathlib.Path(path).write_bytes(whole)
            with pytest.raises(sr.DamagedCheckpoint, match=r"is damaged|has format"):
                client.restore(path)
            whole[at] ^= 1 << bit
        assert restoring.segments() == {}
        pathlib.Path(path).write_bytes(whole)
        client.restore(path)
        assert len(client.table("a")) == 60


def test_a_checkpoint_does_not_fit_into_too_little_memory(saver: DaemonProcess, make_daemon: StartDaemon) -> None:
    with saver.connect() as client:
        path = client.checkpoint()
    small = make_daemon().start()
    resource.prlimit(small.pid, resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
    with small.connect() as client, pytest.raises(sr.ShmReplayError, match="cannot be reserved"):
        client.restore(path)
    assert small.segments() == {}


def test_a_stranger_may_not_make_the_daemon_read_a_file(saver: DaemonProcess) -> None:
    with saver.connect() as client:
        path = client.checkpoint()
        with pytest.raises((sr.ShmReplayError, ValueError, OSError)):
            client.restore("/dev/zero")
        with pytest.raises(ValueError, match="exists already"):
            client.restore(path)

"""A checkpoint while an arena has failed: the others are saved, and the failed one is named."""

import os
import pathlib

import pytest

import shmreplay as sr
from shmreplay.checkpoints.checkpoint_directory import find_checkpoints
from tests.daemon.checkpoints.saved import facts, rows
from tests.support.daemons import DaemonProcess, StartDaemon, table


@pytest.fixture
def broken(make_daemon: StartDaemon, directory: str) -> DaemonProcess:
    """A daemon with the table `whole`, `t` of two shards, and `broken`."""
    daemon = make_daemon().start("--checkpoint-dir", directory, "--checkpoint-at-stop")
    with daemon.connect() as client:
        client.create_tables([table("whole"), table("broken"), table("t", shards=2)])
        client.table("whole").insert_batch(rows(0, 10))
    return daemon


def truncate(daemon: DaemonProcess, arena: str) -> None:
    [path] = [daemon.store.path(name) for name in daemon.segments() if f".{arena}.index" in name]
    os.truncate(path, os.stat(path).st_size - 4096)


def test_the_others_are_saved_and_the_failed_one_is_named(
    broken: DaemonProcess, make_daemon: StartDaemon, directory: str, tmp_path: pathlib.Path
) -> None:
    with broken.connect() as client:
        saved_before = facts(client.table("whole"))
        truncate(broken, "broken")
        with pytest.raises(sr.CheckpointFailed) as error:
            client.checkpoint()
        [path] = find_checkpoints(directory)
        assert str(error.value).startswith(
            f"checkpoint {path} was saved without arena 'broken', which has table 'broken': arena 'broken' has failed: "
            "its index segment has "
        )
        told = client.stats()["daemon"]["checkpoint"]
        assert (told["path"], told["error"]) == (path, str(error.value))
        with make_daemon().start().connect() as other:
            assert other.restore(path)["tables"] == ["whole", "t"]
            assert facts(other.table("whole")) == saved_before
            other.table("t").insert_batch(rows(0, 10))


def test_a_table_is_left_out_whose_shard_has_failed(
    broken: DaemonProcess, make_daemon: StartDaemon, directory: str
) -> None:
    with broken.connect() as client:
        shard = next(arena for arena in client.stats()["arenas"] if arena.startswith("t"))
        truncate(broken, shard)
        with pytest.raises(sr.CheckpointFailed, match=f"was saved without arena '{shard}', which has table 't': "):
            client.checkpoint()
    with make_daemon().start().connect() as other:
        assert other.restore(directory)["tables"] == ["whole", "broken"]


def test_nothing_is_saved_if_all_have_failed(broken: DaemonProcess, directory: str) -> None:
    with broken.connect() as client:
        for arena in client.stats()["arenas"]:
            truncate(broken, arena)
        with pytest.raises(sr.CheckpointFailed, match=r"no checkpoint was saved: arena .*; arena 't~0', which has"):
            client.checkpoint()
        assert find_checkpoints(directory) == []
        assert [name for name in os.listdir(directory) if name.endswith(".partial")] == []


def test_at_a_stop_the_tables_stay_as_when_nothing_could_be_saved(broken: DaemonProcess, directory: str) -> None:
    truncate(broken, "broken")
    assert broken.stop() == 1
    assert "no whole checkpoint was saved at the stop, so the tables stay in shared memory" in broken.log()
    assert len(find_checkpoints(directory)) == 1
    broken.start("--checkpoint-dir", directory)
    with broken.connect() as client:
        assert len(client.table("whole")) == 10

"""Which checkpoints are removed after a new one: never one that is still needed."""

import os
import pathlib
from collections.abc import Sequence

import pytest

import shmreplay as sr
from shmreplay.checkpoints.checkpoint_directory import CheckpointDirectory
from shmreplay.checkpoints.checkpoint_file import verify
from shmreplay.daemon.checkpoints.retention import FoundCheckpoint, Retention, which_may_go
from tests.support.daemons import DaemonProcess, StartDaemon, table
from tests.support.waiting import eventually

A, B, AB, EMPTY = frozenset("a"), frozenset("b"), frozenset("ab"), frozenset[str]()
DAMAGED = None


@pytest.mark.parametrize(
    ("tables", "keep", "strange", "dropped", "expected"),
    [
        # Newest first: what each has, and the numbers of those that may go.
        ([], 2, (), "", []),
        ([A], 1, (), "", []),
        ([A, A, A, A], 2, (), "", [2, 3]),
        ([A, A, A, A], 9, (), "", []),
        # A daemon without tables judges nothing; old ones without tables are nothing to keep, nor in the way.
        ([EMPTY, A, A, A], 1, (), "", []),
        ([A, EMPTY, EMPTY, A, A], 2, (), "", [1, 2, 4]),
        # The damaged ones are not counted, and stay.
        ([A, DAMAGED, A, A], 2, (), "", [3]),
        ([A, A, A, DAMAGED], 2, (), "", [2]),
        ([DAMAGED, A], 1, (), "", []),
        ([DAMAGED, DAMAGED], 1, (), "", []),
        # The newest with a table that the newer ones lack stays.
        ([A, A, AB, AB], 2, (), "", [3]),
        ([A, A, B, AB], 2, (), "", [3]),
        ([A, A, A, DAMAGED, B], 1, (), "", [1, 2]),
        ([AB, A, B], 1, (), "", [1, 2]),
        # But nobody misses a table that was dropped.
        ([A, A, AB, AB], 2, (), "b", [2, 3]),
        ([A, A, B], 2, (), "b", [2]),
        # What this daemon's tables do not come from stays.
        ([A, A, A, A], 1, (2, 3), "", [1]),
        ([A, A, A, A], 1, (1,), "", [2, 3]),
    ],
)
def test_only_what_nobody_can_miss_may_go(
    tables: Sequence[frozenset[str] | None],
    keep: int,
    strange: Sequence[int],
    dropped: str,
    expected: list[int],
) -> None:
    found = [FoundCheckpoint(str(number), each) for number, each in enumerate(tables)]
    may_go = which_may_go(found, keep, {str(number) for number in strange}, set(dropped))
    assert [int(path) for path in may_go] == expected


def saves(daemon: DaemonProcess, number: int) -> list[str]:
    with daemon.connect() as client:
        return [client.checkpoint() for _ in range(number)]


def flags(directory: pathlib.Path, *more: str) -> tuple[str, ...]:
    return ("--checkpoint-dir", str(directory), "--checkpoint-keep", "2", *more)


def existing(paths: Sequence[str]) -> list[bool]:
    return [os.path.exists(path) for path in paths]


@pytest.mark.long
def test_a_daemon_that_forgot_to_restore_removes_no_checkpoint_of_the_one_before(
    make_daemon: StartDaemon, tmp_path: pathlib.Path
) -> None:
    daemon = make_daemon().start(*flags(tmp_path))
    with daemon.connect() as client:
        client.create_tables([table("a")])
    good = saves(daemon, 2)
    assert daemon.stop() == 0
    daemon.start(*flags(tmp_path))
    said = f"WARNING {tmp_path} holds 2 checkpoints of '{daemon.instance}', and --restore was not given"
    assert said in daemon.log()
    with daemon.connect() as client:
        client.create_tables([table("a")])
    assert existing(saves(daemon, 4)) == [False, False, True, True]
    assert existing(good) == [True, True]
    assert f"checkpoint {good[0]} is kept in addition to the newest 2: it is older than the daemon" in daemon.log()
    assert daemon.stop() == 0
    # Whoever restores goes on from them, so they are its own to remove.
    daemon.start(*flags(tmp_path, "--restore"))
    assert existing(saves(daemon, 2)) == [True, True]
    assert existing(good) == [False, False]
    assert daemon.stop() == 0


def test_an_interval_without_tables_saves_nothing(make_daemon: StartDaemon, tmp_path: pathlib.Path) -> None:
    daemon = make_daemon().start(*flags(tmp_path, "--checkpoint-interval", "0.02"))
    with daemon.connect() as client:
        client.create_tables([table("a")])
        eventually(lambda: len(CheckpointDirectory(str(tmp_path), daemon.instance).checkpoints()) == 1)
        client.drop_table("a")
        saved_before = CheckpointDirectory(str(tmp_path), daemon.instance).checkpoints()
        client.create_tables([table("b")])
        eventually(lambda: client.stats()["daemon"]["checkpoint"]["path"] not in saved_before)
        client.drop_table("b")
        with pytest.raises(sr.CheckpointFailed, match="no checkpoint was saved: there are no tables"):
            client.checkpoint()
    assert daemon.stop() == 0
    assert daemon.log().count(" asked for failed: no checkpoint was saved: there are no tables") == 1
    for path in CheckpointDirectory(str(tmp_path), daemon.instance).checkpoints():
        assert len(verify(path)["states"]) == 1


@pytest.mark.long
def test_the_last_checkpoint_with_a_table_that_was_lost_stays(make_daemon: StartDaemon, tmp_path: pathlib.Path) -> None:
    daemon = make_daemon().start(*flags(tmp_path))
    with daemon.connect() as client:
        client.create_tables([table("a"), table("big")])
    good = saves(daemon, 2)
    daemon.kill()
    os.unlink(daemon.store.path(next(name for name in daemon.segments() if name.endswith(".big.data"))))
    daemon.start(*flags(tmp_path, "--restore"))
    reason = (
        "tables 'a' were taken over from memory; only the checkpoint has 'big'; it is kept until a newer one has that"
    )
    assert f"WARNING checkpoint {good[1]} is not used: {reason}" in daemon.log()
    assert existing(saves(daemon, 4)) == [False, False, True, True]
    assert existing(good) == [False, True]
    assert f"checkpoint {good[1]} is kept in addition to the newest 2: no newer one has all its tables" in daemon.log()
    daemon.kill()
    daemon.clean_up()


def test_a_table_that_a_client_dropped_keeps_no_checkpoint(make_daemon: StartDaemon, tmp_path: pathlib.Path) -> None:
    daemon = make_daemon().start(*flags(tmp_path))
    with daemon.connect() as client:
        client.create_tables([table("a"), table("b")])
        with_both = saves(daemon, 1)
        client.drop_table("b")
        saves(daemon, 2)
    assert existing(with_both) == [False]
    assert daemon.stop() == 0


@pytest.mark.long
def test_a_damaged_checkpoint_is_not_counted_and_named_once(make_daemon: StartDaemon, tmp_path: pathlib.Path) -> None:
    daemon = make_daemon().start(*flags(tmp_path))
    with daemon.connect() as client:
        client.create_tables([table("a")])
    paths = saves(daemon, 2)
    assert daemon.stop() == 0
    with open(paths[1], "r+b") as file:
        file.seek(os.path.getsize(paths[1]) // 2)
        file.write(b"\xff\x00\xff")
    daemon.start(*flags(tmp_path, "--restore"))
    assert existing([*paths, *saves(daemon, 1)]) == [True, True, True]
    assert existing([*paths, *saves(daemon, 2)]) == [False, True, True, True]
    assert daemon.log().count(f"WARNING {paths[1]} is kept, and not counted: checkpoint {paths[1]} is damaged: ") == 1
    assert daemon.stop() == 0


def test_old_checkpoints_are_not_read_while_the_daemon_stops(make_daemon: StartDaemon, tmp_path: pathlib.Path) -> None:
    daemon = make_daemon().start(*flags(tmp_path))
    with daemon.connect() as client:
        client.create_tables([table("a")])
    paths = saves(daemon, 2)
    assert daemon.stop() == 0
    keeping = Retention(CheckpointDirectory(str(tmp_path), daemon.instance), 1)
    keeping.comes_from_all()
    with pytest.raises(sr.CheckpointFailed, match="the daemon is stopping"):
        keeping.remove_old((), lambda: True)
    assert existing(paths) == [True, True]
    assert keeping.remove_old((), lambda: False) == [paths[0]]


def test_what_was_restored_of_another_label_makes_none_of_ours_removable(tmp_path: pathlib.Path) -> None:
    own, others = (tmp_path / f"shmreplay.{label}.20260101T000000000000Z.checkpoint" for label in ("b", "z"))
    own.write_bytes(b"")
    others.write_bytes(b"")
    keeping = Retention(CheckpointDirectory(str(tmp_path), "b"), 1)
    keeping.comes_from(str(others), ["a"])
    assert keeping.strangers == [str(own)]
    keeping.comes_from(str(own), ["a"])
    assert keeping.strangers == []

"""The mark of arenas that count together: what a daemon does that finds one, and which ones it does not obey."""

import logging
import os
import pathlib
import secrets
from collections.abc import Iterator

import pytest

from shmreplay.daemon.arenas.adoption import Adoption
from shmreplay.errors import ShmReplayError
from shmreplay.segments.abandoned import remove_abandoned
from shmreplay.segments.arena_mark import ArenaMark, UnfitMark, obey_mark
from shmreplay.segments.segment import Doing, SegmentStore, mark_name, segment_names

INSTANCE = f"unit-{secrets.token_hex(6)}"


@pytest.fixture
def store() -> Iterator[SegmentStore]:
    path = pathlib.Path("/dev/shm") / f"folder.{INSTANCE}"
    path.mkdir()
    yield SegmentStore(str(path))
    for file in path.iterdir():
        file.unlink()
    path.rmdir()


def make(store: SegmentStore, *arenas: str) -> None:
    """Segments of those names, of no content: only their names matter here."""
    for arena in arenas:
        for name in (segment_names(INSTANCE, arena).index, segment_names(INSTANCE, arena).data):
            os.close(store.create(name))


def the_mark(store: SegmentStore) -> str:
    (name,) = store.marks(INSTANCE)
    return name


def test_a_mark_that_is_found_takes_the_arenas_it_names_along_and_no_others(store: SegmentStore) -> None:
    make(store, "a", "b", "other")
    ArenaMark(store, INSTANCE, ["a", "b", "gone"], Doing.RESTORING).set()
    assert the_mark(store) == mark_name(INSTANCE, "a", Doing.RESTORING)
    assert store.marks("unit-other") == []
    assert obey_mark(store, INSTANCE, the_mark(store)) == ["a", "b", "gone"]
    assert set(store.arenas(INSTANCE)) == {"other"}
    assert store.marks(INSTANCE) == []


def test_arenas_whose_mark_was_removed_stay(store: SegmentStore) -> None:
    make(store, "a", "b")
    mark = ArenaMark(store, INSTANCE, ["a", "b"], Doing.RESTORING)
    mark.set()
    mark.remove()
    Adoption(store, INSTANCE, None, discard=False)._obey_all()
    assert set(store.arenas(INSTANCE)) == {"a", "b"}


def test_two_marks_of_one_arena_can_not_be(store: SegmentStore) -> None:
    ArenaMark(store, INSTANCE, ["a", "b"], Doing.RESTORING).set()
    with pytest.raises(ShmReplayError, match="exists already"):
        ArenaMark(store, INSTANCE, ["a", "c"], Doing.RESTORING).set()


def test_a_mark_that_was_not_written_to_its_end_takes_nothing_along(store: SegmentStore) -> None:
    make(store, "a", "ab")
    ArenaMark(store, INSTANCE, ["abc", "b"], Doing.RESTORING).set()
    path = store.path(the_mark(store))
    whole = pathlib.Path(path).read_bytes()
    for length in range(len(whole)):
        pathlib.Path(path).write_bytes(whole[:length])
        assert obey_mark(store, INSTANCE, os.path.basename(path)) == []
        assert set(store.arenas(INSTANCE)) == {"a", "ab"}
        ArenaMark(store, INSTANCE, ["abc", "b"], Doing.RESTORING).set()


@pytest.mark.parametrize("what", ["mode", "link", "arena", "name"])
def test_a_mark_that_this_user_did_not_write_is_refused_and_left_until_discard(
    store: SegmentStore, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    make(store, "a", "b")
    mark = ArenaMark(store, INSTANCE, ["a", "b"], Doing.RESTORING)
    mark.set()
    path = pathlib.Path(store.path(the_mark(store)))
    if what == "mode":
        path.chmod(0o660)
    if what == "arena":
        path.write_text("a\n../b\nend\n")
    if what == "link":
        path.rename(f"{path}.moved")
        path.symlink_to(f"{path}.moved")
    if what == "name":  # whatever is in such a name, it is no reason not to start
        path.rename(store.path(f"shmreplay.{INSTANCE}.\N{SNOWMAN}.restoring"))
        os.chmod(store.path(the_mark(store)), 0o640)
    with pytest.raises(UnfitMark):
        obey_mark(store, INSTANCE, the_mark(store))
    with caplog.at_level(logging.ERROR):
        Adoption(store, INSTANCE, None, discard=False)._obey_all()
    assert "start with --discard" in caplog.text
    assert set(store.arenas(INSTANCE)) == {"a", "b"}
    Adoption(store, INSTANCE, None, discard=True)._obey_all()
    assert store.marks(INSTANCE) == []
    assert set(store.arenas(INSTANCE)) == {"a", "b"}


def test_what_an_abandoned_daemon_left_goes_with_its_marks(store: SegmentStore) -> None:
    make(store, "a")
    ArenaMark(store, INSTANCE, ["a", "b"], Doing.RESTORING).set()
    remove_abandoned(store, INSTANCE)
    assert store.marks(INSTANCE) == []
    assert store.arenas(INSTANCE) == {}

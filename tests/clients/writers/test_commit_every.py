"""Writers that commit every few steps: what is held back, when it goes in, and what a kill loses."""

import itertools
import logging
import multiprocessing
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.writers.writer import Writer
from tests.support.children import Child, Work
from tests.support.tables import TableMaker, check, live, spans, step
from tests.support.waiting import eventually

STEPS = {
    "n": sr.ArraySpec((), "int64"),
    "note": sr.ArraySpec((), "float64", optional=True),
    "terminated": sr.ArraySpec((), "bool"),
}


def row(n: int, terminated: bool = False) -> dict[str, Any]:
    return {"n": n, "terminated": terminated} | ({"note": n / 2} if n % 3 else {})


# --- what comes of it is the same ------------------------------------------------------------------------------------


def work_on(writer: Writer, rng: np.random.Generator) -> list[int]:
    """Calls at random, the same for the same numbers; returns the keys that they returned."""
    keys: list[int] = []
    length = 0  # of the episode
    for n in range(400):
        kind = rng.random()
        ends = bool(rng.random() < 0.05)
        if rng.random() < 0.2:
            writer.append({"n": n}, partial=True)
            if rng.random() < 0.5:
                keys.append(writer.create_item(trajectory={"n": writer.history["n"][-1:]}))
            keys += writer.append({"terminated": ends}).tolist()
        else:
            keys += writer.append(row(n, ends)).tolist()
        length += 1
        if kind < 0.3:
            span = writer.history["n"][-min(length, 4) :]
            keys.append(writer.create_item(1.0 + kind, trajectory={"n": span}))
        if kind > 0.97:
            keys += writer.flush().tolist()
        if ends or rng.random() < 0.03:
            final = None if rng.random() < 0.5 or ends else {"n": -n}
            keys += writer.end_episode(final, clear_history=bool(rng.random() < 0.8)).tolist()
            length = 0
    keys += writer.flush().tolist()
    return keys


@pytest.mark.parametrize("commit_every", [2, 3, 7, 100])
@pytest.mark.parametrize("chunk_steps", [1, 5, 64])
def test_the_items_are_those_of_a_writer_that_commits_each_step(
    make_table: TableMaker, seed: int, commit_every: int, chunk_steps: int
) -> None:
    pattern = sr.Pattern(lambda past: {"n": past["n"][-3:]}, conditions=[sr.when.step_index % 2 == 1])
    tables = [make_table(5000, signature=STEPS, chunk_steps=chunk_steps, capacity_steps=5000) for _ in range(2)]
    for table, every in zip(tables, (1, commit_every), strict=True):
        with table.writer(history=6, patterns=[pattern], commit_every=every) as writer:
            keys = work_on(writer, np.random.default_rng(seed))
        assert sorted(key for key in keys if key != 0) == sorted(table.keys().tolist())  # each once
    one, other = (live(table) for table in tables)
    assert one.data["n"].tolist() == other.data["n"].tolist()
    assert one.mask["n"].tolist() == other.mask["n"].tolist()
    assert one.steps.tolist() == other.steps.tolist()
    assert one.priorities.tolist() == other.priorities.tolist()
    episodes = [np.unique(batch.episodes, return_inverse=True)[1].tolist() for batch in (one, other)]
    assert episodes[0] == episodes[1]
    assert check(tables[1]) == []


# --- when it goes in -------------------------------------------------------------------------------------------------


def test_items_of_a_window_go_in_with_every_third_step(make_table: TableMaker) -> None:
    table = make_table(item=sr.Sequence(2, period=1))
    with table.writer(commit_every=3) as writer:
        found = [(writer.append(step(n)).size, len(table)) for n in range(8)]
        assert found == [(0, 0), (0, 0), (0, 0), (3, 3), (0, 3), (0, 3), (3, 6), (0, 6)]
        assert writer.end_episode().size == 2
    assert spans(live(table)) == [*([n, n + 1] for n in range(7)), [7]]


def test_items_by_hand_go_in_with_that_of_every_third_step(make_table: TableMaker) -> None:
    table = make_table(item_steps=2)
    with table.writer(history=2, commit_every=3) as writer:
        returned: list[int] = []
        for n in range(7):
            returned += writer.append(step(n)).tolist()
            key = writer.create_item(length=min(n + 1, 2))
            assert (key > 0) == (n % 3 == 2)
            assert len(table) == (n + 1) // 3 * 3
        assert len(returned) == 4
        assert writer.flush().tolist() == table.keys()[-1:].tolist()
        assert writer.flush().tolist() == []
    assert [span[-1] for span in spans(live(table))] == list(range(7))


def test_an_item_that_nobody_follows_waits_one_step_more(make_table: TableMaker) -> None:
    table = make_table(item_steps=2)
    with table.writer(history=2, commit_every=3) as writer:
        writer.append(step(0))
        writer.create_item(length=1)
        assert [writer.append(step(n)).size for n in (1, 2, 3)] == [0, 0, 1]


def test_no_more_than_a_hold_takes_is_held_back(make_table: TableMaker) -> None:
    table = make_table(item_steps=2)
    with table.writer(history=2, commit_every=100) as writer:
        writer.append(step(0))
        keys = [writer.create_item(length=1) for _ in range(70)]
        assert np.flatnonzero(keys).tolist() == [31, 63]
        assert len(table) == 64
        table.reset()
    assert len(table) == 6  # the reset did not know of them


def test_a_value_that_an_item_brings_is_not_held_back(make_table: TableMaker) -> None:
    signature = {"n": sr.ArraySpec((), "int64"), "goal": sr.ArraySpec((), "int64", per="item", optional=True)}
    table = make_table(signature=signature, item_steps=2)
    with table.writer(history=2, commit_every=4) as writer:
        writer.append({"n": 0})
        assert writer.create_item(trajectory={"n": writer.history["n"][-1]}, values={"goal": 5}) > 0
    assert live(table).data["goal"].tolist() == [5]


# --- waiting ---------------------------------------------------------------------------------------------------------


def test_a_call_that_puts_in_waits_and_leaves_the_others_held_back(make_table: TableMaker) -> None:
    queue = make_table.queue(4, item=sr.Sequence(1))
    with queue.writer(commit_every=3) as writer:
        for n in range(5):
            writer.append(step(n))
        with pytest.raises(sr.RateLimitTimeout, match=f"table {queue.name!r}: append not admitted within 0 s: "):
            writer.append(step(5), timeout_s=0)
        assert len(queue) == 4  # the first of the second three had room
        with pytest.raises(sr.RateLimitTimeout, match="flush not admitted within 0 s"):
            writer.flush(timeout_s=0)
        assert spans(queue.sample(2)) == [[0], [1]]
        assert writer.append(step(5)).size == 3
        assert spans(queue.sample(4)) == [[n] for n in range(2, 6)]


def test_a_writer_puts_in_what_it_holds_back_before_it_waits_for_room(
    make_table: TableMaker, fork: Callable[[Work], Child]
) -> None:
    queue = make_table.queue(40, item=sr.Sequence(1), chunk_steps=1, capacity_steps=14, max_streams=1)
    child = fork(lambda pipe: [spans(queue.sample(1))[0][0] for _ in range(200)])
    with queue.writer(commit_every=8) as writer:
        for n in range(200):
            writer.append(step(n), timeout_s=100)
    assert child.result() == list(range(200))


def test_the_end_says_what_it_could_not_put_in(
    make_table: TableMaker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("shmreplay.clients.writers.writer.CLOSE_TIMEOUT_S", 0.01)
    queue = make_table.queue(1, item=sr.Sequence(1))
    writer = queue.writer(commit_every=4)
    for n in range(3):
        writer.append(step(n))
    with pytest.raises(sr.RateLimitTimeout, match="flush not admitted within"):
        writer.close()
    queue.sample(1)
    with pytest.raises(sr.RateLimitTimeout):
        writer.close()
    queue.sample(1)
    writer.close()
    assert spans(queue.sample(1)) == [[2]]

    def fail() -> None:
        with queue.writer(commit_every=4) as failing:
            for n in range(3):
                failing.append(step(n))
            raise KeyError("work")

    with caplog.at_level(logging.WARNING), pytest.raises(KeyError):
        fail()
    assert "the writer ends, and 2 items that it held back are lost: table" in caplog.text


# --- what is lost, and what is refused -------------------------------------------------------------------------------


def test_a_kill_takes_the_items_of_fewer_steps_than_share_a_hold(
    make_table: TableMaker, fork: Callable[[Work], Child]
) -> None:
    table = make_table(1000, item=sr.Sequence(2, period=1))

    appended = multiprocessing.get_context("fork").Value("q", -1)

    def work(pipe: Any) -> None:
        writer = table.writer(commit_every=5)
        for n in itertools.count():
            writer.append(step(n % 900))
            appended.value = n

    child = fork(work)
    eventually(lambda: appended.value > 62)
    child.kill()
    last = appended.value
    newest = int(live(table).steps[-1]) + 1  # the second step of the newest item
    assert 0 <= last - newest < 5 or newest == last + 1  # it may have been killed between the two
    assert len(table) == min(newest, 1000)
    assert check(table) == []


def test_how_often_to_commit_is_a_number_of_steps_that_the_arena_has_room_for(make_table: TableMaker) -> None:
    table = make_table(item_steps=2, chunk_steps=4, capacity_steps=40, max_streams=1)
    with pytest.raises(ValueError, match="commit_every is 0; expected 1 to"):
        table.writer(commit_every=0)
    with pytest.raises(TypeError, match=r"commit_every is 2\.5; expected an integer"):
        table.writer(commit_every=2.5)  # type: ignore[arg-type]
    expected = "commit_every is 10000, and history 2, but the arena has room for .* steps of a stream; commit"
    with pytest.raises(ValueError, match=expected):
        table.writer(commit_every=10_000)


def test_an_item_that_can_never_go_in_is_refused_when_it_is_made(make_table: TableMaker) -> None:
    table = make_table(item_steps=2)
    with table.writer(history=2, commit_every=4) as writer:
        writer.append(step(0))
        writer.create_item(length=1)  # in no table yet, but the first
        with pytest.raises(sr.SignatureMismatch):
            writer.create_item(trajectory={"n": writer.history["n"][-1]})
        assert writer.flush().size == 1

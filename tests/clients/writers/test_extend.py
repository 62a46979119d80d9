"""extend: it makes the items that a writer makes of the same rows; ends of episodes, waits, and refusals."""

import re
import signal
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from tests.clients.writers.twins import SIGNATURE, compare, finals, row, rows
from tests.support.tables import TableMaker, live
from tests.support.waiting import eventually

ITEMS = {
    "transition": sr.Transition(),
    "n-step": sr.NStep(3, stack={"observation": 2}),
    "sequence": sr.Sequence(4, period=2),
    "burn-in": sr.Sequence(3, burn_in=2),
    "across": sr.Window({"action": (0, 4)}, at_end="skip", across_episodes=True),
    "episode": sr.Episode(),
    "reward": sr.NStep(2, priority="reward"),
    "td": sr.Sequence(3, priority=sr.td_priority("reward", 0.5)),
}


def write(
    table: TableHandle, columns: dict[str, Any], ends: Any, finals: dict[str, Any] | None = None, clears: bool = True
) -> None:
    """The same with a writer, which is given the final steps."""
    num_ends = 0
    with table.writer() as writer:
        for i in range(len(ends)):
            writer.append(row(columns, i))
            if ends[i]:
                writer.end_episode(None if finals is None else row(finals, num_ends), clear_history=clears)
                num_ends += 1


def two_tables(make_table: TableMaker, item: str, chunk_steps: int, max_size: int) -> tuple[TableHandle, TableHandle]:
    options: dict[str, Any] = {
        "signature": SIGNATURE,
        "item": ITEMS[item],
        "chunk_steps": chunk_steps,
        "capacity_steps": 300,
        "item_steps": 64 if item == "episode" else 1,
    }
    return make_table(max_size, **options), make_table(max_size, **options)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    item=st.sampled_from(sorted(ITEMS)),
    chunk_steps=st.sampled_from([1, 3, 64]),
    ends=st.lists(st.sampled_from([False, False, False, True]), max_size=60),
    max_size=st.sampled_from([7, 200]),
)
def test_it_makes_what_a_writer_of_the_same_rows_makes(
    make_table: TableMaker, item: str, chunk_steps: int, ends: list[bool], max_size: int
) -> None:
    ours, theirs = two_tables(make_table, item, chunk_steps, max_size)
    columns = rows(np.arange(len(ends)), terminated=ends)
    keys = ours.extend(columns)
    write(theirs, columns, ends, clears=item != "across")
    compare((ours, theirs))
    assert ours.keys().tolist() == keys[-len(ours) :].tolist() if len(ours) else len(keys) == 0
    assert ours.info().inserts == theirs.info().inserts == len(keys)
    assert ours._arena.check() == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    item=st.sampled_from(sorted(ITEMS.keys() - {"across"})),
    chunk_steps=st.sampled_from([1, 3, 64]),
    ends=st.lists(st.sampled_from(["", "", "", "terminated", "truncated"]), max_size=60),
    more=st.booleans(),
    max_size=st.sampled_from([7, 200]),
)
def test_final_steps_are_the_rows_that_a_writer_is_given(
    make_table: TableMaker, item: str, chunk_steps: int, ends: list[str], more: bool, max_size: int
) -> None:
    ours, theirs = two_tables(make_table, item, chunk_steps, max_size)
    over = np.array([end != "" for end in ends], np.bool_)
    columns = rows(
        np.arange(len(ends)),
        terminated=[end == "terminated" for end in ends],
        truncated=[end == "truncated" for end in ends],
    )
    last = rows(1000 + np.arange(over.sum()))
    final = {name: last[name] for name in (("observation", "reward") if more else ("observation",))}
    keys = ours.extend(columns, final_steps=final)
    write(theirs, columns, over, final)
    compare((ours, theirs))
    assert ours.info().inserts == theirs.info().inserts == len(keys)
    assert ours._arena.check() == []


def test_final_steps_show_in_the_last_items_of_episodes_and_nowhere_else(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE, item=sr.Transition(), chunk_steps=4)
    ends = np.array([False, True, True, False, False, True, False])
    keys = table.extend(rows(np.arange(7)), episode_ends=ends, final_steps=finals([50, 60, 70]))
    batch = table.get(keys)
    assert batch.data["action"].tolist() == [0, 1, 2, 3, 4, 5]
    assert batch.data["next_observation"][:, 0].tolist() == [1, 50, 60, 4, 5, 70]
    assert batch.mask["next_observation"].all()


def test_final_steps_have_values_of_every_kind(make_table: TableMaker) -> None:
    signature = {
        "observation": sr.ArraySpec((64,), "uint8", compression="lz4"),
        "words": sr.ArraySpec((None,), "int64"),
        "note": sr.ArraySpec((2,), "float32", optional=True),
        "count": sr.ArraySpec((), "int64", mutable=True),
        "truncated": sr.ArraySpec((), "bool"),
    }
    item = sr.Window(dict.fromkeys(("observation", "words", "note", "count"), (0, 2)), at_end="skip")
    table = make_table(100, signature=signature, item=item, chunk_steps=3)
    n = np.arange(10)
    columns: dict[str, Any] = {
        "observation": np.repeat(n[:, None], 64, 1).astype(np.uint8),
        "words": [np.arange(k) for k in n],
        "note": [None] * 10,
        "count": n,
        "truncated": n % 5 == 4,
    }
    final: dict[str, Any] = {
        "observation": np.full((2, 64), [[100], [200]], np.uint8),
        "words": [np.arange(7), np.arange(3)],
        "count": np.array([70, 80]),
    }
    with table.writer() as writer:
        for i in range(10):
            writer.append(row(columns, i))
            if columns["truncated"][i]:
                writer.end_episode(row(final, i // 5))
    theirs = table.get(table.keys())
    table.reset()
    ours = table.get(table.extend(columns, final_steps=final))
    assert len(ours.keys) == len(theirs.keys) == 10
    for name in ("observation", "count", "note"):
        np.testing.assert_array_equal(ours.data[name], theirs.data[name])
        np.testing.assert_array_equal(ours.mask[name], theirs.mask[name])
    assert str(ours.data["words"]) == str(theirs.data["words"])
    assert table._arena.check() == []


def test_final_steps_that_are_wrong_or_looked_at_by_nobody_are_refused(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE, item=sr.NStep(2))
    columns = rows(np.arange(4), truncated=[False, True, False, True])
    with pytest.raises(ValueError, match=r"row 1 ends .* final_steps=\{"):
        table.extend(columns)
    with pytest.raises(sr.SignatureMismatch, match=r"one row for each of the 2 ends"):
        table.extend(columns, final_steps=finals([1, 2, 3]))
    with pytest.raises(sr.SignatureMismatch, match=r"final_steps have no column"):
        table.extend(columns, final_steps={})
    with pytest.raises(ValueError, match=r"its next 'observation', which final_steps lack"):
        table.extend(columns, final_steps={"reward": np.zeros(2)})
    assert len(table) == 0
    rowwise = make_table(100, signature=SIGNATURE)
    with pytest.raises(ValueError, match=r"the table declares no item"):
        rowwise.extend(columns, final_steps=finals([1, 2]))
    across = make_table(100, signature=SIGNATURE, item=ITEMS["across"])
    with pytest.raises(ValueError, match=r"goes across episodes"):
        across.extend(columns, episode_ends=columns["truncated"], final_steps=finals([1, 2]))


def test_a_limiter_that_ends_it_at_a_final_step_says_how_many_rows_are_whole(make_table: TableMaker) -> None:
    queue = make_table.queue(5, signature=SIGNATURE, item=sr.Transition())
    columns = rows(np.arange(12), truncated=np.arange(12) % 3 == 2)
    with pytest.raises(sr.RateLimitTimeout) as caught:
        queue.extend(columns, final_steps=finals(np.arange(4)), timeout_s=0)
    error: Any = caught.value
    assert len(error.keys) == len(queue) == 5
    assert error.num_rows == 5  # the item of row 5, which ends an episode, is not in


def test_the_chunk_pool_goes_round_and_every_row_stays_right(make_table: TableMaker, rng: np.random.Generator) -> None:
    ours = make_table(300, signature=SIGNATURE, item=sr.NStep(3), chunk_steps=16, capacity_steps=500)
    theirs = make_table(300, signature=SIGNATURE, item=sr.NStep(3), chunk_steps=16, capacity_steps=500)
    stats = ours._arena.stats()
    n, first = stats["num_chunks"] * stats["chunk_steps"], 0
    while first < 4 * n:
        size = int(rng.integers(1, n))
        ends = rng.random(size) < 0.03
        columns = rows(first + np.arange(size), terminated=ends)
        ours.extend(columns, episode_ends=ends)
        write(theirs, columns, ends)
        first += size
    compare((ours, theirs))


def test_without_an_item_every_row_is_one_with_its_episode_and_step(make_table: TableMaker) -> None:
    table = make_table(1000, signature=SIGNATURE, chunk_steps=8)
    ends = np.zeros(100, np.bool_)
    ends[[9, 10, 59]] = True
    keys = table.extend(rows(np.arange(100)), episode_ends=ends)
    batch = table.get(keys)
    assert batch.data["action"].tolist() == list(range(100))
    assert batch.data["observation"].shape == (100, 2)
    assert batch.steps.tolist() == [*range(10), 0, *range(49), *range(40)]
    assert [len(set(part)) for part in np.split(batch.episodes, [10, 11, 60])] == [1, 1, 1, 1]
    assert len(set(batch.episodes)) == 4 == table.info().num_episodes
    table.insert(row(rows([5]), 0))  # its items are those of insert
    table.insert_batch(rows([6, 7]))
    assert len(table) == 103


def test_nothing_and_one_row_can_be_put_in(make_table: TableMaker) -> None:
    table = make_table(10, signature=SIGNATURE)
    assert table.extend(rows(np.empty(0, np.int64))).tolist() == []
    assert len(table.extend(rows([3]), episode_ends=[True])) == 1
    assert live(table).data["action"].tolist() == [3]


def test_any_byte_but_0_ends_an_episode(make_table: TableMaker) -> None:
    """Flags seen through a view of other memory may have bytes other than 1."""
    ends = np.array([0, 2, 0, 255], np.uint8).view(np.bool_)
    for given_ends in (ends, None):
        table = make_table(100, signature=SIGNATURE)
        table.extend(rows(np.arange(4), terminated=ends), episode_ends=given_ends)
        assert live(table).steps.tolist() == [0, 1, 0, 1]


def test_numpy_s_bools_are_bools(make_table: TableMaker) -> None:
    no: Any = np.bool_(False)
    table = make_table(100, signature=SIGNATURE)
    table.extend(rows(np.arange(4)), count=no)
    assert table.info().uncounted == 4
    table.sample(2, count=no, replacement=no)
    assert table.info().samples == 0


def test_the_rate_limiter_is_kept_to_and_a_timeout_says_how_far_it_came(make_table: TableMaker) -> None:
    table = make_table.queue(50, signature=SIGNATURE)
    with pytest.raises(sr.RateLimitTimeout, match=r"extend not admitted within 0 s: .*50 of 80 rows are in") as raised:
        table.extend(rows(np.arange(80)), timeout_s=0)
    assert raised.value.num_rows == 50
    assert table.get(raised.value.keys).data["action"].tolist() == list(range(50))
    table.sample(50)
    table.extend(rows(np.arange(50, 80)), timeout_s=0)
    assert live(table).data["action"].tolist() == list(range(50, 80))


def test_windows_that_time_out_count_whole_rows(make_table: TableMaker) -> None:
    table = make_table.queue(4, signature=SIGNATURE, item=sr.Sequence(3))
    with pytest.raises(sr.RateLimitTimeout) as raised:
        table.extend(rows(np.arange(20)), timeout_s=0)
    assert live(table).data["action"].tolist() == [[k, k + 1, k + 2] for k in range(4)]
    assert raised.value.num_rows == 6  # the row that completes the fifth one is not in


def test_it_waits_for_a_consumer(make_table: TableMaker) -> None:
    table = make_table.queue(10, signature=SIGNATURE, chunk_steps=2)
    taken: list[int] = []

    def consume() -> None:
        while len(taken) < 200:
            taken.extend(table.sample(1, timeout_s=100).data["action"].tolist())

    thread = threading.Thread(target=consume)
    thread.start()
    table.extend(rows(np.arange(200)), timeout_s=100)
    thread.join()
    assert taken == list(range(200))


@pytest.mark.usefixtures("alarm")
def test_an_interrupt_ends_it_with_what_is_in(make_table: TableMaker) -> None:
    table = make_table.queue(10, signature=SIGNATURE)

    def interrupt() -> None:
        eventually(lambda: table.info().blocked_inserts == 1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt) as raised:
        table.extend(rows(np.arange(20)))
    thread.join()
    assert raised.value.num_rows == 10  # type: ignore[attr-defined]
    assert table.keys().tolist() == raised.value.keys.tolist()  # type: ignore[attr-defined]


# --- past the limiter ------------------------------------------------------------------------------------------------


def limited(make_table: TableMaker) -> TableHandle:
    limiter = sr.rate_limiters.RateLimiter(2.0, 3, 0.0, 10.0)
    return make_table(100, signature=SIGNATURE, rate_limiter=limiter)


def test_uncounted_items_neither_wait_nor_move_the_difference(make_table: TableMaker) -> None:
    table = limited(make_table)
    table.insert_batch(rows(np.arange(5)))
    assert not table.can_insert()
    before = table.info()
    table.pause()
    keys = table.extend(rows(np.arange(60)), count=False, timeout_s=0)
    table.resume()
    after = table.info()
    assert (len(keys), after.size, after.uncounted) == (60, 65, 60)
    assert after.size == after.inserts - after.deletes
    assert after.difference == before.difference == 10.0
    assert not table.can_insert()
    assert table.can_sample(10)
    assert not table.can_sample(11)
    table.sample(4)
    assert table.can_insert(2)
    assert not table.can_insert(3)
    table.extend(rows(np.arange(90)), count=False)  # those that they evict are not missed either
    assert (table.info().size, table.info().difference) == (100, 6.0)
    assert table._arena.check() == []


def test_a_changed_limiter_goes_on_not_counting_them(make_table: TableMaker) -> None:
    table = limited(make_table)
    table.extend(rows(np.arange(50)), count=False)
    table.set_rate_limiter(sr.rate_limiters.RateLimiter(4.0, 1, -5.0, 8.0), rebase=False)
    assert table.info().difference == 0.0
    assert table.can_insert(2)
    table.set_rate_limiter(sr.rate_limiters.RateLimiter(4.0, 1, 0.0, 8.0), rebase=True)
    assert table.info().difference == 4.0
    table.reset()
    assert (table.info().uncounted, table.info().difference) == (0, 0.0)


def test_a_queue_s_items_are_always_counted(make_table: TableMaker) -> None:
    table = make_table.queue(10, signature=SIGNATURE)
    with pytest.raises(ValueError, match=r"count is False, but its rate limiter lets only counted items out \(Queue"):
        table.extend(rows([1]), count=False)


# --- bad input -------------------------------------------------------------------------------------------------------


def refused(table: TableHandle, error: type[Exception], text: str, columns: Any, **options: Any) -> None:
    with pytest.raises(error, match=re.escape(text)):
        table.extend(columns, **options)
    assert len(table) == 0
    assert table._arena.stats()["used_chunks"] == 0


def test_what_is_wrong_is_said_and_nothing_goes_in(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE, item=sr.NStep(2, priority="reward"))
    good = rows(np.arange(6))
    short = {**good, "reward": np.zeros(5)}
    refused(table, sr.SignatureMismatch, "column 'observation' has 6 rows and column 'reward' has 5", short)
    refused(
        table,
        sr.SignatureMismatch,
        "column 'reward': missing from the batch",
        {k: v for k, v in good.items() if k != "reward"},
    )
    refused(table, sr.SignatureMismatch, "'action': expected int64", {**good, "action": np.zeros(6, np.float32)})
    refused(
        table,
        ValueError,
        "episode_ends has dtype bool and shape (5,); expected bool (6,)",
        good,
        episode_ends=np.ones(5, np.bool_),
    )
    refused(table, TypeError, "episode_ends has dtype int64", good, episode_ends=np.ones(6, np.int64))
    over = rows(np.arange(6), terminated=np.arange(6) == 2)
    text = "row 2 was terminated or truncated, but episode_ends[2] is False"
    refused(table, ValueError, text, over, episode_ends=np.zeros(6, np.bool_))
    cut = rows(np.arange(6), truncated=np.arange(6) == 4)
    text = "ends an episode and was not terminated, and the table's items look at its next observation"
    refused(table, ValueError, f"row 4 {text}", cut)
    refused(table, ValueError, f"row 3 {text}", good, episode_ends=np.arange(6) == 3)
    bad = {**good, "reward": np.array([0.0, 1, 2, np.nan, 4, 5])}
    refused(table, ValueError, "row 3 of column 'reward', which priorities are read from, is nan", bad)
    spans = make_table(100, signature=SIGNATURE, item_steps=3)
    refused(spans, ValueError, "extend makes single-step items, but the table was declared with item_steps=3", good)
    whole = make_table(10, signature=SIGNATURE, item=sr.Episode(), item_steps=20)
    text = "an episode has 50 rows, but the table was declared with item_steps=20"
    refused(whole, ValueError, text, rows(np.arange(60)), episode_ends=np.arange(60) == 49)


def test_both_ends_at_once_are_a_termination(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE, item=sr.NStep(2))
    last = np.arange(4) == 3
    table.extend(rows(np.arange(4), terminated=last, truncated=last))
    assert live(table).mask["next_observation"].tolist() == [True, True, False, False]

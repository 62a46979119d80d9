"""Rules at work: keys, priorities, timeouts, kept histories, and what is refused."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from shmreplay.clients.writers.writer import Writer
from tests.clients.writers.rewarded import SIGNATURE, step
from tests.support.tables import TableMaker, check, live


def last(select: str = "observation", **options: Any) -> sr.Pattern:
    """A pattern of the newest step's column."""
    return sr.Pattern({"x": (select, -1)}, **options)


def shown(table: TableHandle, output: str = "x") -> list[Any]:
    values: list[Any] = live(table).data[output].tolist() if len(table) else []
    return values


def test_append_and_end_episode_return_the_keys_of_what_they_made(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE)
    with table.writer(patterns=[sr.NStep(3)]) as writer:
        returned = [writer.append(step(k)) for k in range(5)]
        returned.append(writer.end_episode({"observation": 5}))
    assert [len(keys) for keys in returned] == [0, 0, 0, 1, 1, 3]
    assert all(keys.dtype == np.int64 for keys in returned)
    assert np.concatenate(returned).tolist() == table.keys().tolist()


def test_keys_come_in_the_order_of_the_patterns(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE)
    with table.writer(patterns=[last(priority=1.0), last(priority=2.0), last(priority=3.0)]) as writer:
        keys = writer.append(step(0))
        assert table.get(keys).priorities.tolist() == [1.0, 2.0, 3.0]


def test_a_priority_comes_from_the_call_a_number_a_column_or_td_errors(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE)
    rules = [sr.Sequence(3, priority=rule) for rule in (None, 2.5, "td", sr.td_priority("td", 0.75))]
    with table.writer(patterns=rules) as writer:
        for k, td in enumerate((-4.0, 1.0)):
            writer.append(step(k, td=abs(td) if k else 7.0), priority=9.0)
        keys = writer.append(step(2, td=1.0), priority=5.0)
    # A column's value is that of the reference step, a window's first.
    expected = [5.0, 2.5, 7.0, 0.75 * 7 + 0.25 * 3]
    assert table.get(keys).priorities.tolist() == pytest.approx(expected)


def test_a_td_priority_counts_no_step_of_the_burn_in(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE)
    window = sr.Sequence(4, period=2, burn_in=2, priority=sr.td_priority("td", 0.75))
    with table.writer(patterns=[window]) as writer:
        for k in range(9):
            writer.append(step(k, td=-float(10 - k)))
        writer.end_episode()
    batch = live(table)
    td, mask = batch.data["td"], batch.mask["td"]
    np.testing.assert_allclose(batch.priorities, sr.sequence_priority(td[:, 2:], mask[:, 2:], 0.75))
    assert (batch.priorities != sr.sequence_priority(td, mask, 0.75)).sum() == len(batch) - 1


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
def test_a_bad_priority_leaves_row_and_items_out(make_table: TableMaker, bad: float) -> None:
    table = make_table(100, signature=SIGNATURE)
    with table.writer(patterns=[last(priority="td"), last()]) as writer:
        writer.append(step(0))
        with pytest.raises(ValueError, match=f"priority is {bad!r}; priorities must be finite, >= 0 and at most"):
            writer.append(step(1), priority=bad)
        with pytest.raises(
            ValueError, match="append: the item's table does not take the priority that the call gave, or that a rule"
        ):
            writer.append(step(1, td=bad))
        with pytest.raises(ValueError, match=f"priority is {bad!r}; priorities must be finite, >= 0 and at most"):
            writer.end_episode(priority=bad)
        assert (len(table), writer.episode_steps) == (2, 1)
        assert len(writer.append(step(1))) == 2
        assert writer.history["observation"][:].numpy().tolist() == [1]


def test_a_priority_of_another_type_is_refused(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE)
    with table.writer(patterns=[last()]) as writer:
        with pytest.raises(TypeError, match="priority is 'high'; expected a number, or None"):
            writer.append(step(0), priority="high")  # type: ignore[arg-type]
        writer.append(step(0))
    assert len(table) == 1


def test_a_timeout_leaves_row_and_items_out_and_the_repeated_call_does_it_once(make_table: TableMaker) -> None:
    table = make_table.queue(2, signature=SIGNATURE)
    with table.writer(patterns=[last()]) as writer:
        for k in range(2):
            writer.append(step(k))
        for _ in range(3):
            with pytest.raises(sr.RateLimitTimeout, match=r"append not admitted within 0 s: the queue is full"):
                writer.append(step(2), timeout_s=0)
            assert (writer.episode_steps, len(table)) == (2, 2)
        assert table.sample(1).data["x"].tolist() == [0]
        writer.append(step(2), timeout_s=0)
        assert shown(table) == [1, 2]
    assert check(table) == []


def test_a_timeout_after_a_partial_row_leaves_it_as_it_was(make_table: TableMaker) -> None:
    table = make_table.queue(1, signature=SIGNATURE)
    with table.writer(patterns=[last()]) as writer:
        writer.append(step(0))
        rest = step(1)
        writer.append({"observation": rest.pop("observation")}, partial=True)
        with pytest.raises(sr.RateLimitTimeout):
            writer.append(rest, timeout_s=0)
        table.sample(1)
        writer.append(rest, timeout_s=0)
        assert shown(table) == [1]


def test_a_timed_out_end_goes_on_when_it_is_repeated(make_table: TableMaker) -> None:
    table = make_table.queue(3, signature=SIGNATURE)
    with table.writer(patterns=[sr.NStep(5)]) as writer:
        for k in range(5):
            writer.append(step(k))
        with pytest.raises(sr.RateLimitTimeout, match="end_episode not admitted within 0 s: the queue is full"):
            writer.end_episode({"observation": 5}, timeout_s=0)
        assert table.sample(3).data["observation"].tolist() == [0, 1, 2]
        for call in (
            lambda: writer.append(step(6)),
            lambda: writer.append({"observation": 6}, partial=True),
            lambda: writer.create_item(length=1),
            lambda: writer.create_item(trajectory={"x": writer.history["observation"][-1]}),
        ):
            with pytest.raises(
                sr.ShmReplayError, match="an append or end_episode failed after some of its items went in; re"
            ):
                call()
        keys = writer.end_episode({"observation": 5}, timeout_s=0)
        assert len(keys) == 5
        assert keys[3:].tolist() == table.keys().tolist()
        batch = table.sample(2)
        assert batch.data["observation"].tolist() == [3, 4]
        assert batch.data["next_observation"].tolist() == [5, 5]
        assert len(writer.history["observation"]) == 0
    assert check(table) == []


def test_an_end_that_timed_out_before_its_first_item_is_as_if_not_called(make_table: TableMaker) -> None:
    table = make_table.queue(1, signature=SIGNATURE)
    with table.writer(patterns=[sr.Transition()]) as writer:
        for k in range(2):
            writer.append(step(k))
        with pytest.raises(sr.RateLimitTimeout):
            writer.end_episode({"observation": 2}, timeout_s=0)
        assert table.sample(1).data["next_observation"].tolist() == [1]
        writer.append(step(2), timeout_s=0)  # the episode goes on after all
        assert table.sample(1).data["next_observation"].tolist() == [2]
        assert len(writer.end_episode({"observation": 3}, timeout_s=0)) == 1
        assert table.sample(1).data["next_observation"].tolist() == [3]


def test_more_items_than_a_queue_has_room_for_go_in_bit_by_bit(make_table: TableMaker) -> None:
    table = make_table.queue(2, signature=SIGNATURE)
    with table.writer(patterns=[last(), last(), last()]) as writer:
        with pytest.raises(sr.RateLimitTimeout):
            writer.append(step(7), timeout_s=0)
        assert shown(table) == [7, 7]
        with pytest.raises(sr.ShmReplayError, match="repeat that call first"):
            writer.end_episode()
        table.sample(2)
        assert len(writer.append(step(7), timeout_s=0)) == 3
        assert shown(table) == [7]
        assert writer.history["observation"][:].numpy().tolist() == [7]
    assert check(table) == []


def test_kept_history_is_seen_by_patterns_and_not_by_windows(make_table: TableMaker) -> None:
    pairs, windows = (make_table(100, signature=SIGNATURE) for _ in range(2))
    pattern, window = sr.Pattern({"x": ("observation", slice(-2, None))}), sr.Window({"observation": (-1, 1)})
    for table, rule in ((pairs, pattern), (windows, window)):
        with table.writer(patterns=[rule]) as writer:
            for episode in range(3):
                for k in range(2):
                    writer.append(step(10 * episode + k))
                writer.end_episode(clear_history=episode == 1)
    assert shown(pairs) == [[0, 1], [1, 10], [10, 11], [20, 21]]
    assert shown(windows, "observation") == [[0, 1], [10, 11], [20, 21]]


@pytest.mark.parametrize("chunk_steps", [1, 3, 64])
def test_a_window_across_episodes_takes_the_stream_for_one(make_table: TableMaker, chunk_steps: int) -> None:
    table = make_table(100, signature=SIGNATURE, chunk_steps=chunk_steps)
    window = sr.Window({"observation": (-1, 2)}, at_end="shorten", across_episodes=True)
    with table.writer(patterns=[window]) as writer:
        for k in range(3):
            writer.append(step(k, terminated=k == 2))
        writer.append(step(3, truncated=True))  # no end_episode is needed
        writer.append({"observation": 4}, partial=True)
        writer.append({name: value for name, value in step(4).items() if name != "observation"})
        writer.end_episode(clear_history=False)
        writer.append(step(5))
        writer.end_episode()
        writer.append(step(10))
        writer.append(step(11))
        writer.end_episode({"observation": 12})
    batch = live(table)
    rows = [row[real].tolist() for row, real in zip(batch.data["observation"], batch.mask["observation"], strict=True)]
    assert rows == [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5], [4, 5], [10, 11, 12]]
    assert check(table) == []


def test_a_window_across_episodes_wants_whole_steps_to_go_on(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE)
    with table.writer(patterns=[sr.Sequence(2, across_episodes=True)]) as writer:
        writer.append(step(0))
        for _ in range(2):
            with pytest.raises(sr.SignatureMismatch, match="end_episode: an item selects column 'reward' of step 1"):
                writer.end_episode({"observation": 1}, clear_history=False)
        writer.end_episode(step(1), clear_history=False)
        writer.append(step(2))
    assert shown(table, "observation") == [[0, 1], [1, 2]]


def test_an_episode_that_outgrows_the_history_is_refused_while_it_can_be_ended(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE, item_steps=4)
    with table.writer(patterns=[sr.Episode()]) as writer:
        for k in range(4):
            writer.append(step(k))
        with pytest.raises(ValueError, match="append: the episode is longer than the writer's history of 4 steps"):
            writer.append(step(4))
        writer.end_episode()
        writer.append(step(10))
        writer.end_episode()
    assert live(table).lengths["observation"].tolist() == [4, 1]


def test_a_missing_cell_stops_a_window_and_names_it(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE)
    with table.writer(history=4, patterns=[sr.Pattern({"x": ("reward", slice(-2, None))})]) as writer:
        writer.append(step(0))
        writer.end_episode({"observation": 1}, clear_history=False)
        writer.append(step(2))  # the step before lacks its reward: no item, as of Reverb
        writer.append(step(3))
    assert [row for row in shown(table) if row[1]] == [[2.0, 3.0]]


def test_a_pattern_sees_the_final_step(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE)
    select = {"o": ("observation", -2), "r": ("reward", -2), "next": ("observation", -1)}
    with table.writer(patterns=[sr.Pattern(select)]) as writer:
        for k in range(3):
            writer.append(step(k, truncated=k == 2))
        writer.end_episode({"observation": 3})
    data = live(table).data
    assert (data["o"].tolist(), data["r"].tolist(), data["next"].tolist()) == ([0, 1, 2], [0.0, 1.0, 2.0], [1, 2, 3])


def test_conditions_look_at_the_newest_step(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE)
    conditions: Sequence[Any] = [sr.when.data["reward"] % 3 == 1, sr.when.step_index >= 2]
    with table.writer(patterns=[last(conditions=conditions), last(conditions=[sr.when.end_of_episode])]) as writer:
        for k in range(9):
            writer.append(step(k))
        writer.end_episode()
    assert shown(table) == [4, 7, 8]


def wrong(table: TableHandle, error: type[Exception], text: str, **options: Any) -> None:
    with pytest.raises(error, match=re.escape(text)):
        table.writer(**options)


def test_what_a_writer_can_not_do_is_refused_when_it_is_made(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE)
    name = table.name
    wrong(table, TypeError, f"table {name!r}: patterns= has 'NStep'; expected windows and patterns", patterns=["NStep"])
    wrong(table, TypeError, f"table {name!r}: patterns is Window(", patterns=sr.NStep(3))
    wrong(
        table,
        ValueError,
        "history is 3, but a pattern reaches over 4 steps; raise it",
        history=3,
        patterns=[sr.NStep(3)],
    )
    wrong(table, ValueError, "but the arena has room for", patterns=[sr.Sequence(10_000)])
    ghost = sr.Transition(next=("ghost",))
    wrong(
        table, sr.SignatureMismatch, "output 'next_ghost' wants column 'ghost'; the signature has ob", patterns=[ghost]
    )
    elsewhere = sr.NStep(3, table="elsewhere")
    wrong(table, sr.TableNotFound, "no table 'elsewhere' over the same steps; create both with", patterns=[elsewhere])
    bad = sr.NStep(3, priority=float("nan"))
    wrong(table, ValueError, f"table {name!r}: priority is nan", patterns=[bad])
    many = sr.Pattern({f"output_number_{i}": ("td", -1) for i in range(250)})
    wrong(table, ValueError, "the trajectory's pattern takes", patterns=[many])


def test_a_writer_s_window_over_ends_of_another_name_is_warned_of(make_table: TableMaker) -> None:
    table = make_table(10, signature={"observation": sr.ArraySpec((), "int64"), "done": sr.ArraySpec((), "bool")})
    for make in (table.writer, lambda **options: table.vector_writer(1, **options)):
        with pytest.warns(UserWarning, match="it has a window: column 'done' ends no episode") as caught:
            make(patterns=[sr.Transition()]).close()
        assert [warning.filename for warning in caught] == [__file__]


def test_two_rules_of_one_table_must_make_the_same_structure(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE)
    with table.writer(patterns=[last(), last("reward")]) as writer:
        text = r"patterns\[1\] shows one step of x \(column 'reward'\), but patterns\[0\] shows one step of x \(column"
        with pytest.raises(sr.SignatureMismatch, match=text):
            writer.append(step(0))
        assert len(table) == 0
    with table.writer(patterns=[last("reward")]) as writer:  # nothing was fixed by what was refused
        writer.append(step(0))


def test_a_writer_is_used_after_a_refused_step(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE)

    def wrong_step(writer: Writer) -> None:
        with pytest.raises(sr.SignatureMismatch, match="'reward'"):
            writer.append({**step(1), "reward": "much"})

    with table.writer(patterns=[sr.Transition()]) as writer:
        writer.append(step(0))
        wrong_step(writer)
        writer.append(step(1))
    assert shown(table, "next_observation") == [1]

"""Columns in the heap with the options of `sample`, in samplers, in views, and written by vector writers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from tests.support.heap_columns import (
    COLUMNS,
    check_rows,
    free_blocks,
    image_of,
    note_of,
    points_of,
    state_of,
    step,
    steps,
)
from tests.support.tables import TableMaker, check

WITH_GOAL = {**COLUMNS, "goal": sr.ArraySpec((None,), "int32", per="item", optional=True)}


def spans(make_table: TableMaker, **options: Any) -> TableHandle:
    """Items of steps [0], [0, 1], [0, 1, 2], [1, 2, 3], ..., every other one with a goal."""
    table = make_table(100, signature=WITH_GOAL, item_steps=3, chunk_steps=4, **options)
    with table.writer() as writer:
        for n in range(8):
            writer.append(step(n))
            values = {"goal": np.arange(n, dtype="i4")} if n % 2 else None
            writer.create_item(length=min(n + 1, 3), values=values)
    return table


def expected_rows(rows: int = 3) -> list[list[int | None]]:
    found: list[list[int | None]] = []
    for n in range(8):
        first = max(0, n - 2)
        found.append([*range(first, n + 1), *[None] * (rows - (n + 1 - first))])
    return found


def test_some_columns_are_shown_alone(make_table: TableMaker) -> None:
    table = spans(make_table)
    batch = table.get(table.keys(), columns=["points", "goal"])
    assert list(batch.data) == ["points", "goal"]
    assert batch.sizes["points"][..., 0].tolist() == [
        [0 if n is None else n % 5 for n in row] for row in expected_rows()
    ]
    assert batch.sizes["goal"][:, 0].tolist() == [n if n % 2 else 0 for n in range(8)]
    drawn = table.sample(20, columns="note")
    assert list(drawn.data) == ["note"]
    assert drawn.mask["note"].shape == (20, 3)


def test_batches_may_be_padded_further(make_table: TableMaker) -> None:
    table = spans(make_table)
    batch = table.sample(50, pad_to=5)
    ns = [
        [n if real else None for n, real in zip(*row, strict=True)]
        for row in zip(batch.data["n"], batch.mask["n"], strict=True)
    ]
    assert batch.data["image"].shape == (50, 5, 12, 5)
    check_rows(batch, ns)


def test_the_step_axis_may_come_first(make_table: TableMaker) -> None:
    table = spans(make_table, seed=3)
    batch = table.sample(40, time_major=True, count=False)
    again = table.get(batch.keys)
    for name in COLUMNS:
        np.testing.assert_array_equal(batch.data[name], np.swapaxes(again.data[name], 0, 1))
        np.testing.assert_array_equal(batch.mask[name], again.mask[name].T)
        assert batch.data[name].flags.c_contiguous or name in ("n", "state")
    np.testing.assert_array_equal(batch.sizes["points"], np.swapaxes(again.sizes["points"], 0, 1))
    np.testing.assert_array_equal(batch.data["goal"], again.data["goal"])
    joined = table.sample(10, time_major=True, ragged="concat")
    total = sum(points_of(int(n)).shape[0] for n in joined.data["n"][joined.mask["n"]])
    assert joined.data["points"].shape == (total, 3)
    assert joined.sizes["points"].shape == (3, 10, 1)


def test_plain_columns_may_be_written_into_given_arrays_and_others_come_anew(make_table: TableMaker) -> None:
    table = spans(make_table)
    out: dict[str, Any] = dict.fromkeys(WITH_GOAL)
    out["n"], out["state"] = np.zeros((6, 3), np.int64), np.zeros((6, 3, 3), np.float32)
    batch = table.sample(6, out=out)
    assert np.shares_memory(batch.data["n"], out["n"])
    assert np.shares_memory(batch.data["state"], out["state"])
    real = batch.mask["n"]
    check_rows(batch, np.where(real, batch.data["n"].astype(object), None))
    again = table.sample(6, out=batch)
    assert np.shares_memory(again.data["n"], out["n"])
    check_rows(again, np.where(again.mask["n"], again.data["n"].astype(object), None))
    with pytest.raises(sr.SignatureMismatch, match="out, 'points' is ndarray; expected None: the column is float32"):
        table.sample(6, out={**out, "points": np.zeros((6, 3, 4, 3), np.float32)})


def test_rows_that_are_compressed_may_be_written_into_given_arrays(make_table: TableMaker) -> None:
    table = spans(make_table)
    out: dict[str, Any] = dict.fromkeys(WITH_GOAL)
    out["n"], out["state"] = np.zeros((6, 3), np.int64), np.zeros((6, 3, 3), np.float32)
    out["image"] = np.full((6, 3, 12, 5), 9, np.uint8)
    batch = table.sample(6, out=out)
    assert np.shares_memory(batch.data["image"], out["image"])
    check_rows(batch, np.where(batch.mask["n"], batch.data["n"].astype(object), None))
    with pytest.raises(ValueError, match=r"out, 'image' is uint8 \[6, 3, 12\]; expected a writable C-contiguous array"):
        table.sample(6, out={**out, "image": np.zeros((6, 3, 12), np.uint8)})


@pytest.mark.parametrize("prefetch", [0, 2])
def test_samplers_give_batches_that_stay_as_they_are(make_table: TableMaker, prefetch: int) -> None:
    table = spans(make_table)
    kept = []
    with table.sampler(16, prefetch=prefetch, seed=1) as sampler:
        for _ in range(12):
            batch = next(sampler)
            kept.append((batch, batch.data["n"].copy(), batch.data["points"].copy()))
    for batch, ns, points in kept:
        np.testing.assert_array_equal(batch.data["n"], ns)
        np.testing.assert_array_equal(batch.data["points"], points)
        check_rows(batch, np.where(batch.mask["n"], ns.astype(object), None))


def test_views_show_copies_of_what_is_in_the_heap(make_table: TableMaker) -> None:
    table = spans(make_table)
    with table.view(20) as items:
        for item in items:
            ns = item.data["n"].tolist()
            assert item.data["points"].shape == (len(ns), max(n % 5 for n in ns), 3)
            assert item.sizes["points"][:, 0].tolist() == [n % 5 for n in ns]
            for i, n in enumerate(ns):
                np.testing.assert_array_equal(item.data["image"][i], image_of(n))
                np.testing.assert_array_equal(item.data["points"][i, : n % 5], points_of(n))
                np.testing.assert_array_equal(item.data["state"][i], state_of(n))
            assert item.mask["note"].tolist() == [note_of(n) is not None for n in ns]
            newest = ns[-1]
            assert item.data["goal"].tolist() == (list(range(newest)) if newest % 2 else [])
            assert bool(item.mask["goal"]) == (newest % 2 == 1)
            assert not any(item.is_view[name] for name in ("image", "points", "note", "state", "goal"))
            with pytest.raises(ValueError, match="read-only"):
                item.data["image"][...] = 0


def test_a_view_of_steps_of_any_structure(make_table: TableMaker) -> None:
    table = make_table(10, signature=None, item_steps=2)
    with table.writer() as writer:
        for n in range(3):
            writer.append({"n": n})
            writer.create_item(length=min(n + 1, 2))
    with table.view(10) as items:
        for item in items:
            assert item.data in ([{"n": 0}], [{"n": 0}, {"n": 1}], [{"n": 1}, {"n": 2}])


# --- vector writers -------------------------------------------------------------------------------------------------


def test_streams_of_a_vector_writer_are_as_single_ones(make_table: TableMaker) -> None:
    item = sr.Window({"n": (0, 2), "points": (0, 2), "note": (0, 2), "image": 0, "state": 0}, at_end="pad")
    table = make_table(200, signature=COLUMNS, item=item, chunk_steps=4)
    twin = make_table(200, signature=COLUMNS, item=item, chunk_steps=4)
    lengths = [5, 3, 7]
    with table.vector_writer(3) as vector:
        for t in range(7):
            mask = np.array([t < length for length in lengths])
            vector.append(steps([10 * i + t for i in range(3)]), mask=mask)
        vector.end_episodes(np.ones(3, bool), {"points": [points_of(10 * i + 8) for i in range(3)]})
    for i, length in enumerate(lengths):
        with twin.writer() as writer:
            for t in range(length):
                writer.append(step(10 * i + t))
            writer.end_episode({"points": points_of(10 * i + 8)})
    ours, theirs = (handle.get(handle.keys()) for handle in (table, twin))
    order, other = (np.argsort(batch.data["n"][:, 0]) for batch in (ours, theirs))
    for name in ("n", "points", "note", "image", "state"):
        np.testing.assert_array_equal(ours.data[name][order], theirs.data[name][other])
        np.testing.assert_array_equal(ours.mask[name][order], theirs.mask[name][other])
    np.testing.assert_array_equal(ours.sizes["points"][order], theirs.sizes["points"][other])


def test_rows_of_a_vector_writer_may_come_bit_by_bit(make_table: TableMaker) -> None:
    table = make_table(200, signature=COLUMNS, item_steps=2, chunk_steps=4)
    with table.vector_writer(3, history=4) as writer:
        for t in range(1, 4):
            whole = steps([10 * i + t for i in range(3)])
            writer.append({"points": whole.pop("points"), "note": whole.pop("note")}, partial=True)
            writer.append(whole)
        history = writer.history
        np.testing.assert_array_equal(history["image"][-1].numpy(1), image_of(13))
        assert [len(rows) for rows in history["points"][-2:].tolist(2)] == [2, 3]
        assert history["points"][-2:].numpy(2).shape == (2, 3, 3)
        writer.create_items(length=2)
        writer.append({name: value for name, value in steps([9, 19, 29]).items() if name != "note"})
        assert writer.history["note"][-1].numpy(0).astype("f4").tolist() == [0, 0]
    check_rows(table.get(table.keys()), [[10 * i + 2, 10 * i + 3] for i in range(3)])
    assert check(table) == []


def test_a_vector_writer_that_is_not_admitted_can_repeat_the_rest(make_table: TableMaker) -> None:
    table = make_table.queue(2, signature=COLUMNS, item=sr.Sequence(1))
    with table.vector_writer(4) as writer:
        batch = steps([1, 2, 3, 4])
        with pytest.raises(sr.RateLimitTimeout) as caught:
            writer.append(batch, timeout_s=0)
        done: Any = caught.value.done
        assert done.tolist() == [True, True, False, False]
        check_rows(table.sample(2), [[1], [2]])
        for _ in range(5):
            writer.append(batch, mask=~done, timeout_s=0)
            check_rows(table.sample(2), [[3], [4]])
    assert check(table) == []


def test_vector_writers_make_no_items_that_must_bring_a_value(make_table: TableMaker) -> None:
    signature = {"n": sr.ArraySpec((), "int64"), "goal": sr.ArraySpec((), "int64", per="item")}
    table = make_table(10, signature=signature)
    text = re.escape("create_items makes an item, which brings no value of column 'goal', one per item")
    with table.vector_writer(2) as writer:
        writer.append({"n": np.arange(2)})
        with pytest.raises(ValueError, match=text):
            writer.create_items(length=1)
    optional = {"n": signature["n"], "goal": sr.ArraySpec((), "int64", per="item", optional=True)}
    other = make_table(10, signature=optional)
    with other.vector_writer(2) as writer:
        writer.append({"n": np.arange(2)})
        writer.create_items(trajectory={"x": writer.history["n"][-1]})
    assert other.get(other.keys()).mask["goal"].tolist() == [False, False]
    assert free_blocks(other) == other._arena.stats()["num_blocks"]


# --- whole arrays, and batches of several tables --------------------------------------------------------------------


@pytest.mark.parametrize("chunk_steps", [1, 4, 64])
def test_whole_arrays_go_in_as_a_writer_would_put_them(make_table: TableMaker, chunk_steps: int) -> None:
    item = sr.Window({"n": (0, 3), "points": (0, 3), "note": (0, 3), "image": 0, "state": 0}, at_end="pad")
    table = make_table(200, signature=COLUMNS, item=item, chunk_steps=chunk_steps)
    twin = make_table(200, signature=COLUMNS, item=item, chunk_steps=chunk_steps)
    ns, last = list(range(40)), [6, 7, 30, 39]
    table.extend(steps(ns), episode_ends=np.isin(ns, last))
    with twin.writer() as writer:
        for n in ns:
            writer.append(step(n))
            if n in last:
                writer.end_episode()
    ours, theirs = (handle.get(handle.keys()) for handle in (table, twin))
    for name in ("n", "points", "note", "image", "state"):
        np.testing.assert_array_equal(ours.data[name], theirs.data[name])
        np.testing.assert_array_equal(ours.mask[name], theirs.mask[name])
    plain = make_table(200, signature=WITH_GOAL, chunk_steps=chunk_steps)
    plain.extend(steps(ns))
    check_rows(plain.get(plain.keys()), ns)
    assert not plain.get(plain.keys()).mask["goal"].any()


def test_an_extend_that_is_not_admitted_says_how_many_rows_are_in(make_table: TableMaker) -> None:
    table = make_table.queue(5, signature=COLUMNS)
    with pytest.raises(sr.RateLimitTimeout) as caught:
        table.extend(steps(list(range(9))), timeout_s=0)
    assert caught.value.num_rows == 5
    check_rows(table.sample(5), [0, 1, 2, 3, 4])
    table.extend(steps([5, 6, 7, 8]), timeout_s=0)
    check_rows(table.sample(4), [5, 6, 7, 8])
    assert check(table) == []


def test_arrays_bring_no_values_of_items(make_table: TableMaker) -> None:
    signature = {"n": sr.ArraySpec((), "int64"), "goal": sr.ArraySpec((), "int64", per="item")}
    table = make_table(10, signature=signature)
    with pytest.raises(ValueError, match="extend makes items, which brings no value of column 'goal'"):
        table.extend({"n": np.arange(3)})


def test_mixes_join_what_is_in_the_heap(make_table: TableMaker) -> None:
    raw = {**WITH_GOAL, "image": sr.ArraySpec((12, 5), "uint8")}
    one = spans(make_table)
    other = make_table(100, signature=raw, item_steps=2, chunk_steps=4)
    with other.writer() as writer:
        for n in range(20, 24):
            writer.append(step(n))
            writer.create_item(length=min(n - 19, 2), values={"goal": np.arange(n, dtype="i4")})
    batch = sr.mix([(one, 5), (other, 7)], seed=1).sample()
    check_rows(batch, np.where(batch.mask["n"], batch.data["n"].astype(object), None))
    newest = batch.data["n"].max(axis=1)
    for i, n in enumerate(newest.tolist()):
        expected = n if n >= 20 or n % 2 else 0
        assert batch.sizes["goal"][i].tolist() == [expected]
        assert batch.data["goal"][i, :expected].tolist() == list(range(expected))
    assert batch.sources.tolist() == [0] * 5 + [1] * 7
    turned = sr.mix([(one, 5), (other, 7)], seed=1).sample(time_major=True)
    assert turned.data["points"].shape[:2] == turned.mask["points"].shape == (3, 12)
    assert turned.sizes["points"].shape == (3, 12, 1)
    for place in zip(*np.nonzero(turned.mask["points"]), strict=True):
        n = int(turned.data["n"][place])
        np.testing.assert_array_equal(turned.data["points"][place][: n % 5], points_of(n))
    with sr.mix([(one, 5), (spans(make_table), 7)]).sampler(prefetch=2) as sampler:
        for _ in range(6):
            mixed = next(sampler)
            check_rows(mixed, np.where(mixed.mask["n"], mixed.data["n"].astype(object), None))


def test_mixes_of_steps_of_any_structure(make_table: TableMaker) -> None:
    tables = [make_table(10, signature=None) for _ in range(2)]
    for i, table in enumerate(tables):
        table.insert({"of": i})
    assert sr.mix([(tables[0], 2), (tables[1], 1)]).sample().data == [{"of": 0}, {"of": 0}, {"of": 1}]

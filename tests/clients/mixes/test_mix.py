"""Mixes: one batch of several tables, in their order, with figures of each item's own table; updates by source."""

import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.batches.sample_options import SampleOptions
from shmreplay.clients.tables.table import TableHandle
from tests.support.children import Fork
from tests.support.tables import TableMaker, by_path, columns_of, numbers, spans, step, steps
from tests.support.waiting import WAIT_S, eventually

PRIORITIZED = sr.selectors.Prioritized(0.7)


def filled(make_table: TableMaker, first: int, count: int, **options: Any) -> TableHandle:
    table = make_table(count, **options)
    table.insert_batch(steps(range(first, first + count)), np.arange(1.0, count + 1))
    return table


def with_spans(make_table: TableMaker, first: int, length: int, **options: Any) -> TableHandle:
    """A table whose items are `length` steps, begun at each of ten."""
    table = make_table(100, **options)
    with table.writer(history=length) as writer:
        for n in range(10 + length - 1):
            writer.append(step(first + n))
            if n >= length - 1:
                writer.create_item(length=length)
    return table


def test_a_batch_has_the_items_of_each_table_in_the_order_given(make_table: TableMaker) -> None:
    tables = [filled(make_table, 0, 10), filled(make_table, 100, 20, sampler=PRIORITIZED), filled(make_table, 200, 5)]
    mix = sr.mix([(tables[0], 3), (tables[1], 8), (tables[2], 1)], seed=0)
    assert (mix.batch_size, mix.tables) == (12, tuple(table.name for table in tables))
    for _ in range(5):
        batch = mix.sample()
        drawn = numbers(batch)
        assert batch.sources.dtype == np.int64
        assert batch.sources.tolist() == [0] * 3 + [1] * 8 + [2]
        assert (drawn // 100).tolist() == batch.sources.tolist()
        assert batch.table_size.tolist() == [10] * 3 + [20] * 8 + [5]
        assert batch.priorities.tolist() == (drawn % 100 + 1).tolist()
        for source, table in enumerate(tables):
            own = batch.sources == source
            again = table.get(batch.keys[own])
            assert numbers(again).tolist() == drawn[own].tolist()
            assert again.episodes.tolist() == batch.episodes[own].tolist()
            assert again.ages.tolist() == batch.ages[own].tolist()
    assert [table.info().samples for table in tables] == [15, 40, 5]
    assert repr(batch).startswith("<MixedBatch of 12 items of <shmreplay mix of '")


def test_a_mix_draws_by_its_seed_whatever_else_is_drawn(make_table: TableMaker) -> None:
    first, second = filled(make_table, 0, 50), filled(make_table, 100, 50, sampler=PRIORITIZED)

    def draws(seed: Any, meanwhile: Callable[[], object] = int) -> list[list[int]]:
        mix = sr.mix([(first, 5), (second, 5)], seed=seed)
        return [(numbers(mix.sample()).tolist(), meanwhile())[0] for _ in range(5)]

    assert draws(3) == draws(3, lambda: first.sample(7))
    assert draws(3) != draws(4)
    assert draws(None) != draws(None)
    same = sr.mix([(first, 20), (first, 20)], seed=1).sample()  # one table twice draws differently
    assert numbers(same)[:20].tolist() != numbers(same)[20:].tolist()


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_weights_are_those_of_each_items_own_table(make_table: TableMaker, beta: float) -> None:
    uniform, prioritized = filled(make_table, 0, 10), filled(make_table, 100, 20, sampler=PRIORITIZED)
    batch = sr.mix([(uniform, 16), (prioritized, 16)], seed=2).sample()
    scaled = (np.arange(1, 21) ** 0.7) / (np.arange(1, 21) ** 0.7).sum()
    probabilities = np.where(batch.sources == 0, 0.1, scaled[numbers(batch) % 100 % 20])
    plain = (np.where(batch.sources == 0, 10, 20) * probabilities) ** -beta
    np.testing.assert_allclose(batch.weights(beta, None), plain, rtol=1e-12)
    np.testing.assert_allclose(batch.weights(beta), plain / plain.max(), rtol=1e-12)
    largest = np.where(batch.sources == 0, 1.0, (20 * scaled[0]) ** -beta)
    np.testing.assert_allclose(batch.weights(beta, "table"), plain / largest, rtol=1e-12)


def test_priorities_go_back_to_the_table_that_an_item_is_of(make_table: TableMaker) -> None:
    first, second = filled(make_table, 0, 10, sampler=PRIORITIZED), filled(make_table, 100, 10, sampler=PRIORITIZED)
    mix = sr.mix([(first, 6), (second, 4)], seed=1)
    batch = mix.sample()
    new = numbers(batch) + 0.5
    assert mix.update_priorities(batch, new) == 10
    for table in (first, second):
        items = table.get(table.keys())
        drawn = np.isin(items.keys, batch.keys)
        assert drawn.any()
        old = numbers(items) % 100 + 1
        assert items.priorities.tolist() == np.where(drawn, numbers(items) + 0.5, old).tolist()
    some = [9, 0, 5]
    assert mix.update_priorities(batch.keys[some], [1, 2, 3], batch.sources[some]) == 3
    assert second.get([batch.keys[9]]).priorities.tolist() == [1]
    assert first.get([batch.keys[0]]).priorities[0] in (2, 3)
    first.delete(batch.keys[batch.sources == 0])
    with pytest.warns(UserWarning, match="update_priorities hit none of 6 items"):
        assert mix.update_priorities(batch, np.ones((10, 1))) == 4


def test_priorities_that_are_wrong_change_nothing(make_table: TableMaker) -> None:
    first, second = filled(make_table, 0, 10, sampler=PRIORITIZED), filled(make_table, 100, 10, sampler=PRIORITIZED)
    mix = sr.mix([(first, 2), (second, 2)])
    other = sr.mix([(second, 2), (first, 2)])
    batch = mix.sample()
    before = [table.get(table.keys()).priorities.tolist() for table in (first, second)]
    refused: list[tuple[tuple[Any, ...], type[Exception], str]] = [
        ((batch, [1, 1, 1, np.nan]), ValueError, r"mix: priorities\[3\] is nan; priorities must be finite, >= 0"),
        ((batch, [1, -1, 1, 1]), ValueError, r"mix: priorities\[1\] is -1\.0; priorities must be finite"),
        ((batch, [1, 1, 1]), ValueError, "mix: 4 keys, 4 sources and 3 priorities; expected as many of each"),
        ((batch.keys, [1, 1, 1, 1]), TypeError, "mix: keys do not say which table they belong to; pass"),
        ((batch.keys, [1] * 4, [0, 0, 1, 2]), ValueError, r"mix: sources\[3\] is 2; expected 0 to 1, the tables"),
        ((batch.keys, [1] * 4, [0.0] * 4), TypeError, "mix: sources have dtype float64; expected integers"),
        ((batch.keys.astype(np.int32), [1] * 4, [0] * 4), TypeError, "mix: keys have dtype int32; expected int64"),
        ((batch, [1] * 4, batch.sources), ValueError, "mix: a batch has its own sources"),
        ((other.sample(), [1] * 4), ValueError, "mix: the batch is from <shmreplay mix of .*; update it there"),
        ((first.sample(4), [1] * 4), TypeError, "mix: the batch is from a single table; update it there"),
    ]
    for arguments, error, text in refused:
        with pytest.raises(error, match=text):
            mix.update_priorities(*arguments)
    assert [table.get(table.keys()).priorities.tolist() for table in (first, second)] == before


# --- shapes ----------------------------------------------------------------------------------------------------------


def test_all_are_padded_to_the_longest_item_of_any_table(make_table: TableMaker) -> None:
    tables = [with_spans(make_table, 0, 3), with_spans(make_table, 100, 5), with_spans(make_table, 200, 1)]
    mix = sr.mix([(table, 4) for table in tables], seed=0)
    for _ in range(2):
        batch = mix.sample()
        assert batch.data["x"].shape == (12, 5, 5)
        assert [len(span) for span in spans(batch)] == [3] * 4 + [5] * 4 + [1] * 4
        assert [span[0] // 100 for span in spans(batch)] == batch.sources.tolist()
    padded = mix.sample(pad_to=7)
    assert padded.data["n"].shape == (12, 7)
    assert [len(span) for span in spans(padded)] == [3] * 4 + [5] * 4 + [1] * 4
    with pytest.raises(ValueError, match="the table's longest item has 3 rows there"):
        mix.sample(pad_to=2)


def test_a_batch_is_the_same_in_any_layout_and_in_given_arrays(make_table: TableMaker) -> None:
    tables = [with_spans(make_table, 0, 3), with_spans(make_table, 100, 5)]
    plain, time_major, chosen, into = (sr.mix([(table, 4) for table in tables], seed=9) for _ in range(4))
    out = {"n": np.full((8, 6), -1), "x": np.full((8, 6, 5), -1, np.float32)}
    for _ in range(3):
        batch, turned, some = plain.sample(), time_major.sample(time_major=True), chosen.sample(columns=["x", "n"])
        given = into.sample(columns=["n", "x"], out=out)
        assert some.data.keys() == {"n", "x"}
        for name, values in by_path(batch.data).items():
            np.testing.assert_array_equal(values, np.swapaxes(by_path(turned.data)[name], 0, 1))
            np.testing.assert_array_equal(by_path(batch.mask)[name], np.swapaxes(by_path(turned.mask)[name], 0, 1))
            np.testing.assert_array_equal(by_path(batch.lengths)[name], by_path(turned.lengths)[name])
        for name in ("n", "x"):
            np.testing.assert_array_equal(batch.data[name], some.data[name])
            np.testing.assert_array_equal(batch.data[name], given.data[name][:, :5])
            assert np.shares_memory(given.data[name], out[name])
            assert not given.data[name][:, 5].any()
            np.testing.assert_array_equal(batch.mask[name], given.mask[name][:, :5])
        out = given.data
    with pytest.raises(ValueError, match=r"mix: out, 'n' is \[4, 6\]; expected an array of 8 items"):
        plain.sample(columns=["n", "x"], out={name: array[:4] for name, array in out.items()})
    with pytest.raises(ValueError, match="mix: out= needs time_major=False"):
        plain.sample(columns=["n", "x"], out=out, time_major=True)
    with pytest.raises(ValueError, match="the table's longest item has 3"):
        plain.sample(columns=["n"], out={"n": np.zeros((8, 2), np.int64)})
    with pytest.raises(ValueError, match="the table's longest item has 5") as raised:
        plain.sample(columns=["n"], out={"n": np.zeros((8, 4), np.int64)})
    assert len(raised.value.batch) == 4  # type: ignore[attr-defined]


def test_an_item_that_grows_while_a_batch_is_drawn_is_padded_to(
    make_table: TableMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = with_spans(make_table, 0, 2), with_spans(make_table, 100, 2)
    mix = sr.mix([(first, 3), (second, 3)], seed=0)
    draw = TableHandle._draw

    def grow_before(
        table: TableHandle, options: SampleOptions, timeout_s: float | None, out: Any, drawn: list[Batch]
    ) -> Batch:
        if table.name == second.name and out is not None:
            with second.writer(history=9) as writer:
                for n in range(200, 209):
                    writer.append(step(n))
                writer.create_item(length=9)
        return draw(table, options, timeout_s, out, drawn)

    monkeypatch.setattr(TableHandle, "_draw", grow_before)
    batch = mix.sample()
    monkeypatch.undo()
    assert batch.data["n"].shape == (6, 9)
    assert [len(span) for span in spans(batch)][:3] == [2] * 3
    assert mix.sample().data["x"].shape == (6, 9, 5)


def test_dicts_of_another_order_are_one_structure(make_table: TableMaker) -> None:
    a, b = sr.ArraySpec((2,), "float32"), sr.ArraySpec((), "int64")
    first, second = make_table(4, signature={"a": a, "b": b}), make_table(4, signature={"b": b, "a": a})
    first.insert({"a": np.full(2, 1, np.float32), "b": 1})
    second.insert({"a": np.full(2, 2, np.float32), "b": 2})
    mix = sr.mix([(first, 2), (second, 1)])
    for options in ({}, {"time_major": True}, {"columns": ["b"]}):
        batch = mix.sample(**options)
        assert batch.data["b"].tolist() == [1, 1, 2]
        assert "columns" in options or batch.data["a"].tolist() == [[1, 1], [1, 1], [2, 2]]
        assert batch.mask["b"].tolist() == [True] * 3


def test_tables_of_different_structure_are_refused_with_the_difference(make_table: TableMaker) -> None:
    whole, spans_of = filled(make_table, 0, 4), with_spans(make_table, 0, 2)
    with pytest.raises(sr.SignatureMismatch, match=r"'n': int64 \[\] and int64 \[steps\]; .*; expected one structure"):
        sr.mix([(whole, 1), (spans_of, 1)])
    declared = {"observation": sr.ArraySpec((3,), "float32"), "reward": sr.ArraySpec((), "float32")}
    ends = {"terminated": sr.ArraySpec((), "bool"), "truncated": sr.ArraySpec((), "bool")}
    first = make_table(10, signature={**declared, **ends}, item=sr.Transition())
    second = make_table(10, signature={**declared, **ends}, item=sr.NStep(3))
    with pytest.raises(
        sr.SignatureMismatch, match=f"of table {first.name!r} and of table {second.name!r} differ: 'reward'"
    ):
        sr.mix([(first, 1), (second, 1)])  # known before there is an item
    late = make_table(10)
    mix = sr.mix([(whole, 1), (late, 1)])  # not known yet
    with late.writer(history=2) as writer:
        writer.append(step(1))
        writer.create_item(length=1)
    with pytest.raises(sr.SignatureMismatch, match=f"of table {whole.name!r} and of table {late.name!r} differ"):
        mix.sample()
    assert (whole.info().samples, late.info().samples) == (0, 0)


def test_what_is_no_mix_is_refused(make_table: TableMaker) -> None:
    table = filled(make_table, 0, 4)
    with pytest.raises(ValueError, match="mix: no tables; expected at least one pair"):
        sr.mix([])
    for part in (table, (table,), (table.name, 3), [table, 3]):
        with pytest.raises(TypeError, match=r"is no pair of a table and a number; expected \(client\.table"):
            sr.mix([part])  # type: ignore[list-item]
    for n, error in ((0, ValueError), (1.5, TypeError)):
        with pytest.raises(error, match=f"mix: table {table.name!r}: n is {n}; expected"):
            sr.mix([(table, n)])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="timeout_s is -1"):
        sr.mix([(table, 1)]).sample(timeout_s=-1)
    dropped = make_table(3)
    make_table.client.drop_table(dropped.name)
    with pytest.raises(sr.TableClosed):
        sr.mix([(dropped, 1)])


# --- samplers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("time_major", [False, True])
def test_a_mix_has_samplers_too(make_table: TableMaker, prefetch: int, time_major: bool) -> None:
    tables = [with_spans(make_table, 0, 3), with_spans(make_table, 100, 5, sampler=PRIORITIZED)]
    mix = sr.mix([(table, 4) for table in tables])
    plain = sr.mix([(table, 4) for table in tables], seed=5)
    seen = set()
    with mix.sampler(prefetch=prefetch, seed=5, time_major=time_major) as sampler:
        held = next(sampler)
        content = held.data["x"].tobytes()
        np.testing.assert_array_equal(held.data["n"], plain.sample(time_major=time_major).data["n"])
        for _ in range(30):
            batch = next(sampler)
            np.testing.assert_array_equal(batch.data["x"], plain.sample(time_major=time_major).data["x"])
            seen.add(batch.data["x"].__array_interface__["data"][0])
        assert isinstance(batch, sr.MixedBatch)
        assert mix.update_priorities(batch, np.ones(8)) == 8
        assert held.data["x"].tobytes() == content
    assert time_major or len(seen) <= prefetch + 3
    assert repr(sampler) == "<shmreplay sampler of mix closed>"
    with pytest.raises(sr.ShmReplayError, match="mix: this sampler is closed"):
        next(sampler)


def test_a_sampler_of_a_mix_takes_nothing_ahead_where_any_table_consumes(make_table: TableMaker) -> None:
    first, second = filled(make_table, 0, 5), make_table.queue(10)
    second.insert_batch(steps(range(3)))
    mix = sr.mix([(first, 2), (second, 2)])
    with pytest.raises(ValueError, match="mix: prefetch is 1, but items are consumed"):
        mix.sampler(prefetch=1)
    with mix.sampler(timeout_s=0) as sampler:
        assert sampler.prefetch == 0
        assert numbers(next(sampler))[2:].tolist() == [0, 1]
        with pytest.raises(sr.RateLimitTimeout) as raised:
            next(sampler)
    assert numbers(raised.value.batch)[2:].tolist() == [2]


def test_a_sampler_of_a_mix_ends_in_whichever_table_it_waits_for(make_table: TableMaker) -> None:
    first, second = filled(make_table, 0, 5), make_table(5)
    for prefetch in (0, 2):
        sampler = sr.mix([(first, 2), (second, 2)]).sampler(prefetch=prefetch)
        ends: list[str] = []

        def wait(sampler: sr.Sampler = sampler, ends: list[str] = ends) -> None:
            with pytest.raises(sr.ShmReplayError) as raised:
                next(sampler)
            ends.append(str(raised.value))

        thread = threading.Thread(target=wait)
        thread.start()
        eventually(lambda: second.info().blocked_samples == 1)
        sampler.close()
        thread.join(WAIT_S)
        assert len(ends) == 1
        assert "closed" in ends[0]


# --- waiting ---------------------------------------------------------------------------------------------------------


def test_what_the_others_gave_is_not_lost_when_one_table_times_out(make_table: TableMaker) -> None:
    first, second, third = make_table.queue(10), make_table.queue(10), make_table.queue(10)
    for i, table in enumerate((first, second, third)):
        table.insert_batch(steps(range(100 * i, 100 * i + (2 if table is second else 5))))
    mix = sr.mix([(first, 4), (second, 3), (third, 4)])
    with pytest.raises(sr.RateLimitTimeout, match=f"table {second.name!r}: sample not admitted") as raised:
        mix.sample(timeout_s=0.01)
    batch = raised.value.batch
    assert numbers(batch).tolist() == [0, 1, 2, 3, 100, 101]
    assert batch.sources.tolist() == [0] * 4 + [1] * 2
    assert [len(table) for table in (first, second, third)] == [1, 0, 5]
    with pytest.raises(sr.RateLimitTimeout, match=f"table {first.name!r}") as raised:
        sr.mix([(first, 2), (second, 1)]).sample(timeout_s=0)
    assert numbers(raised.value.batch).tolist() == [4]
    with pytest.raises(sr.RateLimitTimeout) as raised:
        sr.mix([(second, 2)]).sample(timeout_s=0)
    assert raised.value.batch is None


def test_a_mix_waits_for_the_tables_together(make_table: TableMaker) -> None:
    first, second = make_table(10), make_table(10)
    mix = sr.mix([(first, 1), (second, 1)])
    with pytest.raises(sr.RateLimitTimeout, match=f"table {first.name!r}"):
        mix.sample(timeout_s=0)
    found: list[list[int]] = []
    thread = threading.Thread(target=lambda: found.append(numbers(mix.sample()).tolist()))
    thread.start()
    for table, n in ((first, 1), (second, 2)):
        eventually(lambda table=table: table.info().blocked_samples == 1)  # type: ignore[misc]
        table.insert(step(n))
    thread.join(WAIT_S)
    assert found == [[1, 2]]


def test_a_look_counts_in_no_table(make_table: TableMaker) -> None:
    first, second = filled(make_table, 0, 5), make_table.queue(5)
    second.insert(step(9))
    mix = sr.mix([(first, 2), (second, 3)])
    assert numbers(mix.sample(count=False)).tolist()[2:] == [9, 9, 9]
    assert (first.info().samples, second.info().samples, len(second)) == (0, 0, 1)


def test_draws_without_replacement_are_distinct_within_each_table(make_table: TableMaker) -> None:
    first, second = filled(make_table, 0, 6), filled(make_table, 100, 4, sampler=PRIORITIZED)
    mix = sr.mix([(first, 6), (second, 4)])
    assert sorted(numbers(mix.sample(replacement=False)).tolist()) == [*range(6), *range(100, 104)]
    assert sorted(numbers(mix.sample(stratified=True))[:6].tolist()) == list(range(6))
    with pytest.raises(ValueError, match="n is 5 with replacement=False, but the table has 4") as raised:
        sr.mix([(first, 6), (second, 5)]).sample(replacement=False)
    assert sorted(numbers(raised.value.batch).tolist()) == list(range(6))  # type: ignore[attr-defined]


def test_tables_of_several_servers_mix(make_table: TableMaker) -> None:
    first = filled(make_table, 0, 5, sampler=PRIORITIZED)
    with sr.Server() as server, server.client() as client:
        second = filled(TableMaker(client, 1), 100, 5, sampler=PRIORITIZED)
        mix = sr.mix([(first, 4), (second, 4)])
        batch = mix.sample()
        assert (numbers(batch) // 100).tolist() == batch.sources.tolist()
        assert mix.update_priorities(batch, np.full(8, 50.0)) == 8
        assert second.get(batch.keys[4:]).priorities.tolist() == [50.0] * 4


def test_a_forked_child_mixes_with_numbers_of_its_own(make_table: TableMaker, fork: Fork) -> None:
    first, second = filled(make_table, 0, 50), filled(make_table, 100, 50)
    mix = sr.mix([(first, 8), (second, 8)], seed=3)
    mix.sample()

    def work(_: object) -> list[list[int]]:
        return [numbers(mix.sample()).tolist() for _ in range(3)]

    found = fork(work).result()
    assert found != work(None)
    assert all(n < 100 for n in itertools.chain(*(draws[:8] for draws in found)))
    np.testing.assert_array_equal(mix.sample().data["x"].shape, columns_of(np.arange(16))["x"].shape)

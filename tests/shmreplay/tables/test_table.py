"""Table as a value: its checks, its two special makers, its wire form."""

from __future__ import annotations

import dataclasses
import re
import warnings
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmreplay import Episode, NStep, Sequence, SignatureMismatch, Window, rate_limiters, selectors
from shmreplay.columns.specs import ArraySpec
from shmreplay.tables.packed_specs import pack_specs, unpack_specs
from shmreplay.tables.table import Table

SIGNATURE = {"observation": ArraySpec((4,), "f4"), "action": ArraySpec((), "i8")}
SELECTORS = st.sampled_from(
    [selectors.Fifo(), selectors.Lifo(), selectors.Uniform(), selectors.Prioritized(0.6), selectors.MaxHeap()]
)
LIMITERS = st.sampled_from(
    [rate_limiters.MinSize(3), rate_limiters.SampleToInsertRatio(4.0, 100, 50.0), rate_limiters.Queue(5)]
)


def test_the_defaults_are_a_uniform_table_without_limits() -> None:
    table = Table("replay", SIGNATURE, 100)
    assert (table.sampler, table.remover) == (selectors.Uniform(), selectors.Fifo())
    assert table.rate_limiter == rate_limiters.MinSize(1)
    assert (table.max_times_sampled, table.item_steps, table.max_streams, table.max_sessions) == (0, 1, 1024, 1024)
    assert not table.consuming
    assert table.arena_name == "replay"
    assert [leaf.path for leaf in table.sig.leaves] == ["observation", "action"]
    assert table.sig.table_name == "replay"


@pytest.mark.parametrize(
    ("make", "selector", "limiter"),
    [
        (Table.queue, selectors.Fifo(), rate_limiters.Queue(7)),
        (Table.stack, selectors.Lifo(), rate_limiters.Stack(7)),
    ],
)
def test_a_queue_and_a_stack_consume_their_items(make: Any, selector: Any, limiter: Any) -> None:
    table = make("rollouts", SIGNATURE, 7, item_steps=20, on_full="error")
    assert (table.sampler, table.remover, table.rate_limiter) == (selector, selector, limiter)
    assert (table.max_size, table.max_times_sampled, table.item_steps, table.on_full) == (7, 1, 20, "error")
    assert table.consuming


@pytest.mark.parametrize("name", ["sampler", "remover", "rate_limiter", "max_times_sampled"])
def test_what_a_queue_sets_itself_cannot_be_given(name: str) -> None:
    text = f"table 'q': Table.queue sets {name} itself; leave it out, or use Table(...)"
    with pytest.raises(TypeError, match=re.escape(text)):
        Table.queue("q", SIGNATURE, 7, **{name: None})
    with pytest.raises(TypeError, match=re.escape(f"Table.stack sets {name} itself")):
        Table.stack("q", SIGNATURE, 7, **{name: None})


@pytest.mark.parametrize("size", [0, -1, 2**31])
def test_a_queues_size_is_checked_by_its_own_name(size: int) -> None:
    with pytest.raises(ValueError, match=f"table 'q': max_size is {size}; expected an integer in 1..2147483646"):
        Table.queue("q", SIGNATURE, size)


@pytest.mark.parametrize("name", ["", "a.b", "a/b", "a b", "ä", "a\n", "x" * 65])
def test_a_name_must_fit_into_a_segments_name(name: str) -> None:
    text = f"name is {name!r}; expected 1 to 64 letters, digits, '_' and '-' (it becomes part of a segment's name)"
    with pytest.raises(ValueError, match=re.escape(f"table: {text}")):
        Table(name, SIGNATURE, 1)
    with pytest.raises(ValueError, match=re.escape(f"table 'a': arena is {name!r}; expected 1 to 64 letters")):
        Table("a", SIGNATURE, 1, arena=name)


@pytest.mark.parametrize("name", ["a", "A-b_9", "x" * 64])
def test_a_name_of_letters_digits_and_dashes_is_taken(name: str) -> None:
    assert Table(name, SIGNATURE, 1).arena_name == name
    assert Table("a", SIGNATURE, 1, arena=name).arena_name == name


def test_a_name_must_be_a_str() -> None:
    with pytest.raises(TypeError, match="table: name is 3; expected 1 to 64 letters"):
        Table(3, SIGNATURE, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"max_size": 0}, ValueError, "max_size is 0; expected an integer in 1..2147483646"),
        ({"max_size": 2**31 - 1}, ValueError, "max_size is 2147483647; expected an integer in 1..2147483646"),
        ({"max_size": 1e6}, TypeError, "max_size is 1000000.0; expected an integer"),
        ({"max_times_sampled": -1}, ValueError, "max_times_sampled is -1; expected an integer in 0.."),
        ({"item_steps": 0}, ValueError, "item_steps is 0; expected an integer in 1.."),
        ({"max_streams": 0}, ValueError, "max_streams is 0; expected an integer in 1.."),
        ({"max_sessions": True}, TypeError, "max_sessions is True; expected an integer in 1.."),
        ({"chunk_steps": 0}, ValueError, "chunk_steps is 0; expected an integer in 1..16777216"),
        ({"chunk_steps": 2**24 + 1}, ValueError, "chunk_steps is 16777217; expected an integer in 1..16777216"),
        ({"capacity_steps": 0}, ValueError, "capacity_steps is 0; expected an integer in 1.."),
        (
            {"capacity_steps": 9, "item_steps": 10},
            ValueError,
            "capacity_steps is 9; expected at least item_steps, 10, or an item of that length never fits",
        ),
        ({"on_full": "evict"}, ValueError, "on_full is 'evict'; expected one of None, 'wait', 'error'"),
        ({"item": {}}, TypeError, "item is {}; expected a window such as sr.NStep(3), a pattern, or None"),
        ({"item": Episode()}, ValueError, "item is a whole episode; give item_steps: the steps of the longest"),
        ({"item": NStep(3), "item_steps": 3}, ValueError, "item_steps is 3, but item reaches over 4; leave it out"),
        (
            {"item": NStep(3, table="other")},
            ValueError,
            "item is a rule of table 'other'; expected none, or this one",
        ),
        ({"item": NStep(3, next=("ghost",))}, SignatureMismatch, "output 'next_ghost' wants column 'ghost'"),
        ({"item": NStep(3, priority="ghost")}, SignatureMismatch, "item: priority: no column 'ghost'"),
        ({"sampler": selectors.Fifo}, TypeError, "sampler is the class Fifo; expected an object of it, Fifo(...)"),
        ({"sampler": "fifo"}, TypeError, "sampler is 'fifo'; expected a Selector such as Uniform()"),
        ({"remover": None}, TypeError, "remover is None; expected a Selector such as Fifo()"),
        ({"remover": selectors.Selector()}, TypeError, "remover is Selector(); expected a Selector such as Fifo()"),
        ({"rate_limiter": 3}, TypeError, "rate_limiter is 3; expected a RateLimiter such as MinSize(1)"),
        (
            {"rate_limiter": rate_limiters.MinSize},
            TypeError,
            "rate_limiter is the class MinSize; expected an object of it, MinSize(...)",
        ),
        ({"signature": {}}, ValueError, "signature is an empty dict; expected at least one column"),
    ],
)
def test_an_argument_that_cannot_be_is_refused(options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(f"table 'replay': {text}")):
        Table(**{"name": "replay", "signature": SIGNATURE, "max_size": 10, **options})


def test_numpy_integers_become_ints_that_msgpack_takes() -> None:
    sizes: Any = {"max_size": np.int64(10), "item_steps": np.int32(2), "chunk_steps": np.uint8(8)}
    table = Table("a", SIGNATURE, **sizes)
    assert unpack_specs(pack_specs([table])) == (table,)
    assert type(table.chunk_steps) is int


def test_it_is_frozen_and_equal_by_what_its_signature_means() -> None:
    table = Table("a", {"x": np.zeros(4, "f4")}, 10)
    assert table == Table("a", {"x": ArraySpec((4,), "float32")}, 10)
    assert hash(table) == hash(Table("a", {"x": ArraySpec((4,), "float32")}, 10))
    assert table != Table("a", {"x": ArraySpec((5,), "float32")}, 10)
    with pytest.raises(dataclasses.FrozenInstanceError):
        table.max_size = 3  # type: ignore[misc]


@given(
    SELECTORS,
    SELECTORS,
    LIMITERS,
    st.integers(1, 2**31 - 2),
    st.integers(0, 5),
    st.integers(1, 100),
    st.none() | st.integers(100, 2**40),
    st.sampled_from([None, "wait", "error"]),
    st.sampled_from([None, "shared"]),
)
@pytest.mark.filterwarnings("ignore:table 'replay'. min_size_to_sample:UserWarning")
def test_it_comes_back_from_its_wire_form(
    sampler: selectors.Selector,
    remover: selectors.Selector,
    limiter: rate_limiters.RateLimiter,
    max_size: int,
    times: int,
    item_steps: int,
    capacity_steps: int | None,
    on_full: str | None,
    arena: str | None,
) -> None:
    table = Table(
        "replay",
        {"a": [ArraySpec((2,), "u1"), ArraySpec((), "bfloat16")]},
        max_size,
        sampler=sampler,
        remover=remover,
        rate_limiter=limiter,
        max_times_sampled=times,
        item_steps=item_steps,
        capacity_steps=capacity_steps,
        on_full=on_full,
        arena=arena,
    )
    again = Table.from_wire(msgpack.unpackb(msgpack.packb(table.to_wire())))
    assert again == table
    assert again.difference(table) == []
    assert again.to_wire() == table.to_wire()


def test_an_item_says_how_many_steps_it_takes_and_travels() -> None:
    table = Table("a", SIGNATURE, 10, item=NStep(3, {"observation": 4}, priority=2.0))
    assert table.item_steps == 7
    assert Table("a", SIGNATURE, 10, item=NStep(3), item_steps=20).item_steps == 20
    again = Table.from_wire(msgpack.unpackb(msgpack.packb(table.to_wire())))
    assert again == table
    assert hash(again) == hash(table)
    assert again.difference(table) == []
    (text,) = Table("a", SIGNATURE, 10, item_steps=7).difference(table)
    assert text.startswith("item: is None, asked for Window(columns={'observation': (-3, 1)")
    assert Table.queue("q", SIGNATURE, 10, item=Sequence(5)).item_steps == 5


def test_a_limiter_that_waits_for_more_items_than_there_can_be_is_warned_of_once() -> None:
    text = "table 'big': min_size_to_sample is 100, more than max_size 10: sampling never starts"
    with pytest.warns(UserWarning, match=text) as caught:
        table = Table("big", SIGNATURE, 10, rate_limiter=rate_limiters.MinSize(100))
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings(record=True) as later:
        warnings.simplefilter("always")
        assert Table.from_wire(table.to_wire()) == table
        Table("big", SIGNATURE, 10, rate_limiter=rate_limiters.MinSize(10))
    assert later == []


@pytest.mark.parametrize("spec", [ArraySpec((), "float32"), ArraySpec((1,), "bool"), np.dtype("int64")])
@pytest.mark.parametrize("name", ["terminated", "truncated"])
def test_a_column_that_is_named_as_an_end_must_be_one(name: str, spec: Any) -> None:
    text = rf"table 'replay', column '{name}': is .*, and says where episodes end; declare ArraySpec\(\(\), 'bool'\)"
    with pytest.raises(ValueError, match=text):
        Table("replay", {**SIGNATURE, name: spec}, 10)
    with pytest.raises(ValueError, match=text.replace(name, f"info/{name}")):
        Table("replay", {**SIGNATURE, "info": {name: spec}}, 10, ends=(f"info/{name}",))
    Table("replay", {**SIGNATURE, "info": {name: spec}}, 10)


@pytest.mark.parametrize("name", ["done", "dones"])
def test_a_window_over_ends_of_another_name_is_warned_of_once(name: str) -> None:
    done = {**SIGNATURE, name: ArraySpec((), "bool")}
    text = f"table 'replay': item is a window: column '{name}' ends no episode, only those called 'terminated'"
    with pytest.warns(UserWarning, match=text) as caught:
        table = Table("replay", done, 10, item=NStep(3))
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings(record=True) as later:
        warnings.simplefilter("always")
        assert Table.from_wire(table.to_wire()) == table
        Table("replay", done, 10)
        Table("replay", done, 10, item=Window({"action": (0, 2)}, across_episodes=True))
        Table("replay", {**done, "terminated": ArraySpec((), "bool")}, 10, item=NStep(3))
    assert later == []


def test_the_difference_names_every_field() -> None:
    there = Table("a", SIGNATURE, 10, sampler=selectors.Prioritized(0.6))
    asked = Table(
        "a", {**SIGNATURE, "action": ArraySpec((), "i4")}, 20, chunk_steps=8, sampler=selectors.Prioritized(1)
    )
    assert there.difference(asked) == [
        "max_size: is 10, asked for 20",
        "sampler: is Prioritized(priority_exponent=0.6), asked for Prioritized(priority_exponent=1.0)",
        "chunk_steps: is None, asked for 8",
        "column 'action': is int64 (), asked for int32 ()",
    ]


def test_the_order_of_a_dicts_keys_is_no_difference() -> None:
    backwards = dict(reversed(SIGNATURE.items()))
    assert Table("a", SIGNATURE, 10).difference(Table("a", backwards, 10)) == []


@pytest.mark.parametrize(
    "name", ["name", "signature", "max_size", "sampler", "remover", "rate_limiter", "arena", "max_sessions", "on_full"]
)
def test_a_wire_form_that_lacks_a_field_is_refused(name: str) -> None:
    wire = Table("a", SIGNATURE, 10).to_wire()
    del wire[name]
    with pytest.raises(ValueError, match=f"malformed, expected a map with '{name}'"):
        Table.from_wire(wire)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"max_size": "many"}, TypeError, "table 'a': max_size is 'many'; expected an integer"),
        ({"name": ["a"]}, TypeError, "table: name is ['a']; expected 1 to 64 letters"),
        ({"sampler": {"kind": "Newest"}}, ValueError, "selector: unknown kind 'Newest'"),
        ({"rate_limiter": {}}, ValueError, "rate limiter: malformed"),
    ],
)
def test_a_malformed_wire_form_is_refused(change: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        Table.from_wire({**Table("a", SIGNATURE, 10).to_wire(), **change})


@pytest.mark.parametrize(
    ("packed", "text"),
    [
        (b"\xc1", "table specs: 1 bytes that are not msgpack"),
        (b"", "table specs: 0 bytes that are not msgpack"),
        (msgpack.packb({}), "table specs: expected a list of tables, got {}"),
        (msgpack.packb([3]), "table: malformed, expected a map with 'name'"),
    ],
)
def test_specs_that_are_damaged_are_refused(packed: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        unpack_specs(packed)


def test_a_table_without_a_signature_comes_back_from_its_wire_form() -> None:
    for table in (Table("a", None, 10), Table("a", None, 10, mean_bytes=77), Table.queue("a", None, 10, item_steps=3)):
        again = Table.from_wire(msgpack.unpackb(msgpack.packb(table.to_wire())))
        assert again == table
        assert again.sig.is_free
    assert Table("a", None, 10).difference(Table("a", None, 10, mean_bytes=77)) == [
        "mean_bytes: is None, asked for 77",
    ]
    assert Table("a", None, 10) != Table("a", SIGNATURE, 10)


def test_options_of_columns_are_part_of_the_difference() -> None:
    there = {"x": ArraySpec((3,), "f4"), "y": ArraySpec((None, 3), "f4")}
    asked = {"x": ArraySpec((3,), "f4", mutable=True), "y": ArraySpec((None, 3), "f4", compression="lz4")}
    assert Table("a", there, 10).difference(Table("a", asked, 10)) == [
        "column 'x': is float32 (3,), asked for float32 (3,) mutable=True",
        "column 'y': is float32 (None, 3), asked for float32 (None, 3) compression='lz4'",
    ]


def test_a_window_of_a_table_whose_items_must_bring_a_value_is_refused() -> None:
    columns = {**SIGNATURE, "goal": ArraySpec((), "f4", per="item")}
    text = "table 'a': item is a window, which brings no value of column 'goal', one per item: make the items by hand"
    with pytest.raises(ValueError, match=re.escape(text)):
        Table("a", columns, 10, item=NStep(3))


def test_a_window_wants_a_signature() -> None:
    for item in (NStep(3), Sequence(3), Window({"step": (0, 4)})):
        with pytest.raises(SignatureMismatch, match=r"signature is None: declare .* create_item\(length=\.\.\.\)"):
            Table("a", None, 10, item=item)

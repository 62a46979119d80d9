"""HeapPlan: blocks checked by hand-worked numbers, and the promises about their size."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmreplay import _core, selectors
from shmreplay.columns.heap_plan import HeapPlan, plan_heap
from shmreplay.columns.signature import Signature
from shmreplay.columns.specs import ArraySpec
from shmreplay.estimates import estimate_of
from shmreplay.rules.windows import Sequence
from shmreplay.tables.plan import chunk_bytes, plan
from shmreplay.tables.table import Table
from tests.support.tables import TableMaker


def heap_of(signature: Any, num_rows: int, num_items: int = 0) -> HeapPlan:
    return plan_heap(Signature.from_tree({"n": ArraySpec((), "i8"), **signature}, "t").leaves, num_rows, num_items)


def test_plain_and_mutable_columns_need_no_heap() -> None:
    assert heap_of({"state": ArraySpec((512,), "f4", mutable=True)}, 1000, 10) == HeapPlan()


def test_compressed_rows_are_planned_at_half_their_bytes_and_half_a_block_each() -> None:
    # 84 * 84 / 2 = 3528 B a row: 1024-byte blocks waste 512 each, which is below a quarter.
    found = heap_of({"image": ArraySpec((84, 84), "u1", compression="lz4")}, 1000)
    assert found == HeapPlan(math.ceil(1000 * (3528 + 512) / 1024), 1024, 3528, 0, 1000, 0)
    assert found.num_bytes == found.num_blocks * 1024


def test_optional_rows_of_a_fixed_size_take_whole_blocks() -> None:
    assert heap_of({"x": ArraySpec((16,), "f4", optional=True)}, 1000) == HeapPlan(1000, 64, 64, 0, 1000, 0)
    assert heap_of({"x": ArraySpec((17,), "f4", optional=True)}, 1000) == HeapPlan(2000, 64, 68, 0, 1000, 0)
    # There in one row of four, as mean_bytes says.
    assert heap_of({"x": ArraySpec((16,), "f4", optional=True, mean_bytes=16)}, 1000).num_blocks == 250


@pytest.mark.parametrize(
    "spec",
    [
        ArraySpec((0,), "f4", optional=True),
        ArraySpec((0,), "f4", optional=True, mean_bytes=1),
        ArraySpec((0,), "f4", compression="lz4"),
        ArraySpec((None, 0), "f4"),
        ArraySpec((None,), "f4", mean_bytes=4),  # a header alone
        ArraySpec((64,), "f4", compression="lz4", mean_bytes=1),
    ],
    ids=str,
)
def test_every_value_has_a_block_however_small_it_is(spec: ArraySpec) -> None:
    assert heap_of({"x": spec}, 1000).num_blocks >= 1000


def test_more_mean_bytes_make_more_blocks_also_for_values_without_bytes() -> None:
    assert heap_of({"x": ArraySpec((0,), "f4", optional=True, mean_bytes=3)}, 1000).num_blocks == 3000


@pytest.mark.parametrize("spec", [ArraySpec((0,), "f4", optional=True), ArraySpec((0,), "f4", per="item")], ids=str)
def test_a_table_holds_max_size_values_without_bytes(make_table: TableMaker, spec: ArraySpec) -> None:
    signature = {"x": ArraySpec((), "i8"), "e": spec}
    table = make_table(signature=signature, max_size=1000, max_streams=1)
    for number in range(1000):
        table.insert({"x": number, "e": np.zeros(0, "f4")}, timeout_s=0)
    assert len(table) == 1000
    assert (table.sample(10).mask["e"]).all()


def test_a_writer_of_values_without_bytes_waits_for_nothing(make_table: TableMaker) -> None:
    signature = {"x": ArraySpec((), "i8"), "e": ArraySpec((0,), "f4", optional=True)}
    table = make_table(signature=signature, max_size=1000, item=Sequence(3, at_end="skip"), max_streams=1)
    with table.writer() as writer:
        for number in range(1002):
            writer.append({"x": number, "e": np.zeros(0, "f4")}, timeout_s=0)
    assert len(table) == 1000


def test_what_an_item_brings_is_stored_as_one_value() -> None:
    goal, state = ArraySpec((3,), "f4", per="item"), ArraySpec((31,), "f4", per="item")
    found = heap_of({"goal": goal, "state": state}, 1000, 500)
    # 4 + 12 + 4 + 124 = 144 B: three blocks of 64 waste 48, over a quarter, but there are no smaller ones.
    assert found == HeapPlan(1500, 64, 0, 144, 0, 500)


def test_the_arena_has_blocks_for_every_row_and_for_the_items_of_a_full_table() -> None:
    signature = {"x": ArraySpec((16,), "f4", optional=True), "goal": ArraySpec((15,), "f4", per="item")}
    spec = plan([Table("t", signature, 6400, chunk_steps=64, max_streams=2, remover=selectors.Uniform())])
    assert spec.heap.num_rows == spec.num_chunks * 64
    assert spec.heap.num_items == math.ceil(6400 * spec.terms[0].fragmentation) + spec.reserve_chunks * 64
    assert spec.heap.num_blocks == spec.heap.num_rows + spec.heap.num_items
    native = spec.native()
    assert native["columns"] == [(8, 1, 0), (0, 4, 0)]
    assert (native["num_blocks"], native["block_bytes"]) == (spec.heap.num_blocks, 64)
    assert spec.columns == (8, 0)


def test_a_chunk_is_at_most_64_kib_with_its_values_in_the_heap() -> None:
    image = {"image": ArraySpec((84, 84), "u1", compression="lz4")}
    assert plan([Table("t", image, 10**6, max_streams=16)]).chunk_steps == 16  # 32 would have 113 KB in the heap
    packed = {"image": ArraySpec((84, 84), "u1", compression="lz4", mean_bytes=700)}
    assert plan([Table("t", packed, 10**6, max_streams=16)]).chunk_steps == 64


def test_a_mutable_column_takes_its_row_twice() -> None:
    spec = plan([Table("t", {"state": ArraySpec((7,), "f4", mutable=True)}, 10**5, chunk_steps=4)])
    assert spec.native()["columns"] == [(28, 2, 0)]
    assert spec.columns == (8 + 2 * 32,)
    assert chunk_bytes(spec.columns, 4) == 3 * 128 + 128


def test_steps_of_any_structure_are_planned_at_a_kibibyte_or_what_is_said() -> None:
    assert plan([Table("t", None, 1000)]).heap.step_bytes == 1024
    assert plan([Table("t", None, 1000, mean_bytes=200)]).heap.step_bytes == 200


def test_an_estimate_shows_the_heap() -> None:
    signature = {"x": ArraySpec((16,), "f4", optional=True), "goal": ArraySpec((15,), "f4", per="item")}
    spec = plan([Table("t", signature, 640, chunk_steps=64, max_streams=2)])
    sizes = {"index_bytes": 4096, "data_bytes": 8192, "chunk_bytes": 1024, "item_index_bytes": 120}
    found = estimate_of(spec, lambda native: sizes)
    lines = [re.sub(" +", " ", line.strip()) for line in str(found).splitlines()]
    rows, items = spec.num_chunks * 64, 640 + 16 * 64
    assert f"heap {rows} steps x 64 B + {items} items x 64 B {rows + items} blocks 232.0 KiB" in lines
    assert found.heap == spec.heap
    assert found.row_bytes == 64
    assert found.bytes_per_step == 1024 // 64 + 64


def test_the_core_lays_out_as_many_bytes_as_are_planned() -> None:
    signature = {"x": ArraySpec((None,), "f4"), "state": ArraySpec((7,), "f4", mutable=True)}
    spec = plan([Table("t", signature, 640, chunk_steps=64, max_streams=2)])
    sizes = _core.plan_arena(spec.native())
    assert sizes["heap_bytes"] == spec.heap.num_bytes
    assert sizes["chunk_bytes"] == chunk_bytes(spec.columns, 64)
    assert sizes["data_bytes"] >= spec.num_chunks * sizes["chunk_bytes"] + sizes["heap_bytes"]


def test_more_blocks_than_can_be_numbered_are_refused() -> None:
    huge = {"x": ArraySpec((None,), "u1", mean_bytes=2**31)}
    with pytest.raises(ValueError, match=r"arena 't': needs \d+ blocks of 4096 bytes for its heap; at most 2147483647"):
        plan([Table("t", huge, 10**6)])


@given(
    st.lists(st.integers(1, 10**6), min_size=1, max_size=4),
    st.integers(1, 10**5),
    st.booleans(),
)
def test_at_most_a_quarter_is_wasted_where_blocks_can_be_as_small(
    means: list[int], num_rows: int, is_varying: bool
) -> None:
    columns = {
        f"x{i}": ArraySpec((None,), "u1", mean_bytes=mean) if is_varying else ArraySpec((mean,), "u1", optional=True)
        for i, mean in enumerate(means)
    }
    found = heap_of(columns, num_rows)
    assert found.block_bytes in {64, 128, 256, 512, 1024, 2048, 4096}
    assert found.num_bytes >= num_rows * sum(means)
    assert found.block_bytes == 64 or found.num_bytes <= 1.25 * num_rows * sum(means) + found.block_bytes

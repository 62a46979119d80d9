"""Plan: the formula for chunks, checked by hand-worked numbers and by its own promises."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmreplay import _core, selectors
from shmreplay.columns.signature import MAX_COLUMNS
from shmreplay.columns.specs import ArraySpec
from shmreplay.rules.windows import Episode, NStep, Sequence, Unroll
from shmreplay.tables.packed_specs import unpack_specs
from shmreplay.tables.plan import MAX_TABLES, chunk_bytes, harmonic, plan
from shmreplay.tables.table import INTS, Table

CARTPOLE = {"observation": ArraySpec((4,), "f4"), "action": ArraySpec((), "i8"), "reward": ArraySpec((), "f4")}
ROW_400 = {"x": ArraySpec((100,), "f4")}


def table(max_size: int, signature: Any = None, **options: Any) -> Table:
    return Table("replay", ROW_400 if signature is None else signature, max_size, **options)


# --- terms ----------------------------------------------------------------------------------------------------------


def test_every_term_of_a_table_of_steps() -> None:
    spec = plan([table(100_000, max_streams=64, chunk_steps=64)])
    assert [(term.steps, term.fragmentation, term.chunks) for term in spec.terms] == [(100_000, 1.0, 1563)]
    assert spec.stream_chunks == 64 * (1 + 2)
    assert spec.reserve_chunks == 1563 // 8
    assert spec.num_chunks == 1563 + 192 + 195
    assert (spec.name, spec.chunk_steps, spec.history, spec.max_streams, spec.max_sessions) == (
        "replay",
        64,
        1,
        64,
        1024,
    )


def test_every_term_of_a_table_of_sequences() -> None:
    spec = plan([table(1000, item_steps=80, max_streams=10, chunk_steps=32)])
    assert spec.terms[0].steps == 80_000
    assert spec.terms[0].chunks == 2500
    assert spec.stream_chunks == 10 * (3 + 2)
    assert spec.history == 80


@pytest.mark.parametrize(
    ("options", "fragments"),
    [
        ({}, False),
        ({"sampler": selectors.Prioritized(0.6)}, False),
        ({"remover": selectors.Uniform()}, True),
        ({"remover": selectors.Lifo()}, True),
        ({"remover": selectors.MinHeap()}, True),
        ({"max_times_sampled": 1}, True),
        ({"max_times_sampled": 1, "sampler": selectors.Fifo()}, False),
        ({"max_times_sampled": 1, "sampler": selectors.Lifo()}, True),
    ],
)
def test_the_harmonic_factor_counts_where_items_leave_in_another_order(options: Any, fragments: bool) -> None:
    term = plan([table(6400, chunk_steps=64, **options)]).terms[0]
    assert term.fragmentation == pytest.approx(harmonic(64) if fragments else 1.0)
    assert term.chunks == (math.ceil(100 * harmonic(64)) if fragments else 100)


def test_the_harmonic_number_of_64_is_the_measured_four_point_seven() -> None:
    assert harmonic(64) == pytest.approx(4.74, abs=0.01)
    assert harmonic(1) == 1.0


@pytest.mark.parametrize(("max_size", "reserve"), [(1, 16), (128 * 8, 16), (136 * 8, 17), (10**6, 1024)])
def test_the_reserve_is_an_eighth_within_bounds(max_size: int, reserve: int) -> None:
    assert plan([table(max_size, chunk_steps=8)]).reserve_chunks == reserve


def test_capacity_steps_take_the_place_of_the_items_without_the_factor() -> None:
    spec = plan([table(10**6, capacity_steps=1001, chunk_steps=10, remover=selectors.Uniform())])
    assert [(term.steps, term.fragmentation, term.chunks) for term in spec.terms] == [(1001, 1.0, 101)]


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"item": Sequence(80, 40)}, 1000 * 40 + 80),
        ({"item": NStep(3, next=("x",), stack={"x": 4})}, 1000 + 7),
        ({"item": Sequence(80, 80)}, None),
        ({"item": Sequence(80, 40), "capacity_steps": 50_000}, None),
        ({"item": Sequence(80, 40), "remover": selectors.Uniform()}, None),
        ({"item": Episode(), "item_steps": 80}, None),
        ({"item_steps": 80}, None),
    ],
)
def test_windows_that_overlap_are_told_how_many_steps_they_have(options: Any, steps: int | None) -> None:
    spec = plan([table(1000, **options)])
    assert spec.terms[0].shared_steps == steps


def test_unrolls_have_a_chunk_each_whatever_order_they_leave_in() -> None:
    for options in ({}, {"remover": selectors.Uniform()}):
        spec = plan([table(100, CARTPOLE, item=Unroll(20), max_streams=8, **options)])
        assert spec.chunk_steps == 21
        [term] = spec.terms
        assert (term.steps, term.fragmentation, term.chunks, term.shared_steps) == (2100, 1.0, 100, None)
        assert spec.stream_chunks == 8 * (1 + 2)
    assert plan([table(100, CARTPOLE, item=Unroll(20, bootstrap=()))]).chunk_steps == 20


@pytest.mark.parametrize(
    ("signature", "options"),
    [
        (CARTPOLE, {"item": Unroll(20, burn_in=2)}),
        (CARTPOLE, {"item": Unroll(20), "chunk_steps": 32}),
        ({**CARTPOLE, "observation": ArraySpec((4,), "f4", compression="lz4")}, {"item": Unroll(20)}),
        ({**CARTPOLE, "state": ArraySpec((4,), "f4", mutable=True)}, {"item": Unroll(20)}),
        (CARTPOLE, {"item": Sequence(20, period=20)}),
    ],
)
def test_unrolls_that_can_not_have_a_chunk_each_share_them_as_others_do(signature: Any, options: Any) -> None:
    spec = plan([table(1000, signature, remover=selectors.Uniform(), max_streams=8, **options)])
    assert spec.chunk_steps & (spec.chunk_steps - 1) == 0
    assert spec.terms[0].fragmentation == pytest.approx(harmonic(spec.chunk_steps))


def test_unrolls_of_several_lengths_in_one_arena_share_chunks() -> None:
    tables = [Table(name, CARTPOLE, 100, item=Unroll(n), arena="a") for name, n in (("short", 4), ("long", 20))]
    assert plan(tables).chunk_steps not in (5, 21)
    with_steps = [Table("steps", CARTPOLE, 100, arena="a"), tables[1]]
    assert plan(with_steps).chunk_steps == 21


def test_tables_of_one_arena_add_up() -> None:
    short = Table("short", ROW_400, 100, arena="both", chunk_steps=10, max_streams=5)
    long = Table("long", ROW_400, 200, arena="both", item_steps=25, max_streams=7, max_sessions=9)
    spec = plan([short, long])
    assert [term.chunks for term in spec.terms] == [10, 500]
    assert (spec.name, spec.chunk_steps, spec.history) == ("both", 10, 25)
    assert spec.stream_chunks == 7 * (3 + 2)
    assert spec.max_sessions == 1024
    assert [entry["name"] for entry in spec.native()["tables"]] == ["short", "long"]


# --- chunk_steps ----------------------------------------------------------------------------------------------------


def test_a_chunk_is_at_most_64_kib_if_the_table_is_large_enough() -> None:
    spec = plan([table(10**7, max_streams=16)])
    assert spec.chunk_steps == 128
    assert chunk_bytes(spec.columns, 128) == 128 * 400 + 128 * 8
    assert chunk_bytes(spec.columns, 256) > 64 * 1024


def test_a_row_larger_than_a_chunk_has_a_chunk_to_itself() -> None:
    assert plan([table(1000, {"x": ArraySpec((100_000,), "f4")}, max_streams=1)]).chunk_steps == 1


def test_rows_without_bytes_still_have_their_presence_word() -> None:
    spec = plan([table(10**6, {"x": ArraySpec((0,), "f4")}, max_streams=1)])
    assert spec.chunk_steps == 64 * 1024 // 8


def test_one_step_items_that_leave_at_random_have_a_chunk_each() -> None:
    spec = plan([table(10**6, remover=selectors.Uniform())])
    assert spec.chunk_steps == 1
    assert spec.terms[0].fragmentation == 1.0
    assert plan([table(10**6, remover=selectors.Uniform(), item_steps=2)]).chunk_steps > 1


def test_a_small_table_is_not_dwarfed_by_its_streams() -> None:
    # 1024 streams of 3 chunks, at most half of 100 000 steps: 16 steps a chunk, where 64 KiB would allow 128.
    assert plan([table(100_000)]).chunk_steps == 16
    assert plan([table(100)]).chunk_steps == 1
    assert plan([table(100_000, chunk_steps=128)]).chunk_steps == 128


@given(
    st.integers(1, 10**6),
    st.integers(1, 100),
    st.integers(1, 5000),
    st.sampled_from([selectors.Fifo(), selectors.Uniform()]),
    st.integers(0, 10**5),
)
def test_the_default_keeps_its_promises(
    max_size: int, item_steps: int, max_streams: int, remover: selectors.Selector, width: int
) -> None:
    signature = {"x": ArraySpec((width,), "u1")}
    spec = plan([table(max_size, signature, item_steps=item_steps, max_streams=max_streams, remover=remover)])
    steps = spec.chunk_steps
    assert steps & (steps - 1) == 0
    assert steps == 1 or chunk_bytes(spec.columns, steps) <= 64 * 1024
    assert 3 * max_streams * steps <= max(max_size * item_steps // 2, 3 * max_streams)
    assert spec.capacity_chunks * steps >= max_size * item_steps
    assert spec.num_chunks == spec.capacity_chunks + spec.stream_chunks + spec.reserve_chunks


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=130), st.integers(1, 300))
def test_blocks_of_a_chunk_are_aligned(row_bytes: list[int], steps: int) -> None:
    size = chunk_bytes(row_bytes, steps)
    rows = sum(row_bytes) * steps
    words = 8 * steps * math.ceil(len(row_bytes) / 64)
    assert size % 128 == 0
    assert rows + words <= size < rows + words + 128 * (len(row_bytes) + 1)


# --- refusals -------------------------------------------------------------------------------------------------------

OTHER = {"x": ArraySpec((100,), "f8")}
TWO = {"x": ArraySpec((), "f4"), "y": ArraySpec((), "f4")}


@pytest.mark.parametrize(
    ("tables", "text"),
    [
        ([], "plan: no tables; expected at least one"),
        ([table(1), table(2)], "arena 'replay': two tables 'replay'; expected different names"),
        (
            [table(1), Table("b", ROW_400, 1)],
            "arena 'replay': table 'b' names arena 'b'; plan one arena at a time",
        ),
        (
            [table(1), Table("b", OTHER, 1, arena="replay")],
            "arena 'replay': tables 'replay' and 'b' share their steps and so need one signature: column 'x': is",
        ),
        (
            [table(1, TWO), Table("b", dict(reversed(TWO.items())), 1, arena="replay")],
            "share their steps and so need one signature: the columns come in another order",
        ),
        (
            [table(1, chunk_steps=8), Table("b", ROW_400, 1, arena="replay", chunk_steps=4)],
            "arena 'replay': chunk_steps is 4 and 8; expected one size",
        ),
        (
            [Table(f"t{i}", ROW_400, 1, arena="replay") for i in range(65)],
            "arena 'replay': 65 tables share it; expected at most 64: give some another arena=",
        ),
        (
            [table(2**30, {"frame": ArraySpec((2**20,), "uint8")})],
            "arena 'replay': needs 1024.1 TiB for its steps; an arena has at most 256.0 TiB: lower max_size",
        ),
        (
            [table(2**31 - 2, item_steps=10, chunk_steps=1)],
            "chunks of 1 steps; at most 2147483647 can be numbered: lower max_size or item_steps, or raise chunk_steps",
        ),
        (
            [table(10**9, {"observation": ArraySpec((), "int8")}, item=NStep(80), chunk_steps=8)],
            "or raise chunk_steps; the windows of table 'replay' overlap: capacity_steps=1000000081, and one",
        ),
    ],
)
def test_tables_that_cannot_be_together_are_refused(tables: list[Table], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        plan(tables)


@pytest.mark.parametrize(
    ("kind", "limit", "change"),
    [
        ("columns", MAX_COLUMNS, lambda n: {"columns": [(4, 0, 0)] * n}),
        ("tables", MAX_TABLES, lambda n: {"tables": plan([table(1)]).native()["tables"] * n}),
        ("sessions", INTS["max_sessions"][1], lambda n: {"max_sessions": n}),
    ],
)
def test_the_limits_are_those_of_the_core(kind: str, limit: int, change: Callable[[int], dict[str, Any]]) -> None:
    native = plan([table(1)]).native()
    _core.plan_arena({**native, **change(limit)})
    with pytest.raises(ValueError, match=kind):
        _core.plan_arena({**native, **change(limit + 1)})


# --- for the native code --------------------------------------------------------------------------------------------


def test_the_native_form_has_all_that_the_segments_need() -> None:
    made = Table(
        "replay", CARTPOLE, 50, sampler=selectors.Prioritized(0.6), item_steps=5, chunk_steps=4, max_sessions=8
    )
    native = plan([made]).native()
    assert unpack_specs(native.pop("specs")) == (made,)
    assert native == {
        "columns": [(16, 0, 0), (8, 0, 0), (4, 0, 0)],
        "num_blocks": 0,
        "block_bytes": 0,
        "chunk_steps": 4,
        "num_chunks": 63 + 1024 * 4 + 16,
        "max_streams": 1024,
        "max_sessions": 8,
        "tables": [
            {
                "name": "replay",
                "max_size": 50,
                "sampler": 3,
                "sampler_exponent": 0.6,
                "remover": 0,
                "remover_exponent": 0.0,
                "max_times_sampled": 0,
                **made.rate_limiter.numbers(),
                "on_full": 0,
                "item_steps": 5,
                "shard": 0,
            }
        ],
    }


@pytest.mark.parametrize(
    ("times", "on_full", "code"),
    [(0, None, 0), (0, "wait", 1), (0, "error", 2), (1, None, 1), (1, "wait", 1), (1, "error", 2)],
)
def test_a_consuming_table_waits_unless_told_otherwise(times: int, on_full: str | None, code: int) -> None:
    native = plan([table(10, max_times_sampled=times, on_full=on_full)]).native()
    assert native["tables"][0]["on_full"] == code

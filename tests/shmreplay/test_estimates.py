"""Estimate: the terms of an arena, and the text that shows them."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from shmreplay import _core, selectors
from shmreplay.columns.specs import ArraySpec
from shmreplay.estimates import estimate, estimate_of
from shmreplay.rules.windows import Sequence
from shmreplay.tables.plan import chunk_bytes, plan
from shmreplay.tables.table import Table

CARTPOLE = {"observation": ArraySpec((4,), "f4"), "action": ArraySpec((), "i8"), "reward": ArraySpec((), "f4")}
ROW_400 = {"x": ArraySpec((100,), "f4")}
SIZES = {"index_bytes": 4096 * 1000, "data_bytes": 4096 * 20_000, "chunk_bytes": 52_224, "item_index_bytes": 120}


def steps_of_400(max_size: int, **options: Any) -> Table:
    return Table("replay", ROW_400, max_size, **options)


def sizes_of(native: dict[str, Any]) -> dict[str, int]:
    """An index in which an item takes 120 B, a chunk 64, a stream 512 and a session 1024."""
    items = sum(entry["max_size"] for entry in native["tables"])
    records = 120 * items + 64 * native["num_chunks"] + 512 * native["max_streams"] + 1024 * native["max_sessions"]
    return {**SIZES, "index_bytes": 2**20 + records}


def test_an_estimate_shares_all_bytes_out_among_the_items() -> None:
    spec = plan([steps_of_400(100_000, max_streams=64, chunk_steps=128)])
    result = estimate_of(spec, lambda native: SIZES)
    assert result.total_bytes == 4096 * 21_000
    assert result.bytes_per_item == math.ceil(4096 * 21_000 / 100_000)
    assert (result.row_bytes, result.bytes_per_step) == (400, 408)
    assert (result.num_chunks, result.stream_chunks, result.reserve_chunks) == (782 + 192 + 97, 192, 97)


def test_an_estimate_reads_as_a_table_of_its_terms() -> None:
    spec = plan([steps_of_400(6400, chunk_steps=64, max_streams=10, remover=selectors.Uniform())])
    lines = [re.sub(" +", " ", line.strip()) for line in str(estimate_of(spec, sizes_of)).splitlines()]
    assert lines == [
        "arena 'replay', 64 steps a chunk",
        "table 'replay' 6400 items: 6400 steps x 4.74 / 64 475 chunks 23.7 MiB",
        "open streams 10 streams x (ceil(1 / 64) + 2) 30 chunks 1.5 MiB",
        "reserve reads in flight 59 chunks 2.9 MiB",
        "data 52224 B a chunk 564 chunks 78.1 MiB",
        "index, items 120 B an item 6400 items 749.9 KiB",
        "index, chunks 564 chunks 35.2 KiB",
        "index, streams 10 streams 4.5 KiB",
        "index, sessions 1024 sessions 1023.0 KiB",
        "index, the rest lock, undo log, patterns 1.0 MiB",
        "index 2.8 MiB",
        "total 80.9 MiB",
        "in huge pages where there are some (shmreplay doctor) 80.0 MiB",
        "a step 400 B as given, in its chunk 816 B",
        "an item its share of the total 12.9 KiB",
        "a key given again after 8,796,093,022,208 inserts at the earliest: 102 days at a million inserts a second",
    ]


@pytest.mark.parametrize(
    ("max_size", "bits", "said"),
    [(2047, 45, "407 days"), (2048, 44, "204 days"), (1_000_000, 36, "19 hours"), (2**25, 30, "18 minutes")],
)
def test_an_estimate_says_when_a_key_can_be_given_again(max_size: int, bits: int, said: str) -> None:
    found = estimate_of(plan([steps_of_400(max_size)]), lambda native: SIZES)
    assert found.inserts_per_key == 2**bits
    assert f"at the earliest: {said} at a million inserts a second" in str(found)


@pytest.mark.parametrize(("period", "said"), [(40, True), (80, False)])
def test_windows_that_overlap_are_told_how_many_steps_hold_them_all(period: int, said: bool) -> None:
    spec = plan([steps_of_400(1000, item=Sequence(80, period))])
    text = str(estimate_of(spec, lambda native: SIZES))
    assert ("its windows overlap: capacity_steps=40080, and one an episode, holds all" in text) == said


def test_sizes_below_a_kibibyte_are_given_in_bytes() -> None:
    spec = plan([steps_of_400(10)])
    text = str(estimate_of(spec, lambda native: {**SIZES, "index_bytes": 512}))
    assert [line.split()[-2:] for line in text.splitlines() if line.startswith("  index  ")] == [["512", "B"]]


def test_the_terms_of_an_index_are_all_of_it() -> None:
    short = Table("short", CARTPOLE, 5000, arena="both", sampler=selectors.Prioritized(0.6), max_streams=300)
    found = estimate([short, Table("long", CARTPOLE, 200, arena="both", item_steps=25, remover=selectors.MaxHeap())])
    terms = {term.name: term for term in found.index_terms}
    assert {name: term.count for name, term in terms.items()} == {
        "items": 5200, "chunks": found.num_chunks, "streams": 1024, "sessions": 1024, "the rest": 0
    }  # fmt: skip
    assert sum(term.num_bytes for term in terms.values()) == found.index_bytes
    assert all(term.num_bytes > 0 for term in terms.values())
    fewer = plan([Table("short", CARTPOLE, 5000, arena="both", sampler=selectors.Prioritized(0.6), max_streams=1)])
    assert _core.plan_arena({**fewer.native(), "max_streams": 10_001})["index_bytes"] == pytest.approx(
        _core.plan_arena(fewer.native())["index_bytes"] + 10_000 * terms["streams"].num_bytes / 1023, abs=2**16
    )


def test_an_estimate_takes_its_bytes_from_the_native_code() -> None:
    tables = [Table("replay", CARTPOLE, 10_000)]
    spec = plan(tables)
    sizes = _core.plan_arena(spec.native())
    assert estimate(tables) == estimate_of(spec, _core.plan_arena)
    assert sizes["chunk_bytes"] == chunk_bytes(spec.columns, spec.chunk_steps)
    assert sizes["data_bytes"] >= spec.num_chunks * sizes["chunk_bytes"]

"""Tables with shards: what may have them, and what each shard gets."""

import math
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.estimates import estimate, together
from shmreplay.tables.packed_specs import pack_specs, unpack_specs
from shmreplay.tables.plan import by_arena
from shmreplay.tables.shards import limiter_part, part_of
from shmreplay.tables.table_config import tables_of

COLUMNS = {"x": sr.ArraySpec((3,), "float32")}


def table(max_size: int = 1000, shards: int = 4, **options: Any) -> sr.Table:
    return sr.Table("replay", options.pop("signature", COLUMNS), max_size, shards=shards, **options)


@pytest.mark.parametrize("shards", [2, 3, 7])
def test_parts_add_up_and_differ_by_one_at_most(shards: int) -> None:
    for total in (shards, 10, 1001):
        parts = [part_of(total, shards, number) for number in range(shards)]
        assert sum(parts) == total
        assert max(parts) - min(parts) <= 1


def test_each_shard_is_a_table_in_an_arena_of_its_own() -> None:
    whole = table(1001, 4, max_streams=10, capacity_steps=2003, rate_limiter=sr.rate_limiters.MinSize(6))
    groups = by_arena([whole])
    assert list(groups) == ["replay~0", "replay~1", "replay~2", "replay~3"]
    parts = [group[0] for group in groups.values()]
    assert [part.name for part in parts] == list(groups)
    assert [part.max_size for part in parts] == [251, 250, 250, 250]
    assert [part.capacity_steps for part in parts] == [501, 501, 501, 500]
    assert [part.max_streams for part in parts] == [3, 3, 2, 2]
    assert [part.rate_limiter.min_size_to_sample for part in parts] == [2, 2, 1, 1]
    assert [part.shard for part in parts] == [0, 1, 2, 3]
    assert all(part.whole is whole and part.owner is whole and part.parts == (part,) for part in parts)
    assert table(shards=1).parts == (table(shards=1),)


def test_a_shard_travels_as_its_table_and_its_number() -> None:
    whole = table(item=sr.Sequence(4), sampler=sr.selectors.Prioritized(0.6))
    part = whole.parts[2]
    found = unpack_specs(pack_specs([part]))[0]
    assert found == part
    assert found.whole == whole
    assert found.shard == 2
    assert found.difference(part) == []
    assert found.difference(table(999).parts[2])[0] == "max_size: is 1000, asked for 999"
    assert "shards: is 4, asked for 1" in found.difference(table(shards=1))
    assert sr.Table.from_wire(whole.to_wire()) == whole
    old = whole.to_wire()
    del old["shards"]  # as saved by a version without
    assert sr.Table.from_wire(old).shards == 1


@pytest.mark.parametrize("shards", [2, 4, 5])
@pytest.mark.parametrize(
    "limiter",
    [
        sr.rate_limiters.SampleToInsertRatio(8, 99, 99),
        sr.rate_limiters.SampleToInsertRatio(0.5, 7, (-30, 30)),
        sr.rate_limiters.RateLimiter(2, 10, -math.inf, 100),
    ],
)
def test_bounds_of_the_shards_add_up_to_the_limiters(limiter: sr.rate_limiters.RateLimiter, shards: int) -> None:
    parts = [limiter_part(limiter, shards, number) for number in range(shards)]
    assert sum(part.min_size_to_sample for part in parts) == limiter.min_size_to_sample
    assert sum(part.max_diff for part in parts) == pytest.approx(limiter.max_diff)
    if limiter.min_diff > -1e300:
        assert sum(part.min_diff for part in parts) == pytest.approx(limiter.min_diff)
    else:
        assert {part.min_diff for part in parts} == {limiter.min_diff}
    for part in parts:  # each can begin: what it needs to sample is within what it may insert
        start = part.min_size_to_sample * part.samples_per_insert
        assert part.min_diff <= start <= part.max_diff


def test_an_item_that_names_its_table_is_that_of_every_shard() -> None:
    parts = table(item=sr.Window({"x": (-2, 1)}, table="replay")).parts
    assert all(part.item is not None and part.item.table is None for part in parts)
    assert unpack_specs(pack_specs(parts[:1]))[0] == parts[0]


REFUSED: dict[str, dict[str, Any]] = {
    "sampler is Fifo": {"sampler": sr.selectors.Fifo()},
    "remover is Lifo": {"remover": sr.selectors.Lifo()},
    "max_times_sampled is 1": {"max_times_sampled": 1},
    "arena is 'steps'": {"arena": "steps"},
    "max_size is 3": {"max_size": 3},
    "max_streams is 2": {"max_streams": 2},
    "columns of a fixed shape": {"signature": {"x": sr.ArraySpec((3,), "uint8", compression="lz4")}},
    "or no signature": {"signature": None},
    "item_steps is 5": {"item_steps": 5},
    "capacity_steps is 15": {"capacity_steps": 15, "item": sr.Sequence(4)},
    "a queue or stack": {"rate_limiter": sr.rate_limiters.Queue(8)},
    "min_size_to_sample is 3": {"rate_limiter": sr.rate_limiters.SampleToInsertRatio(1, 3, 100)},
    "which is 2.5 for each": {"rate_limiter": sr.rate_limiters.SampleToInsertRatio(4, 100, 5)},
    "shards is 129": {"shards": 129},
    "shards is 0": {"shards": 0},
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_divided_is_refused_when_it_is_written_down(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        table(**REFUSED[text])


def test_a_file_may_declare_shards() -> None:
    declared = {"tables": {"replay": {"max_size": 8, "shards": 2, "columns": {"x": "float32"}}}}
    assert tables_of(declared, "a file")[0].shards == 2
    declared["tables"]["replay"]["max_times_sampled"] = 1
    with pytest.raises(ValueError, match=r"a file: tables.replay: max_times_sampled is 1 with shards=2"):
        tables_of(declared, "a file")


def test_the_estimate_of_the_shards_adds_up() -> None:
    parts = [estimate([part]) for part in table(1001).parts]
    whole = together("replay", parts)
    assert whole.total_bytes == sum(part.total_bytes for part in parts)
    assert sum(term.max_size for term in whole.terms) == 1001
    assert sum(term.num_bytes for term in whole.index_terms) == whole.index_bytes
    assert str(whole)


def test_arrays_of_numpy_as_a_signature_may_have_shards() -> None:
    assert table(signature={"x": np.zeros(2)}).parts[1].sig.leaves[0].spec.shape == (2,)

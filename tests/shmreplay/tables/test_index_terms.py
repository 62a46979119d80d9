"""What an index is divided into: what each kind of record adds, and a rest that makes the sum whole."""

from typing import Any

from shmreplay.tables.index_terms import index_terms


def plan(native: dict[str, Any]) -> dict[str, int]:
    """An index of 1000 bytes besides 10 an item, 200 a chunk, 30 a stream, 7 a session and 2 a block."""
    items = sum(table["max_size"] for table in native["tables"])
    records = 10 * items + 200 * native["num_chunks"] + 30 * native["max_streams"] + 7 * native["max_sessions"]
    return {"index_bytes": 1000 + records + 2 * native["num_blocks"]}


NATIVE = {"tables": [{"max_size": 50}, {"max_size": 3}], "num_chunks": 9, "max_streams": 4, "max_sessions": 8}


def test_each_kind_takes_what_it_adds_and_the_rest_makes_the_sum_whole() -> None:
    native = {**NATIVE, "num_blocks": 6}
    terms = index_terms(native, plan)
    assert [(term.name, term.count) for term in terms] == [
        ("items", 53),
        ("chunks", 9),
        ("streams", 4),
        ("sessions", 8),
        ("blocks", 6),
        ("the rest", 0),
    ]
    # A single record of each kind, one a table for items, counts as part of the rest.
    assert [term.num_bytes for term in terms[:-1]] == [51 * 10, 8 * 200, 3 * 30, 7 * 7, 5 * 2]
    assert sum(term.num_bytes for term in terms) == plan(native)["index_bytes"]


def test_blocks_are_named_only_where_there_is_a_heap() -> None:
    terms = index_terms({**NATIVE, "num_blocks": 0}, plan)
    assert "blocks" not in {term.name for term in terms}

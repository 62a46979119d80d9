"""Whether a pair of segments is what this version of shmreplay maps, by the header of its index."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from shmreplay import _core
from shmreplay.segments.segment import SegmentStore

Fact = tuple[str, object, object]  # what it is called, what was found, what is wanted


def layout_facts(store: SegmentStore, header: dict[str, Any], index_fd: int, data_fd: int) -> list[Fact]:
    """What a mapping of the segments relies on: with less, it would end this process, or say nothing that is true.

    `header`: of `_core.inspect_header(index_fd)`, with its magic in place.
    """
    return [
        ("layout version", header["layout_version"], _core.LAYOUT_VERSION),
        ("layout hash", header["layout_hash"], _core.layout_hash()),
        ("index size", os.fstat(index_fd).st_size, store.round_up(header["index_bytes"])),
        ("data size", os.fstat(data_fd).st_size, store.round_up(header["data_bytes"])),
    ]


def first_misfit(facts: Iterable[Fact]) -> str | None:
    """The first of them that is not as wanted, in words; None if all are."""
    for what, found, wanted in facts:
        if found != wanted:
            return f"its {what} is {found}, expected {wanted}"
    return None

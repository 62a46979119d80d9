"""Checks by the header of the index whether this version of shmreplay can map a pair of segments."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from shmreplay import _core
from shmreplay.segments.segment import SegmentStore

Fact = tuple[str, object, object]  # name, value found, value expected


def layout_facts(store: SegmentStore, header: dict[str, Any], index_fd: int, data_fd: int) -> list[Fact]:
    """The facts that a mapping relies on. Without them, reading it could crash this process or give wrong data.

    Args:
        header: from `_core.inspect_header(index_fd)`; its magic is right.
    """
    return [
        ("layout version", header["layout_version"], _core.LAYOUT_VERSION),
        ("layout hash", header["layout_hash"], _core.layout_hash()),
        ("index size", os.fstat(index_fd).st_size, store.round_up(header["index_bytes"])),
        ("data size", os.fstat(data_fd).st_size, store.round_up(header["data_bytes"])),
    ]


def first_misfit(facts: Iterable[Fact]) -> str | None:
    """A text on the first fact that is not as expected; None if all are."""
    for what, found, wanted in facts:
        if found != wanted:
            return f"its {what} is {found}, expected {wanted}"
    return None

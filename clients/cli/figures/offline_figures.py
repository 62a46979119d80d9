"""Figures of arenas, read from shared memory without a daemon."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from shmreplay import _core
from shmreplay.errors import EXPECTED_ERRORS, SegmentFailed
from shmreplay.figures.arena_figures import arena_figures
from shmreplay.segments.segment import SegmentStore, segment_names
from shmreplay.segments.segment_fit import first_misfit, layout_facts
from shmreplay.tables.packed_specs import unpack_specs


def read_arenas(store: SegmentStore, instance: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The figures of every arena of an instance, as in `client.stats()["arenas"]`; and why the others are unreadable.

    It takes no lock and writes nothing, so the arenas may be in use.
    """
    found: dict[str, Any] = {}
    unreadable: dict[str, str] = {}
    for arena in sorted(store.arenas(instance)):
        try:
            found[arena] = _read(store, instance, arena)
        except EXPECTED_ERRORS as error:
            unreadable[arena] = str(error)
    return found, unreadable


def _read(store: SegmentStore, instance: str, arena: str) -> dict[str, Any]:
    names = segment_names(instance, arena)
    with contextlib.ExitStack() as opened:
        index_fd = store.open(names.index)
        opened.callback(os.close, index_fd)
        data_fd = store.open(names.data)
        opened.callback(os.close, data_fd)
        _check(store, index_fd, data_fd)
        native = _core.Arena(index_fd, data_fd)
        opened.callback(native.close)
        return _figures(native, os.fstat(index_fd).st_size, os.fstat(data_fd).st_size)


def _check(store: SegmentStore, index_fd: int, data_fd: int) -> None:
    """Raises SegmentFailed for segments that cannot be mapped safely."""
    header = _core.inspect_header(index_fd)
    if not header["magic_ok"] or header["ready"] != 1:
        raise SegmentFailed("its index has no header of shmreplay, or was never finished")
    if misfit := first_misfit(layout_facts(store, header, index_fd, data_fd)):
        raise SegmentFailed(misfit)


def _figures(native: _core.Arena, index_bytes: int, data_bytes: int) -> dict[str, Any]:
    return {
        "index_bytes": index_bytes,
        "data_bytes": data_bytes,
        "failure": None,
        "is_unlinked": False,
        **arena_figures(native, [table.name for table in unpack_specs(native.specs)]),
    }

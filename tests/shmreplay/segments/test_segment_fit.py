"""Whether a pair of segments fits: every fact is looked at, and the first that is wrong is named."""

import os
import pathlib
from typing import Any

import pytest

from shmreplay import _core
from shmreplay.segments.segment import SegmentStore
from shmreplay.segments.segment_fit import first_misfit, layout_facts


@pytest.fixture
def header() -> dict[str, Any]:
    return {
        "layout_version": _core.LAYOUT_VERSION,
        "layout_hash": _core.layout_hash(),
        "index_bytes": 5000,
        "data_bytes": 9000,
    }


def misfit(folder: pathlib.Path, header: dict[str, Any], index_bytes: int, data_bytes: int) -> str | None:
    """What does not fit of two files of those sizes."""
    fds = [os.open(folder / name, os.O_RDWR | os.O_CREAT) for name in ("index", "data")]
    try:
        os.truncate(fds[0], index_bytes)
        os.truncate(fds[1], data_bytes)
        return first_misfit(layout_facts(SegmentStore(str(folder)), header, *fds))
    finally:
        for fd in fds:
            os.close(fd)


def test_segments_of_this_version_and_of_whole_pages_fit(tmp_path: pathlib.Path, header: dict[str, Any]) -> None:
    assert misfit(tmp_path, header, 8192, 12288) is None


def test_the_first_fact_that_is_wrong_is_named(tmp_path: pathlib.Path, header: dict[str, Any]) -> None:
    assert misfit(tmp_path, header, 4096, 4096) == "its index size is 4096, expected 8192"
    assert misfit(tmp_path, header, 8192, 4096) == "its data size is 4096, expected 12288"
    other = {**header, "layout_version": 7, "layout_hash": 1}
    assert misfit(tmp_path, other, 4096, 4096) == f"its layout version is 7, expected {_core.LAYOUT_VERSION}"
    other = {**header, "layout_hash": 1}
    assert misfit(tmp_path, other, 8192, 12288) == f"its layout hash is 1, expected {_core.layout_hash()}"

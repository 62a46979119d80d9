"""Limits on what tables take: more is refused, and the error names the limit and its setting."""

import pytest

import shmreplay as sr
from shmreplay.daemon.config.limits import Limits
from shmreplay.errors import ShmReplayError


def table(max_streams: int) -> sr.Table:
    return sr.Table("t", {"x": sr.ArraySpec((), "int64")}, 10, max_streams=max_streams)


def test_streams_are_bounded_table_by_table() -> None:
    limits = Limits(streams=8)
    limits.check_streams([table(8), table(1)])
    with pytest.raises(ValueError, match=r"table 't': max_streams is 9; .*at most 8 \(limits\.streams\)"):
        limits.check_streams([table(1), table(9)])


def test_memory_is_bounded_for_all_tables_together() -> None:
    limits = Limits(memory_bytes=3 * 2**20)
    limits.check_memory("table 't'", 2**20, 2 * 2**20)
    with pytest.raises(ShmReplayError, match=r"^table 't' needs 1\.0 MiB: 2\.0 MiB are in use, .*\(limits\.memory\)"):
        limits.check_memory("table 't'", 2**20, 2 * 2**20 + 1)
    with pytest.raises(ShmReplayError) as raised:
        limits.check_memory("table 't'", 4 * 2**20, 0)
    assert "taken" not in str(raised.value), "nothing is"


def test_without_bounds_anything_goes() -> None:
    Limits().check_streams([table(10_000)])
    Limits().check_memory("table 't'", 2**60, 2**60)

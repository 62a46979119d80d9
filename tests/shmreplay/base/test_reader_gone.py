"""A BrokenPipeError about something else than what is printed is an error as any other."""

from __future__ import annotations

import pytest

from shmreplay.base.reader_gone import outputs_without_reader, until_reader_goes


def test_a_pipe_that_is_not_an_output_is_no_reason_to_be_quiet() -> None:
    def run() -> int:
        raise BrokenPipeError("a socket")

    assert outputs_without_reader() == []
    with pytest.raises(BrokenPipeError, match="a socket"):
        until_reader_goes(run)


def test_where_somebody_reads_the_code_is_passed_on() -> None:
    assert until_reader_goes(lambda: 3) == 3

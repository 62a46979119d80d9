"""Processes as text."""

from shmreplay.base.processes import describe_process


def test_a_process_is_described_by_its_id_and_its_name_where_that_is_known() -> None:
    assert describe_process(12, "actor") == "process 12 ('actor')"
    assert describe_process(12, "") == "process 12"


def test_what_a_process_calls_itself_cannot_reach_the_terminal_as_it_is() -> None:
    assert describe_process(12, "a\x1b[2Jb\n") == "process 12 ('a\\x1b[2Jb\\n')"

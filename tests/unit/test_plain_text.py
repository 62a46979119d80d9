"""Text of others on a terminal."""

from shmreplay.clients.cli.terminal.printing import can_show, plain


def test_what_a_process_calls_itself_cannot_move_the_cursor() -> None:
    assert plain("a\x1b[2J\nb\u202e漢e\u0301é") == "a?[2J?b??e?é"


def test_characters_are_shown_where_the_encoding_has_all_of_them() -> None:
    assert can_show("█░", "utf-8")
    assert can_show("█░", "cp437")
    assert not can_show("█░", "latin-1")
    assert not can_show("█", None)
    assert not can_show("a", "no such encoding")

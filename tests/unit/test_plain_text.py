"""Text of others on a terminal."""

from shmreplay.clients.cli.plain_text import plain


def test_what_a_process_calls_itself_cannot_move_the_cursor() -> None:
    assert plain("a\x1b[2J\nb\u202e漢e\u0301é") == "a?[2J?b??e?é"

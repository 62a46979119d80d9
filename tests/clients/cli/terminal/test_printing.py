"""What commands print: counts, and names that other processes chose."""

import pytest

from shmreplay.clients.cli.terminal.printing import can_show, counted, plain


@pytest.mark.parametrize(
    ("number", "words", "text"),
    [
        (1, ("writer",), "1 writer"),
        (0, ("writer",), "0 writers"),
        (12345, ("item",), "12,345 items"),
        (2, ("process", "processes"), "2 processes"),
        (1, ("process", "processes"), "1 process"),
    ],
)
def test_one_is_singular_and_all_else_plural(number: int, words: tuple[str, ...], text: str) -> None:
    assert counted(number, *words) == text


def test_what_a_process_calls_itself_cannot_move_the_cursor() -> None:
    assert plain("a\x1b[2J\nb\u202e漢e\u0301é") == "a?[2J?b??e?é"


def test_characters_are_shown_where_the_encoding_has_all_of_them() -> None:
    assert can_show("█░", "utf-8")
    assert can_show("█░", "cp437")
    assert not can_show("█░", "latin-1")
    assert not can_show("█", None)
    assert not can_show("a", "no such encoding")

"""Numbers with what they count."""

import pytest

from shmreplay.clients.cli.terminal.counted import counted


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

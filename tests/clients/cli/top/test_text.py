"""Short numbers, bars and cells of shmreplay top."""

import math

import pytest

from shmreplay.clients.cli.top.text import (
    ASCII_MARKS,
    Marks,
    bar,
    clip,
    clip_line,
    duration,
    marks_for,
    scale,
    short,
    sparkline,
)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (None, "-"), (0, "0"), (0.25, "0.25"), (3.0, "3"), (9.996, "10.0"), (12.34, "12.3"), (123.4, "123"),
        (999.4, "999"), (999.6, "1000"), (9999, "9999"), (9999.4, "9999"), (9999.6, "10.0k"), (12345, "12.3k"),
        (999_400, "999k"), (999_600, "1.00M"), (1.5e9, "1.50G"), (-160, "-160"), (-12345, "-12.3k"),
        (math.inf, "inf"), (-math.inf, "-inf"), (1.5e19, "2e+04"),
    ],
    ids=str,
)  # fmt: skip
def test_a_number_is_short(number: float | None, text: str) -> None:
    assert short(number) == text


def test_every_size_of_number_fits_into_six_cells() -> None:
    for exponent in range(-3, 18):
        for factor in (1, 1.5, 9.994, 9.996, 9.9999):
            for sign in (1, -1):
                assert len(short(sign * factor * 10.0**exponent)) <= 6


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0.4, "0s"), (119.4, "119s"), (120, "2m"), (7200, "2h"), (3 * 86400, "3d")],
    ids=str,
)
def test_a_duration_is_short(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_a_bar_is_full_or_empty_only_at_the_ends() -> None:
    assert [bar(fraction, 4, ASCII_MARKS) for fraction in (-1, 0, 0.001, 0.5, 0.999, 1, 7)] == [
        "....", "....", "#...", "##..", "###.", "####", "####",
    ]  # fmt: skip


def test_a_sparkline_shows_the_last_values_from_0_to_the_largest() -> None:
    assert sparkline([9.0, 0.0, None, 7.0, 3.5], 4, Marks()) == "▁ █▅"
    assert sparkline([1.0], 3, Marks()) == "  █"
    assert sparkline([0.0, 0.0], 2, Marks()) == "▁▁"
    assert sparkline([], 3, ASCII_MARKS) == "   "
    assert sparkline([1.0], 0, ASCII_MARKS) == ""


def test_a_scale_shows_where_a_value_is() -> None:
    marks = ASCII_MARKS
    assert [scale(0, 10, value, 7, marks) for value in (-5, 0, 5, 10, 99)] == [
        "|o----|", "|o----|", "|--o--|", "|----o|", "|----o|",
    ]  # fmt: skip
    assert scale(0, math.inf, 5, 7, marks) == " " * 7
    assert scale(5, 5, 5, 5, marks) == "|-o-|"


def test_a_cell_has_its_width() -> None:
    assert clip("abc", 5) == "abc  "
    assert clip("abc", 5, to_right=True) == "  abc"
    assert clip("abcdef", 5) == "abcd~"
    assert clip("abc", 0) == ""


def test_a_line_has_the_width_of_the_screen() -> None:
    assert clip_line([("abc", "bold"), ("def", "")], 4) == [("abc", "bold"), ("d", "")]
    assert clip_line([("abc", "bold")], 5) == [("abc", "bold"), ("  ", "")]


def test_a_terminal_without_utf_8_gets_plain_characters() -> None:
    assert marks_for("UTF-8") == Marks()
    assert marks_for("utf8") == Marks()
    assert marks_for("ANSI_X3.4-1968") == ASCII_MARKS
    assert marks_for(None) == ASCII_MARKS

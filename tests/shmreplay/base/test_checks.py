"""Checks of single arguments."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import numpy as np
import pytest

from shmreplay.base.checks import check_choice, check_float, check_int, check_path, no_such_table, wire_field


@pytest.mark.parametrize("value", [1, 10, np.int64(5), np.uint8(7)])
def test_integers_within_range_become_ints(value: Any) -> None:
    checked = check_int("table 'a'", "max_size", value, 1, 10)
    assert type(checked) is int
    assert checked == value


@pytest.mark.parametrize("value", [True, np.bool_(True), 3.0, "3", None, np.float64(3)])
def test_what_is_no_integer_is_a_type_error(value: Any) -> None:
    text = f"table 'a': max_size is {value!r}; expected an integer in 1..10"
    with pytest.raises(TypeError, match=re.escape(text)):
        check_int("table 'a'", "max_size", value, 1, 10)


@pytest.mark.parametrize("value", [0, 11, -1])
def test_an_integer_out_of_range_is_named_with_the_range(value: int) -> None:
    with pytest.raises(ValueError, match=re.escape(f"table 'a': max_size is {value}; expected an integer in 1..10")):
        check_int("table 'a'", "max_size", value, 1, 10)


@pytest.mark.parametrize("value", [1, 0.5, np.float32(0.5), float("inf")])
def test_numbers_become_floats(value: Any) -> None:
    checked = check_float("Queue", "size", value)
    assert type(checked) is float
    assert checked == value


@pytest.mark.parametrize("value", [True, np.bool_(True), "0.5", None, [1.0]])
def test_what_is_no_number_is_a_type_error(value: Any) -> None:
    with pytest.raises(TypeError, match=re.escape(f"Queue: size is {value!r}; expected a number")):
        check_float("Queue", "size", value)


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="Queue: size is nan; expected a number"):
        check_float("Queue", "size", float("nan"))


def test_an_int_that_no_float_holds_is_refused() -> None:
    with pytest.raises(ValueError, match="Queue: size has more digits than a float; expected a number"):
        check_float("Queue", "size", 10**400)


def test_a_choice_is_one_of_those_offered() -> None:
    check_choice("table 'a'", "on_full", None, (None, "wait"))
    check_choice("table 'a'", "on_full", "wait", (None, "wait"))
    for value in ("no", 0, False):
        with pytest.raises(ValueError, match=f"table 'a': on_full is {value!r}; expected one of None, 'wait'"):
            check_choice("table 'a'", "on_full", value, (None, "wait"))


@pytest.mark.parametrize("wire", [{}, [], None, "kind", 3])
def test_a_wire_form_without_the_field_is_malformed(wire: Any) -> None:
    with pytest.raises(ValueError, match="selector: malformed, expected a map with 'kind', got"):
        wire_field("selector", wire, "kind")


def test_a_wire_field_is_found() -> None:
    assert wire_field("selector", {"kind": "Fifo"}, "kind") == "Fifo"


def test_a_path_is_returned_as_a_str() -> None:
    for path in ("/a/b", b"/a/b", pathlib.Path("/a/b")):
        assert check_path("Server", "restore", path) == "/a/b"


@pytest.mark.parametrize("value", [True, 3, None, ["/a"]])
def test_what_is_no_path_is_refused_with_its_arguments_name(value: object) -> None:
    text = re.escape(f"Server: restore is {value!r}; expected the path of a file or a directory")
    with pytest.raises(TypeError, match=text):
        check_path("Server", "restore", value)


def test_an_unknown_table_is_answered_with_those_there_are_and_the_one_meant() -> None:
    assert str(no_such_table("x", [])) == "there is no table 'x'; there are: none"
    text = "there is no table 'repaly'; there are: other, replay (did you mean 'replay'?)"
    assert str(no_such_table("repaly", ["replay", "other"])) == text

"""Patterns and their conditions as they are written down."""

import re
from typing import Any

import msgpack
import pytest

import shmreplay as sr
from shmreplay.columns.signature import Signature
from shmreplay.rules.item_rules import rule_from_wire, rule_to_wire
from shmreplay.rules.patterns import Condition, Pattern, Reference

SIGNATURE = Signature.from_tree(
    {"a": sr.ArraySpec((), "int64"), "b": {"c": sr.ArraySpec((2,), "float32"), "d": sr.ArraySpec((), "bool")}}, "replay"
)
when = sr.when


@pytest.mark.parametrize(
    ("index", "error", "text"),
    [
        (0, ValueError, "pattern: output 'x': a[0]; steps count from the newest, -1: expected a negative one"),
        (slice(0, None), ValueError, "pattern: output 'x': a[0:None:None]; expected a negative start"),
        (slice(3, 5), ValueError, "a[3:5:None]; expected a negative start: steps count from the newest, -1"),
        (slice(None, -1), ValueError, "a[None:-1:None]; expected a negative start"),
        (slice(-3, 1), ValueError, "a[-3:1:None]; expected a negative stop after the start, or none"),
        (slice(-3, 0), ValueError, "a[-3:0:None]; expected a negative stop after the start, or none"),
        (slice(-2, -2), ValueError, "a[-2:-2:None]; expected a negative stop after the start, or none"),
        (slice(-3, None, 0), ValueError, "a[-3:None:0]; expected a positive step"),
        (slice(-3, None, -1), ValueError, "a[-3:None:-1]; expected a positive step"),
        ([-1], TypeError, "a[[-1]]; expected a negative int or a slice"),
        (True, TypeError, "a[True]; expected a negative int or a slice"),
    ],
)
def test_a_wrong_selection_is_refused_with_its_column(index: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        Pattern({"x": ("a", index)})
    with pytest.raises(error, match=re.escape(text)):
        Pattern(lambda step: {"x": step["a"][index]})


@pytest.mark.parametrize("select", [{}, lambda step: {}, lambda step: step["a"][-1], [("a", -1)]])
def test_a_pattern_without_outputs_is_refused(select: Any) -> None:
    with pytest.raises(ValueError, match="pattern: select gives no outputs; expected a dict such as"):
        Pattern(select)


@pytest.mark.parametrize("value", ["a", ("a",), (1, 2), Reference("a")])
def test_an_output_that_selects_nothing_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match=re.escape("expected step['column'][-3:], or ('column', index)")):
        Pattern({"x": value})


def test_a_condition_that_was_not_made_with_when_is_refused() -> None:
    with pytest.raises(TypeError, match=r"pattern: condition True; expected one made with sr\.when"):
        Pattern({"x": ("a", -1)}, conditions=[True])  # type: ignore[list-item]


def test_conditions_that_python_would_combine_are_refused() -> None:
    text = re.escape("`a < x < b` do not combine them; give both in conditions=[...]")
    combinations: list[Any] = [
        lambda: when.step_index > 2 and when.step_index < 5,
        lambda: 2 < when.step_index < 5,
        lambda: not when.end_of_episode,
    ]
    for combine in combinations:
        with pytest.raises(TypeError, match=text):
            combine()


def test_a_bad_modulus_and_a_negative_remainder_are_refused() -> None:
    with pytest.raises(ValueError, match="when: modulus is 0; expected an integer in 1"):
        when.step_index % 0
    with pytest.raises(TypeError, match=r"when: modulus is 1\.5; expected an integer in 1"):
        when.step_index % 1.5  # type: ignore[operator]
    with pytest.raises(ValueError, match="when: a remainder is compared with -1; expected a number >= 0"):
        when.step_index % 3 == -1  # noqa: B015
    for wrong in (float("nan"), "one", None):
        with pytest.raises((TypeError, ValueError), match=r"when: value is .*; expected a number"):
            when.step_index == wrong  # noqa: B015


def test_conditions_are_told_to_the_core_as_written() -> None:
    terms: list[tuple[Condition, tuple[int, int, int, float, int]]] = [
        (when.step_index >= 3, (0, 5, 0, 3.0, 0)),
        (when.step_index % 4 == 1, (0, 0, 4, 1.0, 0)),
        (when.steps_since_applied > 2, (1, 4, 0, 2.0, 0)),
        (when.end_of_episode, (2, 0, 0, 1.0, 0)),
        (when.data["a"] != 7, (3, 1, 0, 7.0, 0)),
        (when.data["b/d"] <= 1, (3, 3, 0, 1.0, 2)),
        (when.data["b/d"] < True, (3, 2, 0, 1.0, 2)),
    ]
    for condition, native in terms:
        assert condition.native(SIGNATURE, "w") == native


def test_a_condition_on_a_column_that_is_no_scalar_is_refused() -> None:
    with pytest.raises(sr.SignatureMismatch, match=r"w: when.data: column 'b/c' is .*; expected a scalar of"):
        (when.data["b/c"] > 0).native(SIGNATURE, "w")
    with pytest.raises(sr.SignatureMismatch, match=r"w: when.data: no column 'e'; the signature of table 'replay' has"):
        (when.data["e"] > 0).native(SIGNATURE, "w")


def test_an_unknown_column_is_refused_with_those_there_are() -> None:
    with pytest.raises(sr.SignatureMismatch, match="output 'x' wants column 'e'; the signature has a, b/c, b/d"):
        Pattern({"x": ("e", -1)}).native(SIGNATURE, 0, "w")


def test_a_pattern_says_which_steps_it_shows() -> None:
    pattern = Pattern(lambda step: {"x": step["a"][-5:-1:2], "y": step["b"][-3]})
    assert pattern.num_steps(SIGNATURE) == 5
    native = pattern.native(SIGNATURE, 0, "w")
    assert native["outputs"] == [
        (0, False, False, [(-4, 0, 2)]),
        (1, True, False, [(-2, -1, 1)]),
        (2, True, False, [(-2, -1, 1)]),
    ]
    assert (native["lo"], native["hi"]) == (-4, 0)


def test_a_column_that_is_per_item_is_shown_without_steps_and_asks_for_none() -> None:
    columns = {"a": sr.ArraySpec((), "int64"), "goal": sr.ArraySpec((), "int64", per="item", optional=True)}
    signature = Signature.from_tree(columns, "t")
    pattern = Pattern({"x": ("a", slice(-2, None)), "goal": ("goal", slice(-9, None))})
    native = pattern.native(signature, 0, "w")
    assert native["outputs"] == [(0, False, False, [(-1, 1, 1)]), (1, True, False, [])]
    assert (native["lo"], native["hi"], pattern.num_steps(signature)) == (-1, 1, 2)
    with pytest.raises(sr.SignatureMismatch, match="w: shows only columns that are per item; expected one of steps"):
        Pattern({"goal": ("goal", -1)}).native(signature, 0, "w")


EVERY_KIND = Pattern(
    lambda step: {"x": step["a"][-5:-1:2], "y": step["b/c"][-1], "z": step["a"][-2:]},
    table="replay",
    conditions=[when.step_index % 4 == 1, when.data["b/d"] < True, when.end_of_episode],
    priority=sr.td_priority("a", 0.5),
)


@pytest.mark.parametrize("pattern", [EVERY_KIND, Pattern({"x": ("a", -1)}), Pattern({"x": ("a", -1)}, priority=2.0)])
def test_a_pattern_travels(pattern: Pattern) -> None:
    wire = msgpack.unpackb(msgpack.packb(rule_to_wire(pattern)))
    made = rule_from_wire(wire)
    assert made == pattern
    assert hash(made) == hash(pattern)
    assert made.native(SIGNATURE, 0, "w") == pattern.native(SIGNATURE, 0, "w")


def test_patterns_that_say_the_same_are_equal_however_they_say_it() -> None:
    assert Pattern(lambda step: {"x": step["a"][-3:]}) == Pattern({"x": ("a", slice(-3, None))}, conditions=[])
    assert Pattern({"x": ("a", slice(-3, None))}) != Pattern({"x": ("a", slice(-2, None))})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"select": None}, "pattern: malformed"),
        ({"select": [["x"]]}, "pattern: malformed select"),
        ({"select": [["x", ["a", [0, 1]]]]}, "pattern: malformed selection ['a', [0, 1]]"),
        ({"select": [["x", ["a", 0]]]}, "a[0]; steps count from the newest, -1: expected a negative one"),
        ({"select": []}, "select gives no outputs"),
        ({"conditions": [[0, "==", 1.0]]}, "pattern: malformed condition [0, '==', 1.0]"),
        ({"conditions": [[9, "==", 1.0, 0, None]]}, "pattern: malformed condition [9,"),
        ({"conditions": [[3, "==", 1.0, 0, None]]}, "pattern: malformed condition [3,"),
        ({"rule": "Rule"}, "item: unknown rule 'Rule'; expected a window or a pattern"),
    ],
)
def test_a_malformed_wire_form_is_refused(change: dict[str, Any], text: str) -> None:
    wire = rule_to_wire(EVERY_KIND)
    assert wire is not None
    with pytest.raises(ValueError, match=re.escape(text)):
        rule_from_wire({**wire, **change})


def test_a_table_that_is_no_name_is_refused() -> None:
    with pytest.raises(TypeError, match="pattern: table is 3; expected a table's name, or None"):
        Pattern({"x": ("a", -1)}, table=3)  # type: ignore[arg-type]

"""Selectors as values."""

from __future__ import annotations

import math
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmreplay import selectors

PLAIN = [selectors.Fifo(), selectors.Lifo(), selectors.Uniform(), selectors.MinHeap(), selectors.MaxHeap()]


def test_each_has_its_number_in_the_segment() -> None:
    kinds = [selector.kind for selector in (*PLAIN[:3], selectors.Prioritized(1.0), *PLAIN[3:])]
    assert kinds == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("selector", PLAIN, ids=repr)
def test_a_plain_one_comes_back_from_its_wire_form(selector: selectors.Selector) -> None:
    assert selectors.from_wire(msgpack.unpackb(msgpack.packb(selector.to_wire()))) == selector
    assert selector.exponent == 0.0


@given(st.floats(0, 1e300))
def test_a_prioritized_one_comes_back_with_its_exponent(exponent: float) -> None:
    selector = selectors.Prioritized(exponent)
    again = selectors.from_wire(msgpack.unpackb(msgpack.packb(selector.to_wire())))
    assert again == selector
    assert again.exponent == exponent


def test_each_is_found_by_its_number() -> None:
    plain = [selectors.Fifo(), selectors.Lifo(), selectors.Uniform(), selectors.MinHeap(), selectors.MaxHeap()]
    for selector in [*plain, selectors.Prioritized(0.7)]:
        assert selectors.of_kind(selector.kind, selector.exponent) == selector


def test_selectors_are_equal_by_kind_and_exponent() -> None:
    assert len({selectors.Fifo(), selectors.Fifo(), selectors.Lifo()}) == 2
    assert selectors.Prioritized(1) == selectors.Prioritized(1.0)
    assert selectors.Prioritized(0.5) != selectors.Prioritized(0.6)


@pytest.mark.parametrize("exponent", [-0.1, math.inf, -math.inf])
def test_an_exponent_must_be_finite_and_not_negative(exponent: float) -> None:
    with pytest.raises(
        ValueError, match=f"Prioritized: priority_exponent is {exponent}; expected a finite number >= 0"
    ):
        selectors.Prioritized(exponent)


def test_an_exponent_must_be_a_number() -> None:
    with pytest.raises(ValueError, match="Prioritized: priority_exponent is nan; expected a number"):
        selectors.Prioritized(math.nan)
    with pytest.raises(TypeError, match=r"Prioritized: priority_exponent is '0\.6'; expected a number"):
        selectors.Prioritized("0.6")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wire", "text"),
    [
        (
            {"kind": "Newest"},
            "selector: unknown kind 'Newest'; expected one of Fifo, Lifo, Uniform, MinHeap, MaxHeap, P",
        ),
        ({"kind": ["Fifo"]}, r"selector: unknown kind \['Fifo'\]"),
        ({}, "selector: malformed, expected a map with 'kind'"),
        ({"kind": "Prioritized"}, "selector Prioritized: malformed, expected a map with 'priority_exponent'"),
        ({"kind": "Prioritized", "priority_exponent": -1.0}, "priority_exponent is -1.0; expected a finite number"),
    ],
)
def test_a_malformed_wire_form_is_refused(wire: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        selectors.from_wire(wire)


def test_a_kind_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"kind is 17; expected one of 0 to 5"):
        selectors.of_kind(17, 1.0)

"""Priorities of rules, and of sequences."""

import re
from typing import Any

import msgpack
import numpy as np
import pytest

import shmreplay as sr
from shmreplay.columns.signature import Signature
from shmreplay.rules.priorities import priority_from_wire, priority_to_wire, read_priority

SIGNATURE = Signature.from_tree(
    {
        "td": sr.ArraySpec((), "float64"),
        "x": sr.ArraySpec((3,), "float32"),
        "half": sr.ArraySpec((), "float16"),
        "wide": sr.ArraySpec((), "longdouble"),
        "n": {"k": sr.ArraySpec((), "uint8")},
    },
    "replay",
)


@pytest.mark.parametrize(
    ("rule", "error", "text"),
    [
        (float("nan"), ValueError, "w: priority is nan"),
        (float("inf"), ValueError, "w: priority is inf; priorities must be finite and >= 0"),
        (-1, ValueError, "w: priority is -1; priorities must be finite and >= 0"),
        (True, TypeError, "w: priority is True; expected a number"),
        ([1.0], TypeError, "w: priority is [1.0]; expected a number"),
        (
            "ghost",
            sr.SignatureMismatch,
            "w: priority: no column 'ghost'; the signature of table 'replay' has td, x, half",
        ),
        ("n", sr.SignatureMismatch, "w: priority: no column 'n'; the signature of table 'replay' has td"),
        ("x", sr.SignatureMismatch, "w: priority: column 'x' is "),
        ("half", sr.SignatureMismatch, "expected a scalar of bool, integer, float32 or float64"),
        ("wide", sr.SignatureMismatch, "expected a scalar of bool, integer, float32 or float64"),
        (sr.td_priority("x"), sr.SignatureMismatch, "w: td_priority: column 'x' is "),
    ],
)
def test_a_wrong_rule_is_refused(rule: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        read_priority(rule, SIGNATURE, "w")


@pytest.mark.parametrize(
    ("rule", "native"),
    [
        (None, (0, 0.0, 0)),
        (2, (1, 2.0, 0)),
        (0.5, (1, 0.5, 0)),
        ("td", (2, 0.0, 0)),
        ("n/k", (2, 0.0, 4)),
        (sr.td_priority("td", 0.7), (3, 0.7, 0)),
    ],
)
def test_a_rule_is_told_to_the_core_and_travels(rule: Any, native: tuple[int, float, int]) -> None:
    assert read_priority(rule, SIGNATURE, "w") == native
    assert priority_from_wire(msgpack.unpackb(msgpack.packb(priority_to_wire(rule)))) == rule


@pytest.mark.parametrize("eta", [-0.1, 1.1, float("inf")])
def test_an_eta_out_of_range_is_refused(eta: float) -> None:
    with pytest.raises(ValueError, match=re.escape(f"td_priority: eta is {eta!r}; expected 0..1")):
        sr.td_priority("td", eta)
    with pytest.raises(ValueError, match=re.escape(f"sequence_priority: eta is {eta!r}; expected 0..1")):
        sr.sequence_priority(np.ones((1, 1)), eta=eta)


def test_the_shapes_of_errors_and_mask_are_checked() -> None:
    with pytest.raises(ValueError, match=r"sequence_priority: td has shape \(3,\); expected \[batch, steps\]"):
        sr.sequence_priority([1, 2, 3])
    with pytest.raises(ValueError, match=r"td has shape \(2, 3\) and mask \(3, 2\); expected the same"):
        sr.sequence_priority(np.ones((2, 3)), np.ones((3, 2)))


def test_a_sequence_s_priority_is_between_its_largest_and_its_mean_error() -> None:
    td = np.random.default_rng(0).normal(size=(7, 5))
    mask = np.random.default_rng(1).random((7, 5)) < 0.6
    mask[3] = False
    got = sr.sequence_priority(td, mask, eta=0.8)
    for i in range(7):
        real = np.abs(td[i][mask[i]])
        assert got[i] == pytest.approx(0.8 * real.max() + 0.2 * real.mean() if len(real) else 0.0)
    assert got.dtype == np.float64
    np.testing.assert_allclose(sr.sequence_priority(td, eta=1.0), np.abs(td).max(axis=1))
    assert sr.sequence_priority(np.empty((2, 0))).tolist() == [0.0, 0.0]


def test_what_is_masked_may_be_anything() -> None:
    assert sr.sequence_priority([[1.0, np.nan, np.inf]], [[True, False, False]]).tolist() == [1.0]

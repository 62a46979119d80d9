"""Values as JSON: one way for all commands."""

import json

import numpy as np

from shmreplay.base.json_values import to_json


def test_numbers_that_json_lacks_are_null() -> None:
    found = json.loads(to_json({"a": [np.float32("nan"), float("inf"), 1.5], "b": np.array([-np.inf, 2.0])}))
    assert found == {"a": [None, None, 1.5], "b": [None, 2.0]}


def test_a_bound_that_is_none_is_null_whichever_way_it_is_kept() -> None:
    largest = float(np.finfo(np.float64).max)
    assert json.loads(to_json({"min_diff": -largest, "max_diff": float("inf"), "x": largest})) == {
        "min_diff": None,
        "max_diff": None,
        "x": largest,
    }


def test_what_json_has_stays_and_what_it_lacks_becomes_text() -> None:
    assert json.loads(to_json({"n": np.int64(3), "yes": True, "none": None, "bytes": b"ab", 1: "key"})) == {
        "n": 3,
        "yes": True,
        "none": None,
        "bytes": "b'ab'",
        "1": "key",
    }

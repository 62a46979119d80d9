"""Arguments other than steps: counts, keys and priorities, and how wrong ones are refused."""

from typing import Any

import numpy as np
import pytest

from shmreplay.clients.batches.arguments import check_count, float_array, key_array, priority_array


def test_counts_are_integers_within_their_bounds() -> None:
    assert check_count("here", "length", 1) == 1
    taken = check_count("here", "length", np.int32(7), high=7)  # type: ignore[arg-type]  # numpy's are taken too
    assert taken == 7
    assert type(taken) is int


@pytest.mark.parametrize("value", [True, 2.0, "3", None])
def test_a_count_that_is_no_integer_is_a_type_error(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^here: length is .*; expected an integer$"):
        check_count("here", "length", value)


@pytest.mark.parametrize("value", [0, -1, 8])
def test_a_count_out_of_its_bounds_is_a_value_error(value: int) -> None:
    with pytest.raises(ValueError, match=f"^here: length is {value}; expected 1 to 7$"):
        check_count("here", "length", value, high=7)


def test_keys_become_one_contiguous_axis_and_keep_their_order() -> None:
    keys = np.arange(12, dtype=np.int64).reshape(3, 4)[:, ::2]
    found = key_array("here", keys)
    assert found.flags.c_contiguous
    assert found.tolist() == [0, 2, 4, 6, 8, 10]
    assert key_array("here", []).dtype == np.int64, "an empty list has no dtype that could be wrong"
    with pytest.raises(TypeError, match=r"^here: keys have dtype float64; expected int64"):
        key_array("here", [1.0])


def test_real_numbers_of_any_dtype_become_float64() -> None:
    for dtype in (np.float16, np.float32, np.int8, np.uint64, np.bool_):
        found = float_array("here", "priorities", np.ones((2, 1), dtype))
        assert found.dtype == np.float64
        assert found.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("values", [[1j], ["a"], [[1.0], [2.0, 3.0]]])
def test_what_is_no_real_number_is_a_type_error(values: Any) -> None:
    with pytest.raises(TypeError, match=r"^here: priorities .*expected real numbers"):
        float_array("here", "priorities", values)


def test_there_is_one_priority_a_key() -> None:
    assert priority_array("here", [[1.0], [2.0]], 2).tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match=r"which is 4 for 2 keys; expected one a key, \[2\] or \[2, 1\]"):
        priority_array("here", np.ones((2, 2)), 2)

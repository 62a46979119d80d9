"""What goes into a table: every dtype and shape bit by bit, what is refused and how it says so, keys and priorities."""

import copy
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from tests.support.tables import Pair, TableMaker, check, numbers, step, steps, values

SMALL = {"x": sr.ArraySpec((3,), "float32"), "n": sr.ArraySpec((), "int64")}
X = np.zeros(3, np.float32)


def insert_error(table: TableHandle, bad_step: Any) -> str:
    """The text of the refusal; nothing must have gone in."""
    before = table.info()
    with pytest.raises(sr.SignatureMismatch) as raised:
        table.insert(bad_step, timeout_s=0)
    assert table.info().inserts == before.inserts
    assert str(raised.value).startswith(f"table {table.name!r}")
    return str(raised.value).removeprefix(f"table {table.name!r}").lstrip(":, ")


# --- what goes in comes out ------------------------------------------------------------------------------------------


def bits(dtype: np.dtype[Any], rng: np.random.Generator) -> NDArray[Any]:
    """Twelve values of a dtype from random bits, NaNs with payloads among them; bools are 0 or 1."""
    if dtype.kind == "b":
        return rng.random((12,)) < 0.5
    return np.frombuffer(rng.bytes(12 * dtype.itemsize), dtype)


@pytest.mark.parametrize(
    "dtype",
    [
        *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128", ml_dtypes.bfloat16),
    ],
)
def test_every_dtype_comes_back_bit_by_bit(make_table: TableMaker, rng: np.random.Generator, dtype: Any) -> None:
    dtype = np.dtype(dtype)
    table = make_table(signature={"scalar": sr.ArraySpec((), dtype), "matrix": sr.ArraySpec((2, 6), dtype)})
    rows = bits(dtype, rng)
    table.insert({"scalar": rows[0], "matrix": rows.reshape(2, 6)})
    table.insert_batch({"scalar": rows[:3], "matrix": np.stack([rows.reshape(2, 6)] * 3)})
    batch = table.get(table.keys())
    assert batch.data["scalar"].dtype == batch.data["matrix"].dtype == dtype
    assert batch.data["scalar"].tobytes() == rows[[0, 0, 1, 2]].tobytes()
    assert batch.data["matrix"].tobytes() == rows.tobytes() * 4


def test_an_integer_that_no_float_holds_comes_back(make_table: TableMaker) -> None:
    table = make_table(signature=SMALL)
    table.insert({"x": X, "n": 2**53 + 1})
    table.insert({"x": X, "n": np.int64(-(2**63))})
    assert table.get(table.keys()).data["n"].tolist() == [2**53 + 1, -(2**63)]


def test_no_axis_and_an_axis_of_one_are_different_shapes(make_table: TableMaker) -> None:
    table = make_table(signature={"flat": sr.ArraySpec((), "float32"), "one": sr.ArraySpec((1,), "float32")})
    table.insert({"flat": 1.5, "one": np.array([2.5], np.float32)})
    batch = table.sample(2)
    assert (batch.data["flat"].shape, batch.data["one"].shape) == ((2,), (2, 1))
    text = insert_error(table, {"flat": np.zeros(1, np.float32), "one": np.zeros(1, np.float32)})
    assert text.startswith("column 'flat': expected float32 (), got float32 (1,)")
    text = insert_error(table, {"flat": 0.0, "one": np.float32(0)})
    assert text.startswith("column 'one': expected float32 (1,), got float32 ()")


def test_columns_of_no_bytes_and_more_columns_than_a_presence_word_has_bits(make_table: TableMaker) -> None:
    signature: dict[str, Any] = {f"c{i}": sr.ArraySpec((), "int32") for i in range(120)}
    table = make_table(signature={**signature, "empty": sr.ArraySpec((0, 4), "float32")}, chunk_steps=3)
    for n in range(7):
        table.insert({**{f"c{i}": n * 1000 + i for i in range(120)}, "empty": np.zeros((0, 4), np.float32)})
    batch = table.get(table.keys())
    for i in range(120):
        assert batch.data[f"c{i}"].tolist() == [n * 1000 + i for n in range(7)]
    assert batch.data["empty"].shape == (7, 0, 4)


def test_any_nesting_comes_back_in_its_own_classes(make_table: TableMaker) -> None:
    leaf = sr.ArraySpec((2,), "int16")
    table = make_table(signature=[{"a": (leaf, leaf)}, Pair(leaf, {"b": [leaf]})])
    parts = [np.array([i, -i], np.int16) for i in range(4)]
    table.insert([{"a": (parts[0], parts[1])}, Pair(parts[2], {"b": [parts[3]]})])
    data = table.sample(1).data
    assert isinstance(data, list)
    assert isinstance(data[0]["a"], tuple)
    assert isinstance(data[1], Pair)
    found = [data[0]["a"][0], data[0]["a"][1], data[1].half, data[1].odd["b"][0]]
    assert [array.tolist() for array in found] == [[part.tolist()] for part in parts]


def test_the_callers_arrays_stay_the_callers(make_table: TableMaker) -> None:
    table = make_table(signature=SMALL)
    mine: dict[str, Any] = {"x": np.array([1, 2, 3], np.float32), "n": np.int64(7)}
    before = copy.deepcopy(mine)
    table.insert(mine)
    assert mine.keys() == before.keys()
    assert mine["x"].tolist() == before["x"].tolist()
    mine["x"][:] = 99
    batch = table.sample(1)
    assert batch.data["x"].tolist() == [[1, 2, 3]]
    batch.data["x"][:] = 55
    assert table.sample(1).data["x"].tolist() == [[1, 2, 3]]


class Tensor:
    """What a framework's tensor in host memory looks like."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        return self._array

    @property
    def shape(self) -> tuple[int, ...]:
        return self._array.shape


def test_arrays_of_any_layout_and_other_frameworks_are_taken(make_table: TableMaker) -> None:
    table = make_table(signature={"m": sr.ArraySpec((2, 3), "float32")})
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    big_endian, read_only = matrix.astype(">f4"), matrix.copy()
    read_only.flags.writeable = False
    for array in (np.asfortranarray(matrix), np.repeat(matrix, 2, axis=1)[:, ::2], big_endian, read_only):
        table.insert({"m": array})
    table.insert({"m": Tensor(matrix)})
    table.insert_batch({"m": Tensor(np.stack([matrix, matrix]))})
    assert table.get(table.keys()).data["m"].tolist() == [matrix.tolist()] * 7


def test_a_list_of_steps_goes_in_as_they_would_one_by_one(make_table: TableMaker) -> None:
    table = make_table(signature=SMALL, chunk_steps=8)
    steps: list[Any] = [{"x": np.full(3, i, np.float32), "n": i} for i in range(40)]
    steps[3] = {"n": np.int64(3), "x": steps[3]["x"]}  # in another order
    keys = table.insert_batch(steps, priorities=np.arange(40.0))
    batch = table.get(keys)
    assert batch.data["n"].tolist() == list(range(40))
    assert batch.data["x"].tolist() == [[i] * 3 for i in range(40)]
    assert batch.priorities.tolist() == list(range(40))
    assert table.insert_batch([]).tolist() == []
    steps[7] = {"x": Tensor(steps[7]["x"]), "n": np.array(7)}  # which Python has to convert
    assert table.get(table.insert_batch(steps)).data["n"].tolist() == list(range(40))
    assert check(table) == []


def test_steps_that_are_tuples_may_come_in_a_list_and_lists_may_not(make_table: TableMaker) -> None:
    pair = make_table(signature=(sr.ArraySpec((2,), "float32"), sr.ArraySpec((), "int64")))
    assert pair.get(pair.insert_batch([(np.zeros(2, "f4"), i) for i in range(3)])).data[1].tolist() == [0, 1, 2]
    alone = make_table(signature=sr.ArraySpec((2,), "float32"))
    assert alone.get(alone.insert_batch([np.full(2, i, "f4") for i in range(3)])).data[:, 0].tolist() == [0, 1, 2]
    listed = make_table(signature=[sr.ArraySpec((2,), "float32"), sr.ArraySpec((), "int64")])
    assert len(listed.insert_batch([np.zeros((3, 2), "f4"), np.arange(3)])) == 3  # a batch of its columns


def test_of_a_list_with_a_step_that_does_not_fit_nothing_goes_in(make_table: TableMaker) -> None:
    table = make_table(signature=SMALL)
    steps = [{"x": X, "n": i} for i in range(5)]
    steps[3] = {"x": X[:2], "n": 3}
    with pytest.raises(sr.SignatureMismatch, match=r"column 'x': expected float32 \(3,\), got.* \(step 3 of 5\)"):
        table.insert_batch(steps)
    assert len(table) == 0
    with pytest.raises(ValueError, match="4 priorities for 5 steps"):
        table.insert_batch([{"x": X, "n": i} for i in range(5)], priorities=np.ones(4))


# --- what is refused -------------------------------------------------------------------------------------------------


def test_a_refusal_names_column_expectation_value_and_remedy(make_table: TableMaker) -> None:
    table = make_table(signature=SMALL)
    x64 = np.zeros(3)
    texts = {
        insert_error(table, {"x": x64, "n": 0}): "column 'x': expected float32 (3,), got float64 (3,); convert it with "
        '.astype("float32") or declare the column with cast="same_kind"',
        insert_error(table, {"x": X[:2], "n": 0}): "column 'x': expected float32 (3,), got float32 (2,); pass one of "
        "shape (3,) or declare the column with the other shape",
        insert_error(table, {"x": X}): "column 'n': missing from the step; expected int64 ()",
        insert_error(table, {"x": X, "n": 0, "y": 1}): "unknown key 'y'; the signature has 'x', 'n' there",
        insert_error(table, [X, 0]): "expected a dict with the keys 'x', 'n', got a list of 2",
        insert_error(table, {"x": [1.0, 2.0, 3.0], "n": 0}): "column 'x': expected float32 (3,), got a list of 3",
        insert_error(table, {"x": X, "n": 1.5}): "column 'n': expected int64 (), got the Python float 1.5",
        insert_error(table, {"x": X, "n": 2**63}): "column 'n': expected int64 (), got the Python int 9223372036854775",
        insert_error(table, {"x": X, "n": np.uint64(1)}): "column 'n': expected int64 (), got uint64 ()",
        insert_error(table, {"x": X, "n": "1"}): "column 'n': expected int64 ()",
        insert_error(table, None): "column 'x': missing from the step",
    }
    for text, start in texts.items():
        assert text.startswith(start)
    assert check(table) == []


def test_images_given_as_floats_are_refused(make_table: TableMaker) -> None:
    table = make_table(signature={"image": sr.ArraySpec((4, 4), "uint8")})
    text = insert_error(table, {"image": np.zeros((4, 4))})
    assert text.startswith("column 'image': expected uint8 (4, 4), got float64 (4, 4)")


def test_a_float64_scalar_of_numpy_needs_the_cast_rule_and_a_python_float_does_not(make_table: TableMaker) -> None:
    strict = make_table(signature={"reward": sr.ArraySpec((), "float32")})
    assert insert_error(strict, {"reward": np.float64(1.5)}).startswith(
        "column 'reward': expected float32 (), got float64 ()"
    )
    strict.insert({"reward": 1.5})
    kind = make_table(signature={"reward": sr.ArraySpec((), "float32", cast="same_kind")})
    kind.insert({"reward": np.float64(1.5)})
    kind.insert_batch({"reward": np.array([1.5, 2.5])})
    assert kind.get(kind.keys()).data["reward"].tolist() == [1.5, 1.5, 2.5]
    assert insert_error(kind, {"reward": np.complex64(1)}).startswith("column 'reward': expected float32 ()")
    never = make_table(signature={"reward": sr.ArraySpec((), "float64", cast="no")})
    assert insert_error(never, {"reward": np.float32(1)}).startswith("column 'reward': expected float64 ()")


def test_a_batch_needs_one_leading_axis_of_all_columns(make_table: TableMaker) -> None:
    table = make_table(signature=SMALL)
    for bad, text in (
        ({"x": np.zeros((2, 3), np.float32), "n": np.zeros(3, np.int64)}, "column 'x' has 2 rows and column 'n' has 3"),
        ({"x": X, "n": 1}, "column 'n': expected int64 (N,), got the Python int 1; a batch has a leading axis"),
        (
            {"x": np.zeros((2, 4), np.float32), "n": np.zeros(2, np.int64)},
            "expected float32 (2, 3), got float32 (2, 4)",
        ),
        ({"x": np.zeros((2, 3)), "n": np.zeros(2, np.int64)}, "expected float32 (2, 3), got float64 (2, 3)"),
    ):
        with pytest.raises(sr.SignatureMismatch) as raised:
            table.insert_batch(bad)
        assert text in str(raised.value)
    assert len(table) == 0


# --- priorities ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("priority", "error", "text"),
    [
        (float("nan"), ValueError, "priority is nan; priorities must be finite, >= 0 and at most 1e+280"),
        (float("inf"), ValueError, "priority is inf; priorities must be finite"),
        (-1, ValueError, "priority is -1; priorities must be finite, >= 0"),
        (1e300, ValueError, "priority is 1e+300; priorities must be finite, >= 0 and at most 1e+280"),
        (10**400, ValueError, "priority is 1000"),
        ("high", TypeError, "priority is 'high'; expected a number, or None"),
    ],
)
def test_a_priority_that_is_none_is_refused(
    make_table: TableMaker, priority: Any, error: type[Exception], text: str
) -> None:
    table = make_table(item_steps=1, sampler=sr.selectors.Prioritized(1.0))
    with pytest.raises(error) as raised:
        table.insert(step(0), priority)
    assert str(raised.value).startswith(f"table {table.name!r}: {text}")
    assert len(table) == 0


def test_a_bad_priority_among_many_is_named_by_its_position_and_nothing_goes_in(make_table: TableMaker) -> None:
    table = make_table(sampler=sr.selectors.Prioritized(1.0))
    for bad, text in (
        ([1, float("nan"), 2], r"priorities\[1\] is nan; priorities must be finite, >= 0"),
        ([1, 2, -0.5], r"priorities\[2\] is -0.5; priorities must be finite"),
        ([1, 2], "2 priorities for 3 steps; expected one a step"),
    ):
        with pytest.raises(ValueError, match=text):
            table.insert_batch(steps([0, 1, 2]), bad)
    with pytest.raises(TypeError, match="priorities have dtype <U1"):
        table.insert_batch(steps([0]), ["1"])
    assert len(table) == 0


def test_without_a_priority_an_item_gets_the_largest_live_one(make_table: TableMaker) -> None:
    table = make_table(4, sampler=sr.selectors.Prioritized(1.0))
    table.insert(step(0))
    assert table.info().max_priority == 1  # the first one
    table.insert(step(1), 100)
    table.insert(step(2))
    table.insert_batch(steps([3, 4]))
    assert table.get(table.keys()).priorities.tolist() == [100, 100, 100, 100]
    table.update_priorities(table.keys(), [3, 7, 0, 5])
    table.insert(step(5), None)
    assert table.get(table.keys()).priorities.tolist() == [7, 0, 5, 7]
    table.update_priorities(table.keys(), np.zeros(4))
    table.insert(step(6))
    assert table.get(table.keys()).priorities.tolist() == [0, 0, 0, 1]  # not the 0 of all others: it must be drawn once


def test_without_a_priority_tables_of_other_samplers_take_one(make_table: TableMaker) -> None:
    table = make_table(sampler=sr.selectors.MaxHeap())
    table.insert(step(0), 100)
    table.insert(step(1))
    assert table.get(table.keys()).priorities.tolist() == [100, 1]


# --- keys ------------------------------------------------------------------------------------------------------------


def test_keys_are_positive_int64_of_their_own_and_sorted_by_insertion(make_table: TableMaker) -> None:
    table = make_table(50, chunk_steps=4)
    keys = [table.insert(step(n)) for n in range(20)]
    assert all(type(key) is int and key >= 1 for key in keys)
    more = table.insert_batch(steps(range(20, 40)))
    assert more.dtype == np.int64
    assert table.keys().tolist() == [*keys, *more.tolist()]
    assert sorted(set(table.keys().tolist())) == table.keys().tolist()
    assert values(table) == list(range(40))


def test_keys_of_evicted_items_hit_nothing_ever_again(make_table: TableMaker, rng: np.random.Generator) -> None:
    """Whatever has been inserted since: every slot is taken again many times, by a table of one item too."""
    for max_size in (1, 3):
        table = make_table(max_size, sampler=sr.selectors.Prioritized(1.0))
        seen: set[int] = set()
        for n in range(2000):
            seen.add(table.insert(step(n), 1.0))
        assert len(seen) == 2000
        live = table.keys()
        stale = np.array(sorted(seen - set(live.tolist())), np.int64)
        with pytest.warns(UserWarning, match=f"update_priorities hit none of {len(stale)} items"):
            assert table.update_priorities(stale, rng.random(len(stale)) + 5) == 0
        assert table.delete(stale) == 0
        assert len(table.get(stale)) == 0
        assert table.get(live).priorities.tolist() == [1.0] * max_size
        table.reset()
        assert table.update_priorities(live, np.ones(max_size)) == 0  # warned of already
        table.insert(step(0))
        assert table.delete(live) == 0


def test_a_key_of_one_table_hits_nothing_in_another(make_table: TableMaker) -> None:
    tables = [make_table(4) for _ in range(3)]
    keys = [table.insert_batch(steps(range(4))) for table in tables]
    for i, table in enumerate(tables):
        for j in range(3):
            assert len(table.get(keys[j])) == (4 if i == j else 0)


# --- batches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_size", [1, 2, 7, 50, 100, 256])
@pytest.mark.parametrize("chunk_steps", [1, 5, None])
def test_a_batch_is_as_good_as_its_steps_one_by_one(
    make_table: TableMaker, rng: np.random.Generator, max_size: int, chunk_steps: int | None
) -> None:
    one, many = (make_table(max_size, chunk_steps=chunk_steps, sampler=sr.selectors.Fifo()) for _ in range(2))
    n = 0
    for count in (0, 1, 3, 31, 32, 33, 100, 0, 260):
        priorities = rng.random(count)
        for i in range(count):
            one.insert(step(n + i), priorities[i])
        assert len(many.insert_batch(steps(range(n, n + count)), priorities)) == count
        n += count
    assert values(one) == values(many) == list(range(max(0, n - max_size), n))
    ours, theirs = (table.get(table.keys()) for table in (one, many))
    assert ours.priorities.tolist() == theirs.priorities.tolist()
    assert ours.ages.tolist() == theirs.ages.tolist()
    assert one.info().inserts == many.info().inserts == n
    assert one.info().num_episodes == many.info().num_episodes == len(one)


def test_a_batch_of_no_steps_does_nothing(make_table: TableMaker) -> None:
    table = make_table()
    keys = table.insert_batch(steps([]), [])
    assert keys.dtype == np.int64
    assert len(keys) == 0
    assert table.info().inserts == 0


def test_a_batch_larger_than_the_table_leaves_its_end(make_table: TableMaker) -> None:
    table = make_table(10)
    keys = table.insert_batch(steps(range(1000)))
    assert len(set(keys.tolist())) == 1000
    assert table.keys().tolist() == keys[-10:].tolist()
    assert numbers(table.get(keys)).tolist() == list(range(990, 1000))
    assert table.info().evicted == 990
    assert table.info().evicted_for_room == 0

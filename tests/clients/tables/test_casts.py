"""Casts: a value of another dtype is stored as NumPy casts it or refused, alike in every form and by every way in."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import shmreplay as sr
from shmreplay.base.dtypes import number_kind
from shmreplay.clients.tables.table import TableHandle
from tests.support.tables import TableMaker

Array = NDArray[Any]
OWN = [np.dtype(code) for code in "?bBhHiIlLqQefdFD"]
SOURCES = [*OWN, *(dtype.newbyteorder() for dtype in OWN if dtype.itemsize > 1), np.dtype("g"), np.dtype("G")]
TARGETS = [*dict.fromkeys(np.dtype(dtype.name) for dtype in OWN), np.dtype(ml_dtypes.bfloat16)]
CASTS = ["no", "safe", "same_kind"]
WAYS = ["insert", "list", "insert_batch", "extend", "append", "partial", "vector", "vector_partial"]
# Numbers at which casts differ: ends of ranges, the nearest to a float's range, and halves between two floats.
NUMBERS = [
    *(0, 1, 127, 128, 255, 256, 2**15, 2**24 + 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -1, -129, -(2**63)),
    *(0.1, -0.0, 65519.99, 65520.0, 2049.0, 2051.0, 2**-24, 2**-25, 1.5 * 2**-24, 6e-5, 1e-40, 1e-300, 3.4028235e38),
    *(3.4028235677973366e38, 1e40, -1e40, 1e300, float("inf"), float("-inf"), float("nan")),
]


def cast_by_numpy(value: Array, dtype: np.dtype[Any], cast: Any) -> Array | None:
    """The value as NumPy casts it; None if its rule forbids that, or if a number would become another one."""
    if not np.can_cast(value.dtype, dtype, cast):
        return None
    with np.errstate(all="ignore"):
        stored = value.astype(dtype, casting=cast)
    for before, after in zip(value.ravel(), stored.ravel(), strict=True):
        if number_kind(dtype) in "iu" and int(before) != int(after):
            return None
        if number_kind(dtype) in "fc" and np.isfinite(before) and not np.isfinite(after):
            return None
    return stored


def numbers_of(dtype: np.dtype[Any]) -> list[Any]:
    """Those of NUMBERS that the dtype has, as scalars of it."""
    found = []
    for number in NUMBERS:
        if number_kind(dtype) == "b" and number not in (0, 1):
            continue
        if number_kind(dtype) in "iu":
            info = np.iinfo(dtype)
            if not isinstance(number, int) or not info.min <= number <= info.max:
                continue
        with np.errstate(all="ignore"):
            found.append(np.array(number).astype(dtype)[()])
            if number_kind(dtype) == "c":
                found.append(np.array(complex(1, number)).astype(dtype)[()])
    return found


def forms(number: Any, dtype: np.dtype[Any]) -> Iterator[tuple[str, Any]]:
    """The number in values of each form, with the column that each is for."""
    zero_d = np.empty((), dtype)
    zero_d[()] = number
    yield "x", zero_d[()]
    yield "x", zero_d
    pair = np.array([1, 1], dtype)
    pair[1] = number
    yield "v", pair
    yield "v", np.repeat(pair, 3)[::3]
    yield "v", pair[::-1]
    matrix = np.ones((2, 3), dtype)
    matrix[1, 2] = number
    yield "m", matrix
    yield "m", np.asfortranarray(matrix)
    yield "m", np.repeat(matrix, 2, axis=0)[::2]


class Table:
    """A table of one dtype and rule, and every way in."""

    def __init__(self, table: TableHandle, dtype: np.dtype[Any]) -> None:
        self.table = table
        self.base = {"x": np.zeros((), dtype), "v": np.zeros(2, dtype), "m": np.zeros((2, 3), dtype)}
        self.writer = table.writer()
        self.fleet = table.vector_writer(2)

    def close(self) -> None:
        self.writer.close()
        self.fleet.close()

    def put(self, way: str, column: str, value: Any) -> Array:
        """What is stored of the value; raises what the call raises."""
        step = {**self.base, column: value}
        put: Callable[[str, Any], Array] = getattr(self, way)
        return np.asarray(put(column, step))

    def stored(self, keys: Any, column: str) -> Array:
        return np.asarray(self.table.get(keys).data[column][-1])

    def insert(self, column: str, step: Any) -> Array:
        return self.stored([self.table.insert(step)], column)

    def list(self, column: str, step: Any) -> Array:
        return self.stored(self.table.insert_batch([self.base, step]), column)

    def insert_batch(self, column: str, step: Any) -> Array:
        return self.stored(self.table.insert_batch(self.batch(column, step)), column)

    def extend(self, column: str, step: Any) -> Array:
        return self.stored(self.table.extend(self.batch(column, step)), column)

    def append(self, column: str, step: Any) -> Array:
        self.writer.append(step)
        return np.asarray(self.writer.history[column][-1])

    def partial(self, column: str, step: Any) -> Array:
        self.writer.append({column: step.pop(column)}, partial=True)
        found = np.asarray(self.writer.history[column][-1])
        self.writer.append(step)
        return found

    def vector(self, column: str, step: Any) -> Array:
        self.fleet.append(self.batch(column, step))
        return np.asarray(self.fleet.history[column][-1].numpy(1))

    def vector_partial(self, column: str, step: Any) -> Array:
        batch = self.batch(column, step)
        self.fleet.append({column: batch.pop(column)}, partial=True)
        found = np.asarray(self.fleet.history[column][-1].numpy(1))
        self.fleet.append(batch)
        return found

    def batch(self, column: str, step: Any) -> dict[str, Array]:
        """Two steps: that one is the second. A form of memory, such as Fortran's, is that of the whole batch."""
        stacked = {name: np.stack([base, base]) for name, base in self.base.items()}
        value = step[column]
        both = np.ones((2, *value.shape), value.dtype)
        both[1] = value
        return {**stacked, column: np.asfortranarray(both) if np.isfortran(value) else both}


def check_casts(make_table: TableMaker, rng: np.random.Generator, dtype: np.dtype[Any], part: float) -> None:
    """Checks that part of all casts to the dtype, chosen at random."""
    shapes = {"x": (), "v": (2,), "m": (2, 3)}
    values = [form for source in SOURCES for number in numbers_of(source) for form in forms(number, source)]
    for cast in CASTS:
        signature = {name: sr.ArraySpec(shape, dtype, cast=cast) for name, shape in shapes.items()}
        table = Table(make_table(signature=signature), dtype)
        for at in np.flatnonzero(rng.random(len(values)) < part):
            column, value = values[at]
            expected = cast_by_numpy(np.asarray(value), dtype, cast)
            check(table, str(rng.choice(WAYS)), column, value, expected)
        table.close()


@pytest.mark.parametrize("dtype", TARGETS, ids=str)
def test_a_value_is_stored_as_numpy_casts_it_or_refused(
    make_table: TableMaker, rng: np.random.Generator, dtype: np.dtype[Any]
) -> None:
    check_casts(make_table, rng, dtype, 0.03)


@pytest.mark.long
@pytest.mark.parametrize("dtype", TARGETS, ids=str)
def test_many_values_are_stored_as_numpy_casts_them_or_refused(
    make_table: TableMaker, rng: np.random.Generator, dtype: np.dtype[Any]
) -> None:
    check_casts(make_table, rng, dtype, 0.2)


def check(table: Table, way: str, column: str, value: Any, expected: Array | None) -> None:
    said = f"{way} of {value!r} of {value.dtype} for {column}"
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            found = table.put(way, column, value)
        except sr.SignatureMismatch:
            assert expected is None, said
            return
    assert expected is not None, f"{said} was stored as {found}"
    assert same_bits(found, expected), f"{said} was stored as {found}, not {expected}"


def same_bits(found: Array, expected: Array) -> bool:
    return found.dtype == expected.dtype and found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", TARGETS, ids=str)
def test_a_number_of_python_is_refused_where_an_array_of_it_would_be(
    make_table: TableMaker, dtype: np.dtype[Any]
) -> None:
    signature = {"x": sr.ArraySpec((), dtype, cast="same_kind"), "v": sr.ArraySpec((2,), dtype), "m": dtype}
    signature["m"] = sr.ArraySpec((2, 3), dtype)
    table = Table(make_table(signature=signature), dtype)
    for number in NUMBERS:
        as_array = np.asarray(number)
        if as_array.dtype == object or not np.can_cast(as_array.dtype, dtype, "same_kind"):
            continue
        expected = cast_by_numpy(as_array, dtype, "same_kind")
        for way in ("insert", "list", "append", "partial"):
            with np.errstate(all="raise"):
                if expected is None:
                    with pytest.raises(sr.SignatureMismatch, match="is outside the dtype's range"):
                        table.put(way, "x", number)
                else:
                    assert same_bits(table.put(way, "x", number), expected), number
    table.close()


def test_a_refusal_names_the_number_and_its_place(make_table: TableMaker) -> None:
    table = make_table(signature={"x": sr.ArraySpec((2,), "float32", cast="same_kind")})
    with pytest.raises(sr.SignatureMismatch) as refused:
        table.insert({"x": np.array([0.0, 1e40])})
    assert str(refused.value).endswith(
        "column 'x': expected float32 (2,), got float64 (2,) with 1e+40 at (1,); it is outside the dtype's range "
        "-3.4028234663852886e+38..3.4028234663852886e+38; clip it, or declare the column with a wider dtype"
    )


def test_tensors_in_host_memory_are_cast_alike(make_table: TableMaker) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    signature = {
        "x": sr.ArraySpec((), "float32", cast="same_kind"),
        "v": sr.ArraySpec((2,), "float32", cast="same_kind"),
        "m": sr.ArraySpec((2, 3), "float32", cast="same_kind"),
    }
    table = Table(make_table(signature=signature), np.dtype("float32"))
    for dtype in (torch.float32, torch.float64, torch.float16, torch.int64, torch.bool):
        numbers = torch.tensor([1.5, 0.0, 3.0, 0.25, 1.0, 2.0]).to(dtype)
        for column, value in (
            ("x", numbers[0]),
            ("v", numbers[:2]),
            ("v", numbers[::3]),
            ("m", numbers.reshape(2, 3)),
            ("m", numbers.reshape(3, 2).T),
        ):
            for way in ("insert", "list", "append", "partial"):
                found = table.put(way, column, value)
                assert found.tobytes() == value.float().numpy().tobytes()
    beyond = torch.tensor([1.0, 1e40], dtype=torch.float64)
    with pytest.raises(sr.SignatureMismatch, match="outside the dtype's range"):
        table.put("insert", "v", beyond)
    with pytest.raises(sr.SignatureMismatch, match="requires grad"):
        table.put("insert", "v", torch.ones(2, requires_grad=True))
    table.close()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, ml_dtypes.bfloat16])
def test_rows_that_a_mask_leaves_out_may_have_any_numbers(make_table: TableMaker, dtype: Any) -> None:
    table = make_table(signature={"x": sr.ArraySpec((2,), dtype, cast="same_kind"), "n": sr.ArraySpec((), "int64")})
    values = np.array([[1, 2], [1e300, 3], [4, 5]])
    mask = np.array([True, False, True])
    with table.vector_writer(3) as fleet:
        fleet.append({"x": values, "n": np.arange(3)}, mask=mask)
        fleet.append({"x": values}, mask=mask, partial=True)
        fleet.append({"n": np.arange(3)}, mask=mask)
        fleet.append({"x": values[::-1], "n": np.arange(3)}, mask=mask)
        assert fleet.num_steps.tolist() == [1, 0, 1]
        for stream in (0, 2):
            found = fleet.history["x"][-1].numpy(stream)
            assert found.astype(float).tolist() == values[2 - stream].tolist()
        with pytest.raises(sr.SignatureMismatch, match=r"1e\+300 at \(1, 0\)"):
            fleet.append({"x": values, "n": np.arange(3)})
        fleet.end_episodes(mask, {"x": values})

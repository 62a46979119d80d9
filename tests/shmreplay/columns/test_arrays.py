"""plain_array: arrays of NumPy's own, and those that mean more than their numbers, by every way in."""

import pathlib
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from shmreplay.columns.arrays import plain_array
from tests.support.tables import TableMaker

MASKED = np.ma.array([1.0, 999.0], mask=[False, True])
UNMASKED = np.ma.array([1.0, 2.0])


class Metres(np.ndarray[Any, Any]):
    """Lengths: the same numbers in another unit are others."""


def metres(*values: float) -> Any:
    return np.array(values).view(Metres)


def test_numbers_are_read_from_whatever_holds_them(tmp_path: pathlib.Path) -> None:
    kept = np.arange(3.0)
    assert plain_array(kept) is kept
    mapped = np.memmap(tmp_path / "numbers", np.float64, "w+", shape=(3,))
    mapped[:] = kept
    for values in ([0.0, 1.0, 2.0], mapped, np.ma.array(kept), np.ma.array(kept, mask=False), range(3)):
        found = plain_array(values)
        assert type(found) is np.ndarray
        assert found.tolist() == [0, 1, 2]


@pytest.mark.parametrize("values", [MASKED, np.ma.masked, [1.0, np.ma.masked], [MASKED, MASKED]], ids=repr)
def test_masked_values_are_refused_with_their_number(values: Any) -> None:
    with pytest.raises(TypeError, match=r"1 of \d values are masked, and only numbers are stored; fill them"):
        plain_array(values)


@pytest.mark.parametrize("values", [metres(1, 2), np.ones((1, 2)).view(np.matrix), [metres(1, 2)]], ids=repr)
def test_classes_with_another_meaning_are_named(values: Any) -> None:
    with pytest.raises(TypeError, match=r"it is a \S+(Metres|matrix), whose numbers may mean .* pass np.asarray"):
        plain_array(values)


def test_what_has_array_may_not_bring_a_mask_either() -> None:
    class Lazy:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return MASKED

    with pytest.raises(TypeError, match="1 of 2 values are masked"):
        plain_array(Lazy())


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_tensors_of_dtypes_that_numpy_lacks_share_their_memory(name: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    tensor = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).to(getattr(torch, name))
    found = plain_array(tensor)
    assert found.dtype == np.dtype(getattr(ml_dtypes, name))
    assert found.astype(float).tolist() == [[1, 2], [3, 4]]
    assert plain_array(tensor.T).astype(float).tolist() == [[1, 3], [2, 4]]
    found[0, 0] = 0
    assert float(tensor[0, 0]) == 0
    with pytest.raises(TypeError, match=r"requires grad; pass its \.detach\(\)"):
        plain_array(torch.ones(2, requires_grad=True).to(torch.bfloat16))


SIGNATURE = {
    "x": sr.ArraySpec((2,), "float64"),
    "y": sr.ArraySpec((), "float64"),
    "m": sr.ArraySpec((2,), "float64", mutable=True),
}


def step(**changed: Any) -> dict[str, Any]:
    return {"x": np.zeros(2), "y": 0.0, "m": np.zeros(2), **changed}


def steps(**changed: Any) -> dict[str, Any]:
    return {"x": np.zeros((2, 2)), "y": np.zeros(2), "m": np.zeros((2, 2)), **changed}


def append(table: TableHandle, values: dict[str, Any]) -> None:
    with table.writer() as writer:
        writer.append(values)


def append_many(table: TableHandle, values: dict[str, Any], **options: Any) -> None:
    with table.vector_writer(2) as writer:
        writer.append(values, **options)


def integers(two: Any) -> Any:
    return np.ma.array([1, 2], mask=[False, True]) if two is MASKED else np.array([1, 2]).view(Metres)


# Each gets two numbers of a class that means more.
WAYS: dict[str, Callable[[TableHandle, Any], Any]] = {
    "insert": lambda table, two: table.insert(step(x=two)),
    "insert, a scalar": lambda table, two: table.insert(step(y=two[1])),
    "insert_batch": lambda table, two: table.insert_batch(steps(y=two)),
    "insert_batch of steps": lambda table, two: table.insert_batch([step(), step(x=two)]),
    "extend": lambda table, two: table.extend(steps(y=two)),
    "append": lambda table, two: append(table, step(x=two)),
    "vector append": lambda table, two: append_many(table, steps(y=two)),
    "update_data": lambda table, two: table.update_data(table.keys()[:1], {"m": two[None, None]}),
    "priorities of a batch": lambda table, two: table.insert_batch(steps(), two),
    "update_priorities": lambda table, two: table.update_priorities(table.keys()[:2], two),
    "keys": lambda table, two: table.delete(integers(two)),
    "episode_ends": lambda table, two: table.extend(steps(), two.astype(bool)),
    "mask": lambda table, two: append_many(table, steps(), mask=two.astype(bool)),
    "sequence_priority": lambda table, two: sr.sequence_priority(two[None]),
}


@pytest.mark.parametrize("two", [MASKED, metres(1, 2)], ids=["masked", "metres"])
@pytest.mark.parametrize("way", WAYS)
def test_no_way_in_takes_them_for_their_numbers(make_table: TableMaker, way: str, two: Any) -> None:
    table = make_table(signature=SIGNATURE, sampler=sr.selectors.Prioritized(1.0))
    table.insert_batch(steps(), [1.0, 1.0])
    if way == "insert, a scalar" and two is not MASKED:
        two = [two, two[1:].reshape(())]
    with pytest.raises((TypeError, sr.SignatureMismatch), match=r"are masked|Metres"):
        WAYS[way](table, two)
    assert len(table) == 2
    assert table.get(table.keys()).priorities.tolist() == [1, 1]
    assert not table.get(table.keys()).data["m"].any()


@pytest.mark.parametrize("way", ["insert", "insert_batch", "extend", "update_priorities"])
def test_masked_arrays_without_a_masked_value_are_arrays(make_table: TableMaker, way: str) -> None:
    table = make_table(signature=SIGNATURE, sampler=sr.selectors.Prioritized(1.0))
    table.insert_batch(steps(), [1.0, 1.0])
    WAYS[way](table, UNMASKED)
    batch = table.get(table.keys())
    assert 2.0 in (batch.data["x"].max(), batch.data["y"].max(), batch.priorities.max())


def test_batches_are_not_written_below_a_mask(make_table: TableMaker, tmp_path: pathlib.Path) -> None:
    table = make_table(signature={"x": sr.ArraySpec((), "float64")})
    table.insert_batch({"x": np.ones(2)})
    with pytest.raises(TypeError, match=r"out, 'x' is MaskedArray; expected a writable C-contiguous array"):
        table.sample(2, out={"x": MASKED.copy()})
    mapped = np.memmap(tmp_path / "batch", np.float64, "w+", shape=(2,))
    table.sample(2, out={"x": mapped})
    assert mapped.tolist() == [1, 1]

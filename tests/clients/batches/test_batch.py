"""Batch: structure, masks, lengths, and weights against closed forms on four rows."""

import re
from typing import Any

import numpy as np
import pytest

from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.batches.native import NativeBatch
from shmreplay.columns.signature import Signature
from shmreplay.columns.specs import ArraySpec

SIGNATURE = Signature.from_tree({"a": ArraySpec((2,), "float32"), "b": (ArraySpec((), "int64"),)}, "replay")
PROBABILITIES = np.array([0.1, 0.2, 0.3, 0.4])


def native(n: int, done: int, rows: int | None, masks: list[Any] | None = None, **changes: Any) -> Batch:
    """A batch of `done` out of n items, of `rows` rows each; None: squeezed."""
    axis = () if rows is None else (rows,)
    parts: dict[str, Any] = {
        "names": b"",
        "squeezed": [rows is None] * 2,
        "columns": [0, 1],
        "data": [np.zeros((n, *axis, 2), np.float32), np.zeros((n, *axis), np.int64)],
        "lengths": [np.full(n, rows or 1, np.int32)] * 2,
        "masks": masks or [None, None],
        "keys": np.arange(n),
        "priorities": np.ones(n),
        "probabilities": np.resize(PROBABILITIES, n),
        "times_sampled": np.arange(n),
        "table_size": np.full(n, 10),
        "episodes": np.arange(n),
        "steps": np.arange(n),
        "ages": np.arange(n),
    }
    smallest = changes.pop("smallest", 0.05)
    return Batch(NativeBatch(**{**parts, **changes}), done, SIGNATURE, smallest)


def test_only_what_was_drawn_is_shown() -> None:
    batch = native(5, 3, 4)
    assert len(batch) == 3
    assert batch.data["a"].shape == (3, 4, 2)
    assert batch.data["b"][0].shape == (3, 4)
    assert batch.mask["a"].shape == batch.mask["b"][0].shape == (3, 4)
    assert batch.lengths["a"].tolist() == [4, 4, 4]
    for values in (batch.keys, batch.times_sampled, batch.episodes, batch.steps, batch.ages):
        assert values.tolist() == [0, 1, 2]
    assert batch.weights(1.0).shape == (3,)
    assert repr(batch) == "<Batch of 3 items of table 'replay': a float32[3, 4, 2], b[0] int64[3, 4]>"


def test_squeezed_columns_have_a_mask_without_a_step_axis() -> None:
    batch = native(4, 4, None)
    assert batch.data["a"].shape == (4, 2)
    assert batch.mask["a"].tolist() == [True] * 4
    assert batch.mask["b"][0].dtype == bool
    assert batch.lengths["b"][0].tolist() == [1] * 4


def test_masks_that_the_core_made_are_shown_as_they_are() -> None:
    mask = np.array([[True, False], [True, True], [False, False]])
    batch = native(3, 2, 2, masks=[mask, None])
    assert batch.mask["a"].tolist() == [[True, False], [True, True]]
    assert batch.mask["b"][0].tolist() == [[True, True], [True, True]]


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0, 2.0])
def test_weights_are_the_closed_form(beta: float) -> None:
    batch = native(4, 4, None)
    plain = (10 * PROBABILITIES) ** -beta
    np.testing.assert_allclose(batch.weights(beta, None), plain)
    np.testing.assert_allclose(batch.weights(beta), (PROBABILITIES / 0.1) ** -beta)
    np.testing.assert_allclose(batch.weights(beta, "batch"), plain / plain.max())
    np.testing.assert_allclose(batch.weights(beta, "table"), plain / (10 * 0.05) ** -beta)
    assert batch.weights(beta).dtype == np.float64


def test_four_rows_by_hand() -> None:
    batch = native(
        4, 4, None, probabilities=np.array([0.5, 0.25, 0.125, 0.125]), table_size=np.full(4, 4), smallest=0.125
    )
    assert batch.weights(1.0, None).tolist() == [0.5, 1.0, 2.0, 2.0]
    assert batch.weights(1.0).tolist() == batch.weights(1.0, "table").tolist() == [0.25, 0.5, 1.0, 1.0]
    assert batch.weights(0.5, None).tolist() == pytest.approx([0.5**0.5, 1.0, 2**0.5, 2**0.5])


def test_a_table_that_grew_while_the_batch_was_drawn_counts_with_each_items_own_size() -> None:
    batch = native(2, 2, None, probabilities=np.array([0.1, 0.05]), table_size=np.array([10, 20]))
    assert batch.weights(1.0, None).tolist() == [1.0, 1.0]


def test_the_tables_weights_of_samplers_without_priorities_are_one() -> None:
    batch = native(4, 4, None, probabilities=np.full(4, 0.1), smallest=0.0)
    assert batch.weights(0.7, "table").tolist() == [1.0] * 4


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0, 30.0])
@pytest.mark.parametrize(
    "probabilities", [[1.0, 1e-300, 5e-324, 0.0], [5e-324, 5e-324, 0.0, 0.0], [1e-308, 1.0, 1.0, 1.0]]
)
def test_no_weight_is_nan_however_far_the_probabilities_are_apart(beta: float, probabilities: list[float]) -> None:
    batch = native(4, 4, None, probabilities=np.array(probabilities), smallest=min(filter(None, probabilities)))
    assert not np.isnan(batch.weights(beta, None)).any()
    for weights in (batch.weights(beta), batch.weights(beta, "table")):
        assert ((weights >= 0) & (weights <= 1)).all()
        assert weights[np.argmin(probabilities)] == 1.0


@pytest.mark.parametrize("normalise", ["batch", "table", None])
def test_an_empty_batch_has_no_weights(normalise: Any) -> None:
    batch = Batch.empty(SIGNATURE)
    assert batch.weights(0.5, normalise).tolist() == []
    assert len(batch) == 0
    assert batch.data["a"].shape == (0, 2)
    assert batch.data["b"][0].dtype == np.int64
    assert batch.mask["a"].tolist() == batch.lengths["a"].tolist() == batch.keys.tolist() == []


@pytest.mark.parametrize("beta", [-0.1, float("nan"), float("inf")])
def test_a_beta_that_is_none_is_refused(beta: float) -> None:
    with pytest.raises(ValueError, match=f"weights: beta is {beta}; expected a "):
        native(1, 1, None).weights(beta)


@pytest.mark.parametrize("beta", ["a", None, [0.4]])
def test_a_beta_of_another_type_is_refused(beta: Any) -> None:
    with pytest.raises(TypeError, match=re.escape(f"weights: beta is {beta!r}; expected a number")):
        native(1, 1, None).weights(beta)


def test_an_unknown_normalise_is_refused() -> None:
    with pytest.raises(ValueError, match="weights: normalise is 'max'; expected 'batch', 'table' or None"):
        native(1, 1, None).weights(0.5, "max")  # type: ignore[arg-type]

"""Priorities that rules compute from the data, and the priority of a sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shmreplay.base.checks import check_float
from shmreplay.base.dtypes import as_float64, is_added, is_real
from shmreplay.columns import structure
from shmreplay.columns.arrays import plain_array
from shmreplay.columns.leaves import EXPECTED_PLAIN
from shmreplay.columns.signature import Signature
from shmreplay.errors import SignatureMismatch

CALL, CONSTANT, COLUMN, TD = 0, 1, 2, 3


@dataclass(frozen=True)
class TdPriority:
    """Made by `td_priority`."""

    column: str
    eta: float = 0.9


PriorityRule: TypeAlias = float | str | TdPriority | None


def td_priority(column: str, eta: float = 0.9) -> TdPriority:
    """The priority `eta * max |d| + (1 - eta) * mean |d|` over an item's steps of a scalar column (R2D2,
    Kapturowski 2019). In a window with `burn_in`, only steps from the reference step on count.

    Raises:
        ValueError: eta is not in 0..1.
    """
    if not 0 <= check_float("td_priority", "eta", eta) <= 1:
        raise ValueError(f"td_priority: eta is {eta!r}; expected 0..1")
    return TdPriority(column, float(eta))


def sequence_priority(td: ArrayLike, mask: ArrayLike | None = None, eta: float = 0.9) -> NDArray[np.float64]:
    """The priorities of a batch of TD errors by the formula of `td_priority`, for `update_priorities`.

    Args:
        td: real numbers `[B, T]`.
        mask: bool `[B, T]`, True for the steps that count; None: all.
        eta: weight of the maximum, 0..1; the mean has the rest.

    Returns:
        float64 `[B]`; 0 for a row in which no step counts.

    Raises:
        ValueError: the shapes differ, or eta is not in 0..1.
    """
    if not 0 <= check_float("sequence_priority", "eta", eta) <= 1:
        raise ValueError(f"sequence_priority: eta is {eta!r}; expected 0..1")
    errors = np.abs(as_float64(plain_array(td)))
    if errors.ndim != 2:
        raise ValueError(f"sequence_priority: td has shape {errors.shape}; expected [batch, steps]")
    real = np.ones(errors.shape, np.bool_) if mask is None else plain_array(mask).astype(np.bool_)
    if real.shape != errors.shape:
        raise ValueError(f"sequence_priority: td has shape {errors.shape} and mask {real.shape}; expected the same")
    errors = np.where(real, errors, 0.0)
    counts = np.maximum(real.sum(axis=1), 1)
    largest: NDArray[np.float64] = errors.max(axis=1, initial=0.0)
    return np.asarray(eta * largest + (1 - eta) * errors.sum(axis=1) / counts, np.float64)


def read_priority(rule: PriorityRule, signature: Signature, where: str) -> tuple[int, float, int]:
    """Returns the rule as the core takes it.

    Raises:
        TypeError: it is not None, a number, a column's name, or `td_priority(...)`.
        ValueError: a number is not finite, or negative.
        SignatureMismatch: the column is unknown, or not a scalar of a real dtype.
    """
    if rule is None:
        return (CALL, 0.0, 0)
    if isinstance(rule, str):
        return (COLUMN, 0.0, scalar_column(rule, signature, f"{where}: priority"))
    if isinstance(rule, TdPriority):
        return (TD, rule.eta, scalar_column(rule.column, signature, f"{where}: td_priority"))
    value = check_float(where, "priority", rule)
    if not (np.isfinite(value) and value >= 0):
        raise ValueError(f"{where}: priority is {rule!r}; priorities must be finite and >= 0")
    return (CONSTANT, value, 0)


def priority_to_wire(rule: PriorityRule) -> object:
    """Returns the rule as plain values for msgpack; `priority_from_wire` is its inverse."""
    return ["td", rule.column, rule.eta] if isinstance(rule, TdPriority) else rule


def priority_from_wire(wire: Any) -> PriorityRule:
    """Remakes a rule from what `priority_to_wire` returned. `read_priority` checks it."""
    match wire:
        case ["td", str(column), float(eta)]:
            return td_priority(column, eta)
    return cast(PriorityRule, wire)


def scalar_column(path: str, signature: Signature, where: str) -> int:
    """Returns the number of a scalar column of a real dtype.

    Raises:
        SignatureMismatch: it is unknown, has a shape, is not a plain column, or its dtype is not bool, integer, float32
            or float64.
    """
    part = signature.part(path)
    if not isinstance(part, structure.LeafNode):
        names = ", ".join(leaf.path for leaf in signature.leaves)
        raise SignatureMismatch(
            f"{where}: no column {path!r}; the signature of table {signature.table_name!r} has {names}"
        )
    leaf = signature.leaves[part.index]
    spec = leaf.spec
    if leaf.flags != 0:
        raise SignatureMismatch(f"{where}: column {path!r} is {leaf}; expected {EXPECTED_PLAIN}")
    is_odd = is_added(spec.dtype) or spec.dtype == np.float16 or spec.dtype.itemsize > 8
    if spec.shape != () or not is_real(spec.dtype) or is_odd:
        raise SignatureMismatch(
            f"{where}: column {path!r} is {spec}; expected a scalar of bool, integer, float32 or float64"
        )
    return part.index

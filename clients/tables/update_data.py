"""The arrays that `table.update_data` writes to mutable columns, checked against the signature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from shmreplay.clients.batches.native import NativeOutput
from shmreplay.columns import conversion
from shmreplay.columns.conversion import Missing
from shmreplay.columns.leaves import Leaf
from shmreplay.columns.signature import Signature
from shmreplay.errors import SignatureMismatch
from shmreplay.rules.windows import Window
from shmreplay.tables.table import Table


def mutable_arrays(signature: Signature, values: object, num_keys: int) -> list[tuple[int, NDArray[Any]]]:
    """Returns number and array `[num_keys, k, *shape]` of each column that `values` has, exact and C-contiguous.

    Args:
        values: in the structure of the signature, with only the columns that are to change.
        num_keys: number of items.

    Raises:
        SignatureMismatch: a value does not fit, or is of a column that is not mutable; or there are no values.
    """
    where = f"table {signature.table_name!r}"
    found: list[tuple[int, NDArray[Any]]] = []
    num_steps: dict[int, str] = {}
    for leaf, value in zip(signature.leaves, signature.parts(values), strict=True):
        if isinstance(value, Missing):
            continue
        if not leaf.spec.mutable:
            raise SignatureMismatch(
                f"{where}, column {leaf.path!r}: is {leaf}; update_data changes mutable columns, declare it with "
                "mutable=True"
            )
        steps = _num_steps(value, leaf, where, num_keys)
        found.append((leaf.index, conversion.column_array(value, leaf, where, (num_keys, steps))))
        num_steps.setdefault(steps, leaf.path)
    if not found:
        raise SignatureMismatch(f"{where}: update_data has no values; expected at least one mutable column")
    if len(num_steps) > 1:
        (a, first), (b, second) = list(num_steps.items())[:2]
        raise SignatureMismatch(
            f"{where}: update_data has {a} steps of column {first!r} and {b} of column {second!r}; expected as many"
        )
    return found


def declared_steps(table: Table) -> int | None:
    """Steps of the longest item that the table can have, as declared; None: items are made by hand."""
    if table.item is None:
        return table.item_steps if table.item_steps > 1 else None
    is_whole_episode = isinstance(table.item, Window) and table.item.is_whole_episode
    return table.item_steps if is_whole_episode else table.item.num_steps(table.sig)


def known_steps(names: bytes | None, outputs: Sequence[NativeOutput] | None, size: int) -> int | None:
    """Steps of the longest item that a table has had, by the structure that the core reports.

    None: unknown, because the table has had no item, or because trajectories have more steps than an output shows.
    """
    if outputs is None:
        return 1 if size > 0 else None
    return None if names else max((rows for _, _, rows in outputs), default=1)


def _num_steps(value: object, leaf: Leaf, where: str, num_keys: int) -> int:
    shape: tuple[int, ...] = getattr(value, "shape", ())
    if len(shape) != len(leaf.spec.shape) + 2 or shape[0] != num_keys or shape[1] == 0:
        own = "".join(f", {size}" for size in leaf.spec.shape)
        raise SignatureMismatch(
            f"{where}, column {leaf.path!r}: expected {leaf.spec.dtype.name} ({num_keys}, k{own}) for {num_keys} keys "
            f"and k >= 1 steps, got {conversion.value_text(value)}; one step has an axis too: values[:, None]"
        )
    return int(shape[1])

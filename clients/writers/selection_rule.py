"""The rule of an item made by hand: the steps that its trajectory selects, and the values that it brings."""

from __future__ import annotations

from typing import Any

from shmreplay.clients.writers.history import Output
from shmreplay.columns import structure
from shmreplay.columns.signature import Signature
from shmreplay.rules.windows import REACH_HISTORY


def with_item_values(
    node: structure.Node, outputs: list[Output], signature: Signature, where: str
) -> tuple[structure.Node, list[Output]]:
    """Adds the columns that are per item to a trajectory's structure and outputs, under their own names.

    Raises:
        TypeError: the trajectory is not a dict, so it has no place for them.
        ValueError: the trajectory has an output of such a name already.
    """
    parts = signature.item_parts()
    if not parts:
        return node, outputs
    names = ", ".join(repr(name) for name in parts)
    if not isinstance(node, structure.DictNode):
        raise TypeError(
            f"{where}: is {structure.kind_text(node)}; expected a dict, since items bring {names}, which are shown in "
            "it under these names"
        )
    for name in parts:
        if name in node.keys:
            raise ValueError(
                f"{where}: has an output {name!r}, which is the name of a column per item; expected another name"
            )
    shown = [(column, True, False, ()) for part in parts.values() for column in structure.leaf_indices(part)]
    return structure.DictNode((*node.keys, *parts), (*node.children, *parts.values())), [*outputs, *shown]


def selection_rule(names: bytes, outputs: tuple[Output, ...], table: int) -> dict[str, Any]:
    """The rule, as the core reads it, of an item with these outputs in table number `table` of the arena."""
    ranges = [piece for _, _, _, slices in outputs for piece in slices]
    return {
        "table": table,
        "lo": min(begin if step > 0 else end + 1 for begin, end, step in ranges),
        "hi": max(end if step > 0 else begin + 1 for begin, end, step in ranges),
        "period": 1,
        "at_start": 0,
        "at_end": 0,
        "reach": REACH_HISTORY,
        "is_strict": True,
        "is_unroll": False,
        "names": names,
        "outputs": list(outputs),
        "conditions": [],
        "priority": (0, 0.0, 0, False),
    }

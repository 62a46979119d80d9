"""Item outputs: what a hand-made item shows of the values that it brings."""

from __future__ import annotations

from shmreplay import structure
from shmreplay.clients.history import Output
from shmreplay.signature import Signature


def with_item_values(
    node: structure.Node, outputs: list[Output], signature: Signature, where: str
) -> tuple[structure.Node, list[Output]]:
    """Returns a trajectory's structure and outputs with the columns that are per item, under their own names.

    Raises:
        TypeError: the trajectory is no dict, so that they have no place in it.
        ValueError: it has an output of such a name.
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
            raise ValueError(f"{where}: names an output {name!r}, which is what items bring; expected another name")
    shown = [(column, True, False, ()) for part in parts.values() for column in structure.leaf_indices(part)]
    return structure.DictNode((*node.keys, *parts), (*node.children, *parts.values())), [*outputs, *shown]

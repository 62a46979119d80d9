"""ItemStructure: the structure of a batch of items, if it is not the signature itself."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack

from shmreplay.columns import structure
from shmreplay.columns.signature import Signature
from shmreplay.errors import SignatureMismatch


@dataclass(frozen=True)
class Selected:
    """An output, and the part of the signature that it shows: the path of a column, or a prefix of several paths."""

    name: str
    source: str


@dataclass(frozen=True)
class ItemStructure:
    """A dict of outputs, each a part of the signature.

    Attributes:
        columns: for each output, the numbers of the signature's columns that it shows, in order.
        names: the nesting of the outputs, as msgpack, which a segment stores with its patterns.
    """

    columns: tuple[tuple[int, ...], ...]
    names: bytes

    @classmethod
    def of(cls, signature: Signature, outputs: Iterable[Selected]) -> ItemStructure:
        """Makes the structure. Raises SignatureMismatch for an unknown source; the text names the known ones."""
        outputs = list(outputs)
        parts = [signature.part(output.source) for output in outputs]
        for output, part in zip(outputs, parts, strict=True):
            if part is None:
                raise SignatureMismatch(
                    f"table {signature.table_name!r}: output {output.name!r} wants column {output.source!r}; the "
                    f"signature has {', '.join(leaf.path for leaf in signature.leaves)}"
                )
        columns = tuple(tuple(structure.leaf_indices(part)) for part in parts if part is not None)
        tree = structure.DictNode(
            tuple(output.name for output in outputs), tuple(part for part in parts if part is not None)
        )
        return cls(columns, pack_node(tree))


def pack_node(node: structure.Node) -> bytes:
    """Packs the nesting of outputs as a segment stores it; `node_of` is its inverse."""
    packed: bytes = msgpack.packb(structure.to_wire(node))
    return packed


def item_output(column: int) -> tuple[int, bool, bool, list[tuple[int, int, int]]]:
    """An output of a column that is per item, as the core takes it: without steps."""
    return (column, True, False, [])


def has_steps(signature: Signature, columns: Iterable[int]) -> bool:
    """Whether at least one of the columns belongs to steps."""
    return not all(signature.leaves[column].spec.is_per_item for column in columns)


@functools.lru_cache(maxsize=256)
def node_of(names: bytes) -> structure.Node:
    """Returns what `pack_node` packed, its leaves numbered depth first."""
    return structure.from_wire(msgpack.unpackb(names), itertools.count())


def describe_outputs(signature: Signature, names: bytes, outputs: Sequence[Sequence[Any]]) -> str:
    """What an item shows, for errors.

    Args:
        names: as `ItemStructure.names`; empty for the signature itself.
        outputs: for each output its column, and whether it has no step axis.
    """
    columns = [signature.leaves[output[0]].path for output in outputs]
    nested = list(structure.leaf_paths(node_of(names))) if names else columns
    paths = [
        column if path in ("", column) else f"{path} (column {column!r})"
        for path, column in zip(nested, columns, strict=True)
    ]
    with_steps = [path for path, output in zip(paths, outputs, strict=True) if not output[1]]
    single = [path for path, output in zip(paths, outputs, strict=True) if output[1]]
    groups = ((with_steps, "several steps of "), (single, "one step of "))
    return " and ".join(f"{what}{_listed(group)}" for group, what in groups if group)


def _listed(names: Sequence[str]) -> str:
    """Names, at most ten of them."""
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def unflatten_outputs(names: bytes, values: Sequence[object]) -> Any:
    """Returns the nested structure that `names` describes, with `values[i]` for output i."""
    return structure.unflatten(node_of(names), values)

"""The tables of an arena as bytes: what its index segment, a checkpoint and a file of items keep of them."""

from __future__ import annotations

from collections.abc import Iterable

import msgpack

from shmreplay.tables.table import Table


def pack_specs(tables: Iterable[Table]) -> bytes:
    """Returns the msgpack form of an arena's tables that its index segment keeps."""
    packed: bytes = msgpack.packb([table.to_wire() for table in tables])
    return packed


def unpack_specs(packed: bytes) -> tuple[Table, ...]:
    """Remakes an arena's tables from what `pack_specs` returned.

    Raises:
        TypeError, ValueError: malformed.
    """
    try:
        wires = msgpack.unpackb(packed)
    except (ValueError, msgpack.UnpackException) as error:
        raise ValueError(f"table specs: {len(packed)} bytes that are not msgpack ({error})") from error
    if not isinstance(wires, list):
        raise ValueError(f"table specs: expected a list of tables, got {wires!r:.100}")
    return tuple(Table.from_wire(wire) for wire in wires)

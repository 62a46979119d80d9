"""The tables of an arena as bytes, for its index segment, for checkpoints and for files of items."""

from __future__ import annotations

from collections.abc import Iterable

import msgpack

from shmreplay.tables.table import Table


def pack_specs(tables: Iterable[Table]) -> bytes:
    """Packs the tables of an arena with msgpack."""
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

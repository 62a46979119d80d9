"""The error for an item whose structure is not that of the items of its table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from shmreplay import _core
from shmreplay.columns.item_structure import describe_outputs
from shmreplay.columns.signature import Signature
from shmreplay.errors import SignatureMismatch
from shmreplay.tables.table import Table

ADVICE = (
    "the items of a table have one structure, that of Table(item=...), or else of its first item: declare item=, make "
    "them alike, or give the others a table of their own, which shares the steps (arena=)"
)


def raise_other_structure(
    where: str, arena: _core.Arena, tables: Sequence[Table], made: Iterable[tuple[str, Mapping[str, Any]]]
) -> NoReturn:
    """Raises SignatureMismatch, which names both structures.

    Args:
        where: the table, the call and the stream, for the text.
        tables: those of the arena.
        made: what the call could have made: what it is, such as "patterns[0]", and the rule as the core takes it.
    """
    items: dict[int, tuple[str, str]] = {}  # by table: what there is, and what it shows
    for index in range(arena.num_tables):
        if (text := shown_by_items(arena, index, tables[index].sig)) is not None:
            items[index] = "the items show", text
    for what, rule in made:
        index = rule["table"]
        shown = describe_outputs(tables[index].sig, rule["names"], rule["outputs"])
        known, there = items.setdefault(index, (f"{what} shows", shown))
        if there != shown:
            raise SignatureMismatch(
                f"{where}: {what} shows {shown}, but {known} {there} in table {tables[index].name!r}; {ADVICE}"
            )
    all_known = "; ".join(f"{known} {there} in table {tables[index].name!r}" for index, (known, there) in items.items())
    raise SignatureMismatch(f"{where}: the item shows other things than those of its table: {all_known}; {ADVICE}")


def shown_by_items(arena: _core.Arena, index: int, signature: Signature) -> str | None:
    """What the items of a table of the arena show; None if it never had one."""
    _, names, outputs = arena.table(index).structure(False, False, 0)
    return None if names is None or outputs is None else describe_outputs(signature, names, outputs)

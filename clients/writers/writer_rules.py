"""The rules of a writer: windows and patterns that make items of its steps, checked against its history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shmreplay.columns.signature import Signature
from shmreplay.errors import SignatureMismatch
from shmreplay.rules.item_rules import RULES, Rule
from shmreplay.rules.windows import Window
from shmreplay.tables.table import Table


def read_rules(patterns: Iterable[object] | None, where: str) -> list[Rule]:
    """Returns the rules in a writer's `patterns=`. Raises TypeError for anything else."""
    if not (patterns is None or isinstance(patterns, Iterable)):
        raise TypeError(f"{where}: patterns is {patterns!r}; expected a list of them, [sr.NStep(3)]")
    rules: list[Rule] = []
    for rule in patterns or ():
        if not isinstance(rule, RULES):
            raise TypeError(f"{where}: patterns= has {rule!r}; expected windows and patterns, such as sr.NStep(3)")
        rules.append(rule)
    return rules


def steps_needed(rules: Sequence[Rule], signature: Signature) -> int:
    """How many steps a writer must hold for all these rules, the newest included; 1 without rules."""
    return max((rule.num_steps(signature) for rule in rules), default=1)


def room_for(num_chunks: int, chunk_steps: int, rules: Sequence[Rule], signature: Signature) -> int:
    """How many steps a stream of so many chunks can hold. One chunk more is begun before the oldest is freed."""
    if any(isinstance(rule, Window) and rule.fills_chunks(signature) for rule in rules):
        return (num_chunks - 1) * max(chunk_steps - 1, 1) + 1  # each chunk shares a step with the one before
    return (num_chunks - 1) * chunk_steps


def check_structure(rule: Mapping[str, Any], table: Table, signature: Signature, where: str) -> None:
    """Raises SignatureMismatch if the rule, as the core reads it, makes other items than the table's `item` says."""
    if table.item is None:
        return
    declared = table.item.native(signature, 0, where)
    if _structure(rule) != _structure(declared):
        raise SignatureMismatch(
            f"{where}: makes items of another structure than table {table.name!r} declares; its item is {table.item!r}"
        )


def _structure(rule: Mapping[str, Any]) -> tuple[Any, ...]:
    """The names, and for each output its column and whether it has no step axis."""
    return (rule["names"], [output[:2] for output in rule["outputs"]])


def check_history(history: int, rules: Sequence[Rule], signature: Signature, room: int, where: str) -> None:
    """Raises ValueError if the history is shorter than a rule needs, or longer than the arena has room for."""
    if (needed := steps_needed(rules, signature)) > history:
        raise ValueError(
            f"{where}: history is {history}, but a pattern reaches over {needed} steps; raise it to that, or "
            "leave it out"
        )
    if history > room:
        raise ValueError(
            f"{where}: history is {history}, but the arena has room for {max(room, 0)} steps of a stream: it would "
            "wait for itself; create the table with a larger capacity_steps, or keep less"
        )

"""Rules of a writer: the windows and patterns that make items of its steps, checked against what it holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from shmreplay.patterns import Pattern
from shmreplay.signature import Signature
from shmreplay.windows import Window

Rule: TypeAlias = Window | Pattern


def read_rules(patterns: Iterable[object] | None, where: str) -> list[Rule]:
    """Returns the rules of a writer's `patterns=`. Raises TypeError for what is none."""
    rules: list[Rule] = []
    for rule in patterns or ():
        if not isinstance(rule, (Window, Pattern)):
            raise TypeError(f"{where}: patterns= has {rule!r}; expected windows and patterns, such as sr.NStep(3)")
        rules.append(rule)
    return rules


def steps_needed(rules: Sequence[Rule], signature: Signature) -> int:
    """Steps that a writer must hold for all of them, the newest included; 1 if there are none."""
    return max((rule.num_steps(signature) for rule in rules), default=1)


def check_history(history: int, rules: Sequence[Rule], signature: Signature, room: int, where: str) -> None:
    """Raises ValueError if the history is shorter than a rule needs, or longer than the arena has room for."""
    if (needed := steps_needed(rules, signature)) > history:
        raise ValueError(
            f"{where}: history is {history}, but a pattern reaches over {needed} steps; raise it to that, or leave it out"
        )
    if history > room:
        raise ValueError(
            f"{where}: history is {history}, but the arena has room for {room} steps of a writer: it would wait for "
            "itself; create the table with a larger capacity_steps, or keep less"
        )

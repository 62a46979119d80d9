"""Rules that make items from steps: windows and patterns. The core gets both as numbers."""

from __future__ import annotations

from typing import TypeAlias

from shmreplay.base.checks import wire_field
from shmreplay.rules.patterns import Pattern
from shmreplay.rules.windows import Window

Rule: TypeAlias = Window | Pattern
RULES = (Window, Pattern)


def rule_to_wire(rule: Rule | None) -> dict[str, object] | None:
    """Returns a dict of plain values for msgpack; `rule_from_wire` is its inverse."""
    return None if rule is None else {"rule": type(rule).__name__, **rule.to_wire()}


def rule_from_wire(wire: object) -> Rule | None:
    """Remakes a rule from what `rule_to_wire` returned.

    Raises:
        TypeError, ValueError: malformed, or of a kind that this version does not know.
    """
    if wire is None:
        return None
    name = wire_field("item", wire, "rule")
    for kind in RULES:
        if kind.__name__ == name:
            return kind.from_wire(wire)
    raise ValueError(f"item: unknown rule {name!r:.100}; expected a window or a pattern")

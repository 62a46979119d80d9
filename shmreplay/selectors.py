"""Selectors: the rules by which a table picks the item to sample, or the item to remove when it is full.

Every table has two, its sampler and its remover; any selector can be either. Here they are plain values; their data
structures are in the segment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from shmreplay.base.checks import check_float, wire_field

__all__ = ["Fifo", "Lifo", "MaxHeap", "MinHeap", "Prioritized", "Selector", "Uniform"]


@dataclass(frozen=True)
class Selector:
    """Base class of all selectors. It has no rule itself, so a table refuses it."""

    kind: ClassVar[int] = -1
    """The selector's number in the segment."""

    @property
    def exponent(self) -> float:
        """Priority exponent; 0.0 where the selector has none."""
        return 0.0

    def to_wire(self) -> dict[str, object]:
        """Returns a dict of plain values for msgpack; `from_wire` is its inverse."""
        return {"kind": type(self).__name__}


@dataclass(frozen=True)
class Fifo(Selector):
    """The item inserted first. Priorities do not matter; the probability reported is 1."""

    kind: ClassVar[int] = 0


@dataclass(frozen=True)
class Lifo(Selector):
    """The item inserted last. Priorities do not matter; the probability reported is 1."""

    kind: ClassVar[int] = 1


@dataclass(frozen=True)
class Uniform(Selector):
    """Any of the N items with probability 1/N; the draws are independent."""

    kind: ClassVar[int] = 2


@dataclass(frozen=True)
class Prioritized(Selector):
    """Item i with probability `p_i^a / sum(p^a)`, where a is `priority_exponent`.

    An item of priority 0 is never drawn, whatever the exponent. If all are 0, all are equally likely.

    Args:
        priority_exponent: a, finite and >= 0.

    Raises:
        TypeError: the exponent is not a number.
        ValueError: the exponent is negative, infinite or NaN.
    """

    kind: ClassVar[int] = 3
    priority_exponent: float

    def __post_init__(self) -> None:
        value = check_float("Prioritized", "priority_exponent", self.priority_exponent)
        if value < 0 or math.isinf(value):
            raise ValueError(f"Prioritized: priority_exponent is {value}; expected a finite number >= 0")
        object.__setattr__(self, "priority_exponent", value)

    @property
    def exponent(self) -> float:
        """Priority exponent."""
        return self.priority_exponent

    def to_wire(self) -> dict[str, object]:
        """Returns a dict of plain values for msgpack; `from_wire` is its inverse."""
        return {**super().to_wire(), "priority_exponent": self.priority_exponent}


@dataclass(frozen=True)
class MinHeap(Selector):
    """The item of the lowest priority; among equals the one inserted or updated longest ago."""

    kind: ClassVar[int] = 4


@dataclass(frozen=True)
class MaxHeap(Selector):
    """The item of the highest priority; among equals the one inserted or updated longest ago."""

    kind: ClassVar[int] = 5


_PLAIN: dict[object, type[Selector]] = {cls.__name__: cls for cls in (Fifo, Lifo, Uniform, MinHeap, MaxHeap)}


def of_kind(kind: int, exponent: float) -> Selector:
    """Returns the selector with that number in the segment; `exponent` is for the kinds that have one.

    Raises:
        ValueError: this version does not know the kind.
    """
    if kind == Prioritized.kind:
        return Prioritized(exponent)
    for selector in _PLAIN.values():
        if selector.kind == kind:
            return selector()
    raise ValueError(f"selector: kind is {kind}; expected one of 0 to {max(s.kind for s in _PLAIN.values())}")


def from_wire(wire: object) -> Selector:
    """Remakes a selector from what its `to_wire` returned.

    Raises:
        TypeError: the exponent is not a number.
        ValueError: malformed, or of a kind that this version does not know.
    """
    kind = wire_field("selector", wire, "kind")
    if kind == "Prioritized":
        return Prioritized(wire_field("selector Prioritized", wire, "priority_exponent"))  # type: ignore[arg-type]
    if not isinstance(kind, str) or kind not in _PLAIN:
        raise ValueError(f"selector: unknown kind {kind!r}; expected one of {', '.join(map(str, _PLAIN))}, Prioritized")
    return _PLAIN[kind]()

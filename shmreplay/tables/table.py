"""Table: the declaration of a table, checked when it is made."""

from __future__ import annotations

import copy
import re
import warnings
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from typing import Any

from shmreplay import rate_limiters, selectors
from shmreplay.base.checks import INT32_MAX, check_choice, check_int, wire_field
from shmreplay.columns.signature import Signature
from shmreplay.errors import SignatureMismatch
from shmreplay.rules.end_columns import check_end_columns, read_ends, warn_if_ends_are_unknown
from shmreplay.rules.item_rules import RULES, Rule, rule_from_wire, rule_to_wire
from shmreplay.rules.windows import Window
from shmreplay.tables.shards import MAX_SHARDS, check_limiter_parts, limiter_part, part_of, shard_name

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MAX_STEPS = 2**48
MAX_CHUNK_STEPS = 2**24
# max_size + 1 item records must fit into an int32.
INTS = {
    "max_size": (1, INT32_MAX - 1),
    "max_times_sampled": (0, INT32_MAX),
    "item_steps": (1, INT32_MAX),
    "max_streams": (1, INT32_MAX),
    "max_sessions": (1, 2**20 - 1),
    "shards": (1, MAX_SHARDS),
}


@dataclass(frozen=True)
class Table:
    """A table to be created: an index of items over the steps of an arena.

    Args:
        name: at most 64 letters, digits, `_` and `-`, because it becomes part of a segment's name.
        signature: nested dict, list, tuple or named tuple of columns; see `Signature.from_tree`. None: each step may
            have its own structure; it is stored with a description of itself, and sampled as it was inserted.
        max_size: largest number of items, 1..2**31 - 2. In a full table, the remover deletes one item for each insert.
        sampler: picks the items to sample.
        remover: picks the items to delete when the table is full.
        rate_limiter: how far sampling and inserting may run ahead of each other.
        max_times_sampled: an item is deleted after it was sampled this many times; 0 means never. A table with such a
            limit *consumes*: it never deletes an item for lack of chunks; its writers wait instead.
        item: the window or pattern of its items, such as `sr.NStep(3)`. Writers without patterns make these items, and
            every item must have this structure. None: all items must have the structure of the first one.
        item_steps: number of steps of the longest item, to size the arena; 1 means the number that `item` covers.
        arena: name of the arena for the steps; None: the table's name.
        chunk_steps: steps per chunk, at most 2**24; None: chosen by size, see `shmreplay.tables.plan`.
        capacity_steps: number of steps to have room for; None: what `max_size` items need at worst.
        on_full: what a writer does if no chunk is free: "wait", "error" (raise `ArenaFull`), or None: it waits if the
            table consumes; in any other table it frees the oldest chunk, with its items.
        max_streams: largest number of open streams of writers.
        max_sessions: largest number of attached processes.
        mean_bytes: if `signature` is None, the average stored bytes of a step, to size the arena; None: 1024.
        shards: number of arenas that the items are spread over, each with its own lock: see docs/shards.md. More than 1
            needs a Uniform or Prioritized sampler, a Fifo remover and columns of a fixed shape.
        ends: paths of the columns that end episodes, at most one `terminated` and one `truncated`, such as
            `("step/terminated",)`; `()`: none does. None: columns of these names at the top of the signature. Others
            of these names, such as one for each agent, are data like any other.

    Attributes:
        sig: the signature, parsed.
        whole: for a shard, the whole table; otherwise None.
        shard: for a shard, its number; otherwise 0.

    Warns:
        UserWarning: the rate limiter's `min_size_to_sample` is more than `max_size`, so sampling never starts. Or
            `item` is a window, and the only end of episodes is a column that ends none: `done` or `dones`, or a
            `terminated` or `truncated` that is not at the top of the signature.

    Raises:
        TypeError: an argument has the wrong type, or the signature has a leaf that is not a column.
        ValueError: an argument is out of range, or conflicts with another one; or a column that ends episodes is not
            a bool of shape ().
        SignatureMismatch: `item` names an unknown column.
    """

    name: str
    signature: Any = field(compare=False)  # trees may have arrays, which do not compare; sig does
    max_size: int
    _: KW_ONLY
    sampler: selectors.Selector = field(default_factory=selectors.Uniform)
    remover: selectors.Selector = field(default_factory=selectors.Fifo)
    rate_limiter: rate_limiters.RateLimiter = field(default_factory=lambda: rate_limiters.MinSize(1))
    max_times_sampled: int = 0
    item: Rule | None = None
    item_steps: int = 1
    arena: str | None = None
    chunk_steps: int | None = None
    capacity_steps: int | None = None
    on_full: str | None = None
    max_streams: int = 1024
    max_sessions: int = 1024
    mean_bytes: int | None = None
    shards: int = 1
    ends: tuple[str, ...] | None = None
    sig: Signature = field(init=False, repr=False)
    whole: Table | None = field(init=False, repr=False, compare=False, default=None)
    shard: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        _check_name("table", "name", self.name)
        where = f"table {self.name!r}"
        for name, (low, high) in INTS.items():
            object.__setattr__(self, name, check_int(where, name, getattr(self, name), low, high))
        _check_part(where, "sampler", self.sampler, selectors.Selector, selectors.Uniform())
        _check_part(where, "remover", self.remover, selectors.Selector, selectors.Fifo())
        _check_part(where, "rate_limiter", self.rate_limiter, rate_limiters.RateLimiter, rate_limiters.MinSize(1))
        object.__setattr__(self, "sig", self._read_signature(where))
        if self.item is not None:
            self._check_item(where, self.item)
        self._check_room(where)
        self._check_shards(where)
        warn_if_never_sampled(self.name, self.max_size, self.rate_limiter, stacklevel=3)
        warn_if_ends_are_unknown(self.sig, self.ends, self.item, f"{where}: item is a window", stacklevel=3)

    def _read_signature(self, where: str) -> Signature:
        if self.signature is None:
            if self.ends is not None:
                raise ValueError(
                    f"{where}: ends is {self.ends!r}, but signature is None; declare columns, or leave it out"
                )
            return Signature.free(self.name, self.mean_bytes)
        if self.mean_bytes is not None:
            raise ValueError(
                f"{where}: mean_bytes is {self.mean_bytes}, but there is a signature; give it to the columns, "
                "ArraySpec(mean_bytes=...)"
            )
        sig = Signature.from_tree(self.signature, self.name)
        if self.ends is not None:
            object.__setattr__(self, "ends", read_ends(self.ends, sig, where))
        check_end_columns(sig, self.ends, where)
        return sig

    def _check_item(self, where: str, item: object) -> None:
        """Checks the rule, and that `item_steps` is enough for it."""
        if not isinstance(item, RULES):
            raise TypeError(f"{where}: item is {item!r}; expected a window such as sr.NStep(3), a pattern, or None")
        if item.table not in (None, self.name):
            raise ValueError(f"{where}: item is a rule of table {item.table!r}; expected none, or this one")
        if self.sig.is_free and isinstance(item, Window):
            raise SignatureMismatch(
                f"{where}: item is a window, which names columns, and signature is None: declare them, or leave item "
                "out and make items by hand, create_item(length=...)"
            )
        item.native(self.sig, 0, f"{where}: item")
        check_brings_no_values(self.sig, f"{where}: item is a window")
        steps = item.num_steps(self.sig)
        if self.item_steps == 1:
            object.__setattr__(self, "item_steps", steps)
        if isinstance(item, Window) and item.is_whole_episode and self.item_steps == 1:
            raise ValueError(
                f"{where}: item is a whole episode; give item_steps: the steps of the longest episode, its final "
                "step included"
            )
        if self.item_steps < steps:
            raise ValueError(f"{where}: item_steps is {self.item_steps}, but item reaches over {steps}; leave it out")

    def _check_room(self, where: str) -> None:
        """Checks the arguments that size the arena."""
        if self.arena is not None:
            _check_name(where, "arena", self.arena)
        check_choice(where, "on_full", self.on_full, (None, "wait", "error"))
        if self.chunk_steps is not None:
            object.__setattr__(
                self, "chunk_steps", check_int(where, "chunk_steps", self.chunk_steps, 1, MAX_CHUNK_STEPS)
            )
        if self.capacity_steps is not None:
            steps = check_int(where, "capacity_steps", self.capacity_steps, 1, _MAX_STEPS)
            if steps < self.item_steps:
                raise ValueError(
                    f"{where}: capacity_steps is {steps}; expected at least item_steps, {self.item_steps}, "
                    "or an item of that length never fits"
                )
            object.__setattr__(self, "capacity_steps", steps)

    def _check_shards(self, where: str) -> None:
        """Raises ValueError if the table cannot be divided into its `shards`."""
        shards = self.shards
        if shards == 1:
            return
        self._check_rules_of_shards(where, f"with shards={shards}")
        self._check_sizes_of_shards(where, f"with shards={shards}")
        check_limiter_parts(where, self.rate_limiter, shards)

    def _check_rules_of_shards(self, where: str, shards: str) -> None:
        if not isinstance(self.sampler, (selectors.Uniform, selectors.Prioritized)):
            raise ValueError(
                f"{where}: sampler is {self.sampler!r} {shards}; expected Uniform or Prioritized, or no shards"
            )
        if not isinstance(self.remover, selectors.Fifo):
            raise ValueError(f"{where}: remover is {self.remover!r} {shards}; expected Fifo, or no shards")
        if self.max_times_sampled > 0:
            raise ValueError(
                f"{where}: max_times_sampled is {self.max_times_sampled} {shards}; a table that consumes its items "
                "has no shards: leave one of them out"
            )
        if self.arena is not None:
            raise ValueError(
                f"{where}: arena is {self.arena!r} {shards}; each shard has an arena of its own: leave one out"
            )
        if self.sig.is_free or any(leaf.spec.in_heap for leaf in self.sig.leaves):
            raise ValueError(
                f"{where}: it has columns that are compressed, of variable shape, optional or per item, or no "
                f"signature, {shards}; shards are for columns of a fixed shape as yet: leave shards out"
            )
        if self.item is None and self.item_steps > 1:
            raise ValueError(
                f"{where}: item_steps is {self.item_steps} {shards} and no item; declare the structure that the items "
                "of all shards have, item=sr.Sequence(...)"
            )

    def _check_sizes_of_shards(self, where: str, shards: str) -> None:
        if self.max_size < self.shards:
            raise ValueError(f"{where}: max_size is {self.max_size} {shards}; expected at least one item a shard")
        if self.capacity_steps is not None and self.capacity_steps // self.shards < self.item_steps:
            raise ValueError(
                f"{where}: capacity_steps is {self.capacity_steps} {shards}; expected at least item_steps, "
                f"{self.item_steps}, a shard"
            )
        if self.max_streams < self.shards:
            raise ValueError(f"{where}: max_streams is {self.max_streams} {shards}; expected at least one a shard")

    @classmethod
    def queue(cls, name: str, signature: Any, max_size: int, **options: Any) -> Table:
        """Makes a table whose items are sampled once, oldest first; inserting waits while it holds `max_size` items.

        Args:
            name, signature, max_size: as of `Table`.
            **options: as of `Table`, except the selectors, the rate limiter and `max_times_sampled`.

        Raises:
            TypeError, ValueError: as `Table`; or one of those four is given.
        """
        return cls._consumed("queue", selectors.Fifo(), rate_limiters.Queue, name, signature, max_size, options)

    @classmethod
    def stack(cls, name: str, signature: Any, max_size: int, **options: Any) -> Table:
        """Makes a table whose items are sampled once, newest first; inserting waits while it holds `max_size` items.

        Args:
            name, signature, max_size: as of `Table`.
            **options: as of `Table`, except the selectors, the rate limiter and `max_times_sampled`.

        Raises:
            TypeError, ValueError: as `Table`; or one of those four is given.
        """
        return cls._consumed("stack", selectors.Lifo(), rate_limiters.Stack, name, signature, max_size, options)

    @classmethod
    def _consumed(
        cls,
        maker: str,
        selector: selectors.Selector,
        limiter: type[rate_limiters.Queue],
        name: str,
        signature: Any,
        max_size: int,
        options: dict[str, Any],
    ) -> Table:
        fixed = {"sampler", "remover", "rate_limiter", "max_times_sampled"}
        if clash := sorted(fixed & options.keys()):
            raise TypeError(f"table {name!r}: Table.{maker} sets {clash[0]} itself; leave it out, or use Table(...)")
        # Checked before the limiter is made, so that the error names the table's argument.
        size = check_int(f"table {name!r}", "max_size", max_size, *INTS["max_size"])
        return cls(
            name,
            signature,
            size,
            sampler=selector,
            remover=selector,
            rate_limiter=limiter(size),
            max_times_sampled=1,
            **options,
        )

    @property
    def consuming(self) -> bool:
        """Whether sampling uses items up."""
        return self.max_times_sampled > 0

    @property
    def arena_name(self) -> str:
        """Name of the arena with the table's steps."""
        return self.name if self.arena is None else self.arena

    @property
    def owner(self) -> Table:
        """For a shard, the whole table; otherwise the table itself."""
        return self if self.whole is None else self.whole

    @property
    def parts(self) -> tuple[Table, ...]:
        """The tables of its shards; without shards, and for a shard, only the table itself."""
        if self.shards == 1 or self.whole is not None:
            return (self,)
        return tuple(self._part(number) for number in range(self.shards))

    def _part(self, number: int) -> Table:
        part = copy.copy(self)
        values: dict[str, Any] = {
            "name": shard_name(self.name, number),
            "max_size": part_of(self.max_size, self.shards, number),
            "rate_limiter": limiter_part(self.rate_limiter, self.shards, number),
            "max_streams": part_of(self.max_streams, self.shards, number),
            "whole": self,
            "shard": number,
        }
        if self.capacity_steps is not None:
            values["capacity_steps"] = part_of(self.capacity_steps, self.shards, number)
        if self.item is not None and self.item.table is not None:
            values["item"] = replace(self.item, table=None)  # it names the whole table
        for name, value in values.items():
            object.__setattr__(part, name, value)
        return part

    def difference(self, other: Table) -> list[str]:
        """Lists the differences between this table, which exists, and `other`, which is asked for.

        The order of a dict's keys in the signature does not matter. Shards are compared by their whole tables.
        """
        if self.whole is not None or other.whole is not None:
            return self.owner.difference(other.owner)
        texts = [
            f"{name}: is {getattr(self, name)!r}, asked for {getattr(other, name)!r}"
            for name in (part.name for part in fields(self))
            if name not in ("signature", "sig", "whole", "shard") and getattr(self, name) != getattr(other, name)
        ]
        return texts + self.sig.difference(other.sig)

    def to_wire(self) -> dict[str, object]:
        """Returns a dict of plain values for msgpack; `from_wire` is its inverse."""
        if self.whole is not None:
            return {**self.whole.to_wire(), "shard": self.shard}
        wire: dict[str, object] = {name: getattr(self, name) for name in (*_PLAIN, "shards")}
        ends = {} if self.ends is None else {"ends": list(self.ends)}  # older specs lack it
        return {
            **wire,
            **ends,
            "item": rule_to_wire(self.item),
            "signature": self.sig.to_wire(),
            "sampler": self.sampler.to_wire(),
            "remover": self.remover.to_wire(),
            "rate_limiter": self.rate_limiter.to_wire(),
        }

    @classmethod
    def from_wire(cls, wire: object) -> Table:
        """Remakes a table from what `to_wire` returned.

        Raises:
            TypeError, ValueError: malformed, or not a table that `Table` would take.
        """
        name, signature, sampler, remover, limiter = (
            wire_field("table", wire, part) for part in ("name", "signature", "sampler", "remover", "rate_limiter")
        )
        _check_name("table", "name", name)
        plain: dict[str, Any] = {part: wire_field(f"table {name!r}", wire, part) for part in _PLAIN}
        item = wire_field(f"table {name!r}", wire, "item")
        assert isinstance(wire, dict)  # otherwise wire_field() would have raised
        table = cls(
            **plain,
            ends=wire.get("ends"),
            signature=Signature.from_wire(signature, str(name)).specs,
            sampler=selectors.from_wire(sampler),
            remover=selectors.from_wire(remover),
        )
        # Set after the constructor, whose checks would warn again: the process that made the table was warned.
        object.__setattr__(table, "rate_limiter", rate_limiters.from_wire(limiter))
        if (rule := rule_from_wire(item)) is not None:
            object.__setattr__(table, "item", rule)
            table._check_item(f"table {name!r}", rule)
        # Older versions did not know shards, so the field may be missing.
        shards = check_int(f"table {name!r}", "shards", wire.get("shards", 1), *INTS["shards"])
        object.__setattr__(table, "shards", shards)
        table._check_shards(f"table {name!r}")
        if (shard := wire.get("shard")) is None:
            return table
        return table._part(check_int(f"table {name!r}", "shard", shard, 0, shards - 1))


# Fields that are sent as they are.
_PLAIN = (
    "name",
    "max_size",
    "max_times_sampled",
    "item_steps",
    "arena",
    "chunk_steps",
    "capacity_steps",
    "on_full",
    "max_streams",
    "max_sessions",
    "mean_bytes",
)


def warn_if_never_sampled(name: str, max_size: int, limiter: rate_limiters.RateLimiter, stacklevel: int) -> None:
    """Warns if a limiter waits for more items than the table can have; `stacklevel` counts from the caller."""
    if limiter.min_size_to_sample > max_size:
        warnings.warn(
            f"table {name!r}: min_size_to_sample is {limiter.min_size_to_sample}, more than max_size {max_size}: "
            "sampling never starts",
            stacklevel=stacklevel + 1,
        )


def check_brings_no_values(signature: Signature, where: str) -> None:
    """Raises ValueError if the table needs values for each item; the items here bring none."""
    for leaf in signature.item_leaves:
        if not leaf.spec.optional:
            raise ValueError(
                f"{where}, which brings no value of column {leaf.path!r}, one per item: make the items by hand, "
                "create_item(values={...}), or declare the column with optional=True"
            )


def _check_name(where: str, what: str, name: object) -> None:
    expected = "expected 1 to 64 letters, digits, '_' and '-' (it becomes part of a segment's name)"
    if not isinstance(name, str):
        raise TypeError(f"{where}: {what} is {name!r}; {expected}")
    if not _NAME.fullmatch(name):
        raise ValueError(f"{where}: {what} is {name!r}; {expected}")


def _check_part(where: str, name: str, value: object, base: type, example: object) -> None:
    if isinstance(value, type) and issubclass(value, base):
        made = f"{value.__name__}(...)"
        raise TypeError(f"{where}: {name} is the class {value.__name__}; expected an object of it, {made}")
    if not isinstance(value, base) or type(value) is selectors.Selector:
        raise TypeError(f"{where}: {name} is {value!r}; expected a {base.__name__} such as {example!r}")

"""The results that each process of a storm got, in its own file, which outlives it, and what must therefore be true.

A process writes a line before a call and one when it has returned, each with one `write`: SIGKILL between the two
leaves the call in doubt, and nothing else. Lines are `<what> <number>...`; numbers of steps are given out once.
"""

import os
import pathlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

COUNTER_BITS = 24


class Numbers:
    """Numbers of steps that no other process of the storm gives out."""

    def __init__(self, ident: int) -> None:
        self._next = ident << COUNTER_BITS

    def take(self, count: int) -> list[int]:
        first = self._next
        self._next += count
        return list(range(first, self._next))


class Log:
    """The writing end, in the process it tells of."""

    def __init__(self, path: pathlib.Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def say(self, what: str, *numbers: int) -> None:
        os.write(self._file, " ".join([what, *map(str, numbers)]).encode() + b"\n")


def read(path: pathlib.Path) -> Iterator[tuple[str, list[int]]]:
    """The lines of a log that was or is being written; a last line without its end is not there yet."""
    data = path.read_bytes() if path.exists() else b""
    for line in data[: data.rfind(b"\n") + 1].decode().splitlines():
        what, *numbers = line.split(" ")
        yield what, [int(n) for n in numbers]


@dataclass
class Kept:
    """Of a table that loses nothing by itself, the part that one process wrote.

    Attributes:
        keys: by number, the key that came back.
        in_doubt: numbers of inserts, and of deletes, that did not return.
        deleted: numbers that were.
        versions: by number, those that its state was given in turn; the last one in doubt if its update did not return.
        settled: by number, how many of them an update that returned has left behind.
    """

    keys: dict[int, int] = field(default_factory=dict)
    in_doubt: set[int] = field(default_factory=set)
    deleted: set[int] = field(default_factory=set)
    versions: dict[int, list[int]] = field(default_factory=dict)
    settled: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, lines: Iterable[tuple[str, list[int]]]) -> "Kept":
        kept = cls()
        asked: list[int] = []
        for what, numbers in lines:
            if what == "insert":
                asked = numbers
                kept.in_doubt.update(numbers)
            elif what == "inserted":
                kept.keys.update(zip(asked, numbers, strict=True))
                kept.in_doubt.difference_update(asked)
            elif what == "delete":
                kept.in_doubt.update(numbers)
            elif what == "deleted":
                kept._forget(numbers)
            elif what == "update":
                for number in numbers[1:]:
                    kept.versions.setdefault(number, [0]).append(numbers[0])
            elif what == "updated":
                kept.settled.update((number, len(kept.versions[number]) - 1) for number in numbers[1:])
        return kept

    def _forget(self, numbers: list[int]) -> None:
        self.in_doubt.difference_update(numbers)
        self.deleted.update(numbers)
        for number in numbers:
            del self.keys[number]

    @property
    def certain(self) -> dict[int, int]:
        """Numbers of items that must be there, with their keys."""
        return {number: key for number, key in self.keys.items() if number not in self.in_doubt}

    def possible(self, number: int, since: "Kept | None" = None) -> list[int]:
        """Versions that the item's state may have; or may have had at some moment `since` an earlier reading."""
        return self.versions.get(number, [0])[(since or self).settled.get(number, 0) :]


@dataclass
class Queued:
    """Of a queue: what went in, what came out, and what a death may have taken with it."""

    begun: set[int] = field(default_factory=set)
    inserted: set[int] = field(default_factory=set)
    consumed: set[int] = field(default_factory=set)
    may_be_lost: int = 0  # items that a consumer may have taken and not told of

    def add(self, lines: Iterable[tuple[str, list[int]]]) -> None:
        """The whole log of a process that ended, or what there is of one that goes on."""
        open_call = 0
        for what, numbers in lines:
            if what == "insert":
                self.begun.update(numbers)
            elif what == "inserted_numbers":
                self.inserted.update(numbers)
            elif what == "consume":
                open_call = numbers[0]
            elif what == "consumed":
                open_call = 0
                self._take_out(numbers)
        self.may_be_lost += open_call

    def drained(self, numbers: Iterable[int]) -> None:
        """What was still there at the end."""
        self._take_out(list(numbers))

    def _take_out(self, numbers: list[int]) -> None:
        twice = self.consumed.intersection(numbers)
        assert not twice, f"given to two consumers: {sorted(twice)}"
        assert len(set(numbers)) == len(numbers), f"given twice to one: {numbers}"
        self.consumed.update(numbers)

    def copy(self) -> "Queued":
        return Queued(set(self.begun), set(self.inserted), set(self.consumed), self.may_be_lost)

    def check(self) -> None:
        """Once every process has ended and the rest is drained: each item came out once, but for those deaths took."""
        unknown = self.consumed - self.begun
        assert not unknown, f"came out and never went in: {sorted(unknown)[:10]}"
        lost = self.inserted - self.consumed
        assert len(lost) <= self.may_be_lost, (
            f"{len(lost)} items went in and never came out, {self.may_be_lost} may have died with consumers: "
            f"{sorted(lost)[:10]}"
        )

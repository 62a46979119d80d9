"""Rate limiters: how far sampling may run ahead of inserting, and inserting ahead of sampling.

With I items ever inserted, D deleted and S sampled, and the *difference* `I * samples_per_insert - S`:

- n samples are admitted while `I - D >= min_size_to_sample` and the difference after them is `>= min_diff`;
- n inserts are admitted while the table is still filling up to `min_size_to_sample`, or the difference after them is
  `<= max_diff`.

All limiters consist of these four numbers. Here they are plain values; the core applies them under the arena's lock.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from shmreplay.base.checks import INT32_MAX, check_float, check_int, wire_field

__all__ = ["MinSize", "Queue", "RateLimiter", "SampleToInsertRatio", "Stack"]

_MAX = sys.float_info.max


@dataclass(frozen=True)
class RateLimiter:
    """A limiter, given by its four numbers.

    Args:
        samples_per_insert: average number of times an item is to be sampled, finite and > 0.
        min_size_to_sample: number of items the table must hold before it can be sampled, >= 1.
        min_diff: lowest difference that samples may leave behind; `-inf` means no bound.
        max_diff: highest difference that inserts may leave behind; `inf` means no bound.

    Raises:
        TypeError: an argument is not a number.
        ValueError: an argument is out of range or NaN, or `min_diff > max_diff`.
    """

    samples_per_insert: float
    min_size_to_sample: int
    min_diff: float
    max_diff: float

    count_deletes: ClassVar[bool] = False
    """Whether an item that is deleted unsampled counts as sampled."""

    def __post_init__(self) -> None:
        where = type(self).__name__
        ratio = check_float(where, "samples_per_insert", self.samples_per_insert)
        if not 0 < ratio < math.inf:
            raise ValueError(f"{where}: samples_per_insert is {ratio}; expected a finite number > 0")
        min_size = check_int(where, "min_size_to_sample", self.min_size_to_sample, 1)
        low = check_float(where, "min_diff", self.min_diff)
        high = check_float(where, "max_diff", self.max_diff)
        if low > high:
            raise ValueError(f"{where}: min_diff is {low}, above max_diff {high}; nothing would ever be admitted")
        # Infinities become the largest finite numbers, so that sums in the segment never become NaN.
        self._set(ratio, min_size, max(low, -_MAX), min(high, _MAX))

    def _set(self, ratio: float, min_size: int, low: float, high: float) -> None:
        object.__setattr__(self, "samples_per_insert", ratio)
        object.__setattr__(self, "min_size_to_sample", min_size)
        object.__setattr__(self, "min_diff", low)
        object.__setattr__(self, "max_diff", high)

    def can_insert(self, inserts: int, samples: int, deletes: int, n: int) -> bool:
        """Whether `n >= 1` more inserts are admitted after `inserts`, `samples` and `deletes` so far."""
        _check_n(n)
        if inserts + n - deletes <= self.min_size_to_sample:
            return True
        return (inserts + n) * self.samples_per_insert - samples <= self.max_diff

    def can_sample(self, inserts: int, samples: int, deletes: int, n: int) -> bool:
        """Whether `n >= 1` more samples are admitted after `inserts`, `samples` and `deletes` so far."""
        _check_n(n)
        if inserts - deletes < self.min_size_to_sample:
            return False
        return inserts * self.samples_per_insert - samples - n >= self.min_diff

    def numbers(self) -> dict[str, float | int | bool]:
        """Returns what the segment stores: the four numbers, and `count_deletes`."""
        return {
            "samples_per_insert": self.samples_per_insert,
            "min_size_to_sample": self.min_size_to_sample,
            "min_diff": self.min_diff,
            "max_diff": self.max_diff,
            "count_deletes": self.count_deletes,
        }

    def __repr__(self) -> str:
        return (
            f"RateLimiter(samples_per_insert={self.samples_per_insert}, min_size_to_sample={self.min_size_to_sample}, "
            f"min_diff={readable_bound(self.min_diff)}, max_diff={readable_bound(self.max_diff)})"
        )

    def to_wire(self) -> dict[str, object]:
        """Returns a dict of plain values for msgpack; `from_wire` is its inverse."""
        return {"kind": type(self).__name__, **self.numbers()}


class MinSize(RateLimiter):
    """Sampling waits until the table holds `min_size_to_sample` items; inserting never waits.

    Raises:
        TypeError, ValueError: `min_size_to_sample` is not an integer >= 1.
    """

    def __init__(self, min_size_to_sample: int) -> None:
        super().__init__(1.0, min_size_to_sample, -_MAX, _MAX)

    def __repr__(self) -> str:
        return f"MinSize({self.min_size_to_sample})"


class SampleToInsertRatio(RateLimiter):
    """Keeps the ratio of samples to inserts near `samples_per_insert`; sampling waits for `min_size_to_sample` items.

    Args:
        samples_per_insert: average number of times an item is to be sampled, finite and > 0.
        min_size_to_sample: number of items the table must hold before it can be sampled, >= 1.
        error_buffer: by how many samples the difference may be off `min_size_to_sample * samples_per_insert`, up and
            down; or the pair `(min_diff, max_diff)` itself. The wider it is, the less actors and learners wait for each
            other.

    Warns:
        UserWarning: `max_diff < min_size_to_sample * samples_per_insert`. A single thread that inserts and samples
            can then block for ever once the table has `min_size_to_sample` items.

    Raises:
        TypeError: an argument is not a number, or `error_buffer` neither a number nor a pair.
        ValueError: a number is out of range; `error_buffer` is less than `max(1, samples_per_insert)`; or it is a pair
            whose bounds are less than twice that apart, or whose `min_diff` is above
            `min_size_to_sample * samples_per_insert`, so that no sample might ever be admitted.
    """

    def __init__(
        self, samples_per_insert: float, min_size_to_sample: int, error_buffer: float | tuple[float, float]
    ) -> None:
        where = "SampleToInsertRatio"
        ratio = check_float(where, "samples_per_insert", samples_per_insert)
        start = check_int(where, "min_size_to_sample", min_size_to_sample, 1) * ratio
        low, high = _bounds(where, start, max(1.0, ratio), error_buffer)
        super().__init__(ratio, min_size_to_sample, low, high)
        self._check_reach()
        if self.max_diff < self._start:
            warnings.warn(
                f"{where}: error_buffer leaves differences in {(self.min_diff, self.max_diff)}, all below {self._start}"
                " = min_size_to_sample * samples_per_insert; one thread that inserts and samples by turns will wait for"
                " itself for ever",
                stacklevel=2,
            )

    @classmethod
    def _from_bounds(cls, numbers: RateLimiter) -> SampleToInsertRatio:
        """Remakes a limiter without the warning: the process that declared the limiter was warned."""
        limiter = cls.__new__(cls)
        RateLimiter.__init__(
            limiter, numbers.samples_per_insert, numbers.min_size_to_sample, numbers.min_diff, numbers.max_diff
        )
        limiter._check_reach()
        return limiter

    @property
    def _start(self) -> float:
        """The difference when the table has `min_size_to_sample` items and none was sampled."""
        return self.min_size_to_sample * self.samples_per_insert

    def _check_reach(self) -> None:
        where, pair, start = "SampleToInsertRatio", (self.min_diff, self.max_diff), self._start
        width = 2 * max(1.0, self.samples_per_insert)
        if self.max_diff - self.min_diff < width:
            raise ValueError(
                f"{where}: error_buffer leaves differences in {pair}; expected them to be at least {width} apart "
                "(2 * max(1, samples_per_insert)), or inserts and samples would stop each other"
            )
        if self.min_diff > start:
            raise ValueError(
                f"{where}: error_buffer leaves differences in {pair}, all above {start} = min_size_to_sample * "
                "samples_per_insert; expected min_diff <= that, or no sample is admitted at min_size_to_sample"
            )

    def __repr__(self) -> str:
        return (
            f"SampleToInsertRatio({self.samples_per_insert}, {self.min_size_to_sample}, "
            f"error_buffer=({readable_bound(self.min_diff)}, {readable_bound(self.max_diff)}))"
        )


class Queue(RateLimiter):
    """Each item is sampled once. Inserting waits while the table has `size` items, sampling while it has none.

    Use it with Fifo selectors and `max_times_sampled=1`; `Table.queue` sets all three. An item that is deleted
    unsampled counts as sampled, so that its room is free again.

    Raises:
        TypeError, ValueError: `size` is not an integer >= 1.
    """

    count_deletes: ClassVar[bool] = True

    def __init__(self, size: int) -> None:
        size = check_int(type(self).__name__, "size", size, 1)
        super().__init__(1.0, 1, 0.0, float(size))

    @property
    def size(self) -> int:
        """Largest number of items in the table."""
        return int(self.max_diff)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size})"


class Stack(Queue):
    """As `Queue`, with Lifo selectors; `Table.stack` sets all of it."""


def readable_bound(bound: float) -> float:
    """Returns a bound as a user writes it: infinite for no bound, which the segment stores as the largest float."""
    return math.copysign(math.inf, bound) if abs(bound) >= _MAX else bound


def check_limiter(where: str, limiter: object) -> None:
    """Raises TypeError unless it is a rate limiter."""
    if not isinstance(limiter, RateLimiter):
        raise TypeError(f"{where}: expected a rate limiter of shmreplay.rate_limiters, got {limiter!r}")


def from_wire(wire: object) -> RateLimiter:
    """Remakes a rate limiter from what its `to_wire` returned.

    Raises:
        TypeError, ValueError: malformed, or of a kind that this version does not know.
    """
    kind, ratio, min_size, low, high = (
        wire_field("rate limiter", wire, name)
        for name in ("kind", "samples_per_insert", "min_size_to_sample", "min_diff", "max_diff")
    )
    # The plain limiter checks the four numbers before one of the classes uses them.
    plain = RateLimiter(ratio, min_size, low, high)  # type: ignore[arg-type]
    if kind == "RateLimiter":
        return plain
    if kind == "MinSize":
        return MinSize(plain.min_size_to_sample)
    if kind in ("Queue", "Stack"):
        size = check_int(str(kind), "size", int(min(plain.max_diff, INT32_MAX)), 1)
        return Queue(size) if kind == "Queue" else Stack(size)
    if kind == "SampleToInsertRatio":
        return SampleToInsertRatio._from_bounds(plain)
    raise ValueError(f"rate limiter: unknown kind {kind!r}; expected a limiter of shmreplay.rate_limiters")


def ratio_reached(info: Mapping[str, Any]) -> float | None:
    """Returns samples per insert so far, from the `info()` of a native table; None before the first insert.

    Inserts that the difference does not count are left out, so the result is comparable with the limiter's ratio.
    """
    counted = info["inserts"] - info["uncounted"]
    return float(info["samples"] / counted) if counted > 0 else None


def _bounds(where: str, start: float, smallest: float, error_buffer: object) -> tuple[float, float]:
    if not isinstance(error_buffer, (tuple, list)):
        error = check_float(where, "error_buffer", error_buffer)
        if error < smallest:
            raise ValueError(
                f"{where}: error_buffer is {error_buffer}; expected at least {smallest:g} "
                "(max(1, samples_per_insert)), or (min_diff, max_diff)"
            )
        return start - error, start + error
    if len(error_buffer) != 2:
        raise ValueError(f"{where}: error_buffer is {error_buffer!r}; expected a number or (min_diff, max_diff)")
    low, high = error_buffer
    return check_float(where, "min_diff", low), check_float(where, "max_diff", high)


def _check_n(n: int) -> None:
    if n < 1:
        raise ValueError(f"n is {n}; expected the number of items, >= 1")

"""TableControl: the calls about a table as a whole, and what it says of itself."""

from __future__ import annotations

import math
from typing import Any

from shmreplay.base.checks import check_float
from shmreplay.clients.batches.arguments import check_count
from shmreplay.clients.handles.handle import Handle
from shmreplay.clients.link.attachments import specs_of
from shmreplay.clients.tables.info import TableInfo
from shmreplay.rate_limiters import RateLimiter, check_limiter
from shmreplay.selectors import Prioritized
from shmreplay.tables.estimates import Estimate, estimate
from shmreplay.tables.table import warn_if_never_sampled


class TableControl(Handle):
    """What concerns the whole table: its limiter, its pauses, its numbers."""

    def reset(self, timeout_s: float | None = None) -> None:
        """Deletes all items and zeroes the counters. Inserts that wait for the rate limiter go on.

        Raises:
            RateLimitTimeout: the arena's lock was not to be had within `timeout_s`.
        """
        self._control().reset(timeout_s)

    def set_rate_limiter(self, limiter: RateLimiter, rebase: bool = True, timeout_s: float | None = None) -> None:
        """Gives the table another rate limiter, for all its users.

        Args:
            rebase: start the difference anew in the middle of the new bounds. False leaves the counters to speak: a
                change late in a run may then block one side until the other has caught up.

        Warns:
            UserWarning: its `min_size_to_sample` is more than the table's `max_size`.

        Raises:
            TypeError: it is no rate limiter.
            RateLimitTimeout: the arena's lock was not to be had within `timeout_s`.
        """
        check_limiter(self._where, limiter)
        numbers: dict[str, Any] = limiter.numbers()
        self._control().set_rate_limiter(**numbers, rebase=rebase, timeout_s=timeout_s)
        warn_if_never_sampled(self._name, self._spec.max_size, limiter, stacklevel=2)

    def set_priority_exponent(self, exponent: float, timeout_s: float | None = None) -> None:
        """Gives a Prioritized sampler another exponent, for all the table's users, while it is in use.

        Inserts and updates go by it at once; the weights of the items that are there follow slice by slice, with the
        help of whoever uses the table. A draw meanwhile reports the probability that it had, which may be of either
        exponent. `info().sampler` has the exponent now; `spec.sampler` stays as created.

        Args:
            exponent: finite, >= 0.
            timeout_s: seconds to wait for the arena's lock.

        Raises:
            ValueError: the sampler is not Prioritized, or the exponent is out of range.
            TypeError: it is no number.
            RateLimitTimeout: the arena's lock was not to be had in time. As after Ctrl-C, the change goes on if it was
                begun: others finish it.
        """
        exponent = check_float(self._where, "exponent", exponent)
        if not (math.isfinite(exponent) and exponent >= 0):
            raise ValueError(f"{self._where}: exponent is {exponent}; expected a finite number >= 0")
        if not isinstance(self._spec.sampler, Prioritized):
            raise ValueError(
                f"{self._where}: its sampler is {self._spec.sampler!r}, which has no priority exponent; only a "
                "Prioritized one has"
            )
        self._control().set_priority_exponent(exponent, timeout_s)

    def pause(self, inserts: bool = True, samples: bool = True, timeout_s: float | None = None) -> None:
        """Lets inserts, samples or both wait, as if the rate limiter did not admit them, until `resume`.

        Raises:
            RateLimitTimeout: the arena's lock was not to be had within `timeout_s`.
        """
        self._control().pause(inserts, samples, timeout_s)

    def resume(self, timeout_s: float | None = None) -> None:
        """Ends a pause. Does nothing if there is none.

        Raises:
            RateLimitTimeout: the arena's lock was not to be had within `timeout_s`.
        """
        self._control().resume(timeout_s)

    def __len__(self) -> int:
        return int(self._control().size)

    def info(self) -> TableInfo:
        """Counters, rate limiter, blocked callers, priorities: see `TableInfo`."""
        return TableInfo.read(self._control())

    def shard_infos(self) -> tuple[TableInfo, ...]:
        """The info of each shard, in their order; of a table without shards its own alone."""
        return (self.info(),)

    def can_insert(self, n: int = 1) -> bool:
        """Whether the rate limiter would admit n inserts now."""
        return bool(self._control().can_insert(check_count(self._where, "n", n)))

    def can_sample(self, n: int = 1) -> bool:
        """Whether `sample(n)` would be admitted whole now: by the rate limiter, and by `max_times_sampled`.

        Where items may be sampled more than once and the sampler is neither Fifo nor Lifo, it is not foreseen which go
        on the way: the size may then fall under `min_size_to_sample` after all.
        """
        return bool(self._control().can_sample(check_count(self._where, "n", n)))

    def estimate(self) -> Estimate:
        """Every term of the memory that the table's arena takes, with all tables that share it."""
        return estimate(specs_of(self._arena))

"""ShardedTable: what actors and learners do with a table that has shards. See docs/shards.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shmreplay.clients.batches.arguments import check_timeout
from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.batches.decoding import Ragged
from shmreplay.clients.batches.sample_options import Columns, DrawnFrom, SampleOptions
from shmreplay.clients.handles.attached_client import AttachedClient
from shmreplay.clients.handles.handle import Stop, pickled_table
from shmreplay.clients.link.connection import fork_count
from shmreplay.clients.samplers.sampled import Sampled
from shmreplay.clients.shards.shard_changes import ShardChanges
from shmreplay.clients.shards.shard_choice import choose_shard
from shmreplay.clients.shards.shard_infos import joined_info
from shmreplay.clients.shards.shard_reads import ShardReads
from shmreplay.clients.tables.info import TableInfo
from shmreplay.clients.tables.table import TableHandle
from shmreplay.clients.writers.vector_writer import VectorWriter
from shmreplay.clients.writers.writer import Writer
from shmreplay.estimates import Estimate, together
from shmreplay.protocol import Deadline
from shmreplay.rate_limiters import RateLimiter, check_limiter
from shmreplay.tables.shards import check_limiter_parts, limiter_part, shard_name
from shmreplay.tables.table import Table, warn_if_never_sampled


class ShardedTable(Sampled):
    """A table with `shards`. Made by `Client.table`. It has the calls of `TableHandle`, with these differences.

    All items that a handle inserts go to one shard, which is chosen at the first insert. Every writer gets a shard of
    its own. Errors about one shard name it: table 'replay~2'. Each shard has its part of the rate limiter.

    `sample` draws from all shards: each draw picks a shard by its total weight, then an item in it. `.probabilities`
    are exact for the totals that the call read, `.table_size` is that of all shards at that time, and `.ages` count the
    inserts into the item's own shard. A shard counts as empty if its part of the rate limiter admits no sample; the
    call waits if that is so for all shards. `sample` also raises ValueError with `replacement=False`, `stratified=True`
    or a `part`, and SignatureMismatch if items made by hand have different structures in different shards.
    """

    def __init__(self, client: AttachedClient, whole: Table, seed: Any = None, stop: Stop | None = None) -> None:
        self._client = client
        self._spec = whole
        self._shards = tuple(
            TableHandle(client, name, client._attach(name), None, stop)
            for name in (shard_name(whole.name, number) for number in range(whole.shards))
        )
        self._where = f"table {whole.name!r}"
        drawn_from = DrawnFrom(self._where, whole.sampler, self._shards[0]._sig, whole.shards)
        self._reads = ShardReads(drawn_from, self._shards, seed)
        self._changes = ShardChanges(self._where, self._shards)
        self._home: tuple[int, TableHandle] | None = None  # fork count of the process that chose it, and the shard

    @property
    def name(self) -> str:
        """The table's name."""
        return self._spec.name

    @property
    def spec(self) -> Table:
        """The table as it was created."""
        return self._spec

    def __reduce__(self) -> tuple[Any, ...]:
        return pickled_table(self._client, self.name, self._reads.random, self)

    def __repr__(self) -> str:
        return f"<shmreplay table {self.name!r} of {len(self._shards)} shards at {self._client.address}>"

    # --- putting in ----------------------------------------------------------------------------------------------

    def _choose(self) -> TableHandle:
        for shard in self._shards:
            shard._control()
        return self._shards[choose_shard([shard._arena for shard in self._shards])]

    def _inserts_to(self) -> TableHandle:
        """The shard that this handle inserts into. A forked child chooses again."""
        if self._home is None or self._home[0] != fork_count():
            self._home = fork_count(), self._choose()
        return self._home[1]

    def insert(self, step: Any, priority: float | None = None, timeout_s: float | None = None) -> int:
        """As `TableHandle.insert`, into this handle's shard."""
        return self._inserts_to().insert(step, priority, timeout_s)

    def insert_batch(
        self, steps: Any, priorities: ArrayLike | None = None, timeout_s: float | None = None
    ) -> NDArray[np.int64]:
        """As `TableHandle.insert_batch`, into this handle's shard."""
        return self._inserts_to().insert_batch(steps, priorities, timeout_s)

    def writer(self, history: int | None = None, patterns: list[Any] | None = None, commit_every: int = 1) -> Writer:
        """As `TableHandle.writer`: a stream in the shard that has the fewest open streams."""
        return self._choose().writer(history, self._own(patterns), commit_every)

    def vector_writer(
        self, num_streams: int, history: int | None = None, patterns: list[Any] | None = None
    ) -> VectorWriter:
        """As `TableHandle.vector_writer`: all its streams are in one shard, which has its part of `max_streams`."""
        return self._choose().vector_writer(num_streams, history, self._own(patterns))

    def _own(self, patterns: list[Any] | None) -> list[Any] | None:
        """The rules for a shard. A rule that names this table gets no name, which means the shard's own table."""
        if not isinstance(patterns, (list, tuple)):
            return patterns
        return [replace(rule, table=None) if getattr(rule, "table", None) == self.name else rule for rule in patterns]

    def extend(self, *arguments: Any, **options: Any) -> NoReturn:
        """Raises ValueError: all rows would go to one shard, which has room for only a part of the table."""
        raise ValueError(
            f"{self._where}: extend puts whole arrays in as one stream, which would fill one of its "
            f"{len(self._shards)} shards; use insert_batch or writers of several handles, or a table without shards"
        )

    # --- reading -------------------------------------------------------------------------------------------------

    @property
    def _drawn_from(self) -> DrawnFrom:
        return self._reads.table

    @property
    def _handles(self) -> Sequence[TableHandle]:
        return self._shards

    def _anew(self, seed: Any, stop: Stop) -> ShardedTable:
        self._shards[0]._control()  # raises if the table is gone
        return ShardedTable(self._client, self._spec, seed, stop)

    def _draw(self, options: SampleOptions, timeout_s: float | None, out: Any, drawn: list[Batch]) -> Batch:
        return self._reads.sample(options, timeout_s, out, drawn)

    def view(self, n: int, timeout_s: float | None = None) -> NoReturn:
        """Raises ValueError: a view shows the memory of one arena."""
        raise ValueError(
            f"{self._where}: a view shows items of one arena, and each of its {len(self._shards)} shards has its own; "
            "use sample"
        )

    def get(
        self, keys: ArrayLike, timeout_s: float | None = None, columns: Columns = None, ragged: Ragged = "pad"
    ) -> Batch:
        """As `TableHandle.get`: each key is looked up in its shard."""
        return self._reads.get(keys, timeout_s, columns, ragged)

    def keys(self) -> NDArray[np.int64]:
        """Keys of the live items, int64 `[len(table)]`: shard by shard, within a shard in insertion order."""
        return cast(NDArray[np.int64], np.concatenate([shard.keys() for shard in self._shards]))

    # --- changing ------------------------------------------------------------------------------------------------

    def update_priorities(self, keys: ArrayLike, priorities: ArrayLike, timeout_s: float | None = None) -> int:
        """As `TableHandle.update_priorities`, shard by shard. Wrong arguments are refused before any change."""
        return self._changes.update_priorities(keys, priorities, timeout_s)

    def update_data(self, keys: ArrayLike, values: Any, at: int = 0, timeout_s: float | None = None) -> int:
        """As `TableHandle.update_data`, shard by shard."""
        return self._changes.update_data(keys, values, at, timeout_s)

    def delete(self, keys: ArrayLike, timeout_s: float | None = None) -> int:
        """As `TableHandle.delete`, shard by shard."""
        return self._changes.delete(keys, timeout_s)

    # --- the table as a whole --------------------------------------------------------------------------------------

    def reset(self, timeout_s: float | None = None) -> None:
        """As `TableHandle.reset`, shard by shard: not all at the same instant."""
        deadline = Deadline(check_timeout(timeout_s))
        for shard in self._shards:
            shard.reset(deadline.remaining_s())

    def set_rate_limiter(self, limiter: RateLimiter, rebase: bool = True, timeout_s: float | None = None) -> None:
        """As `TableHandle.set_rate_limiter`: each shard gets its part.

        Raises:
            ValueError: it cannot be divided among the shards; nothing was changed.
        """
        check_limiter(self._where, limiter)
        check_limiter_parts(self._where, limiter, len(self._shards))
        deadline = Deadline(check_timeout(timeout_s))
        for number, shard in enumerate(self._shards):
            numbers: dict[str, Any] = limiter_part(limiter, len(self._shards), number).numbers()
            shard._control().set_rate_limiter(**numbers, rebase=rebase, timeout_s=deadline.remaining_s())
        warn_if_never_sampled(self.name, self._spec.max_size, limiter, stacklevel=2)

    def set_priority_exponent(self, exponent: float, timeout_s: float | None = None) -> None:
        """As `TableHandle.set_priority_exponent`, shard by shard: until it returns, shards may differ."""
        deadline = Deadline(check_timeout(timeout_s))
        for shard in self._shards:
            shard.set_priority_exponent(exponent, deadline.remaining_s())

    def pause(self, inserts: bool = True, samples: bool = True, timeout_s: float | None = None) -> None:
        """As `TableHandle.pause`, shard by shard."""
        deadline = Deadline(check_timeout(timeout_s))
        for shard in self._shards:
            shard.pause(inserts, samples, deadline.remaining_s())

    def resume(self, timeout_s: float | None = None) -> None:
        """As `TableHandle.resume`, shard by shard."""
        deadline = Deadline(check_timeout(timeout_s))
        for shard in self._shards:
            shard.resume(deadline.remaining_s())

    def __len__(self) -> int:
        return sum(len(shard) for shard in self._shards)

    def info(self) -> TableInfo:
        """The infos of all shards, added up: see `TableInfo`."""
        return joined_info(self._spec, [shard.info() for shard in self._shards])

    def shard_infos(self) -> tuple[TableInfo, ...]:
        """The info of each shard, in order."""
        return tuple(shard.info() for shard in self._shards)

    def can_insert(self, n: int = 1) -> bool:
        """Whether the shard that this handle inserts into would admit n inserts now."""
        return self._inserts_to().can_insert(n)

    def can_sample(self, n: int = 1) -> bool:
        """Whether the shards together would admit n samples now."""
        return self._reads.can_sample(n)

    def estimate(self) -> Estimate:
        """The memory that the shards' arenas take together, term by term."""
        return together(self.name, [shard.estimate() for shard in self._shards])

"""TransitionTable: a table of transitions behind a replay buffer of another library, private or at an address."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shmreplay import Server, Table, connect
from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.client import Client
from shmreplay.clients.tables.table import TableHandle
from shmreplay.clients.transitions.layout import Layout
from shmreplay.clients.transitions.saved_rows import SavedRows
from shmreplay.clients.transitions.stream_rows import StreamRows
from shmreplay.clients.writers.stream_handle import CLOSE_TIMEOUT_S
from shmreplay.clients.writers.vector_writer import Keys, VectorWriter
from shmreplay.rules.windows import Window

OF_THIS_PROCESS = ("_server", "_client", "_table", "_writer", "_rows")  # neither copied nor pickled


def draw_seed() -> int:
    """A seed from NumPy's global generator, which these libraries seed, so that equal seeds give equal runs."""
    return int(np.random.randint(2**31 - 1))


class TransitionTable:
    """Opens its table at the first call that needs it, and writes as `num_streams` environments.

    Without an address the table is private: a `Server` of this object has it, and it ends with this object. A copy, or
    what is unpickled, has a table of its own with the same rows. With an address the table is that daemon's, is made if
    it is not there, and stays; a copy uses the same one.

    Args:
        table: as it is created.
        layout: of its observations.
        num_streams: the environments of this process.
        address: of a daemon, or None.
        timeout_s: seconds that `draw` waits for the rate limiter.
    """

    def __init__(
        self, table: Table, layout: Layout, num_streams: int, address: str | None, timeout_s: float | None
    ) -> None:
        self.spec = table
        self.layout = layout
        self.seed: Callable[[], int] = draw_seed
        self._num_streams = num_streams
        self._address = address
        self._timeout_s = timeout_s
        assert isinstance(table.item, Window)  # transitions_spec() makes no other
        self._num_later_steps = table.item.num_later_steps(table.sig)
        self._saved: SavedRows | None = None  # until the table is opened
        self._forget()

    def _forget(self) -> None:
        self._server: Server | None = None
        self._client: Client | None = None
        self._table: TableHandle | None = None
        self._writer: VectorWriter | None = None
        self._rows: StreamRows | None = None

    @property
    def is_private(self) -> bool:
        """Whether the table ends with this object."""
        return self._address is None

    @property
    def handle(self) -> TableHandle:
        """The table. Opens it, and creates it if it is not there."""
        if self._table is None:
            try:
                table = self._open()
                if self._saved is not None:
                    self._saved.put_into(table)
            except BaseException:
                self.close()  # the next call begins anew, with the rows that were saved
                raise
            self._table, self._saved = table, None
        return self._table

    def _open(self) -> TableHandle:
        if self._address is None:
            self._server = Server([self.spec])
            self._client = self._server.client()
        else:
            self._client = connect(self._address)
            try:
                self._client.create_tables([self.spec])
            except ValueError as error:
                raise ValueError(
                    f"the table {self.spec.name!r} at {self._address} was made with other arguments (its size, spaces, "
                    f"steps, frames or priorities); give the same ones in every process, or another table=: {error}"
                ) from error
        return self._client.table(self.spec.name, self.seed())

    @property
    def rows(self) -> StreamRows:
        """What writes the rows of this process. Opens the table."""
        if self._rows is None:
            self._writer = self.handle.vector_writer(self._num_streams)
            self._rows = StreamRows(self._writer)
        return self._rows

    def __len__(self) -> int:
        """Transitions in the table, and those of this process that are no items yet; at most its size."""
        if self._table is None and self._address is None:
            return 0 if self._saved is None else min(len(self._saved.ends), self.spec.max_size)
        return min(len(self.handle) + self.pending(), self.spec.max_size)

    def pending(self) -> int:
        """Transitions of this process that are no items yet: the last ones of the episodes under way."""
        if self._writer is None or self._rows is None:
            return 0
        return int(np.minimum(self._writer.episode_steps, self._num_later_steps)[self._rows.under_way].sum())

    def add_transitions(
        self,
        observation: Any,
        next_observation: Any,
        action: Any,
        reward: Any,
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
    ) -> None:
        """Writes a transition of each environment, of whatever NumPy reads as arrays of the spaces' shapes."""
        num, layout, told = self._num_streams, self.layout, None
        observation, next_observation = layout.whole(observation, num), layout.whole(next_observation, num)
        step = {
            "observation": layout.newest(observation),
            "action": layout.action(action, num),
            "reward": np.asarray(reward, np.float32).reshape(num),
            "terminated": terminated,
            "truncated": truncated,
        }
        following = layout.newest(next_observation)
        if following is not next_observation:  # stacks: all frames tell whether the episode goes on
            told = (layout.arrays(observation), layout.arrays(next_observation))
        self.rows.add(step, following, told)

    def flush(self) -> Sequence[Keys]:
        """Makes items of the transitions of this process that are none yet: see `StreamRows.flush`."""
        return [] if self._rows is None else self._rows.flush()

    def draw(self, num: int) -> Batch:
        """Draws a batch. If the table has nothing, what is no item yet becomes one first.

        Raises:
            ValueError: a private table is empty, so that nobody could ever fill it during the call.
            RateLimitTimeout: not admitted in time.
        """
        table = self.handle
        if len(table) == 0:
            self.flush()
            if len(table) == 0 and self._address is None:
                raise ValueError(f"table {self.spec.name!r}: sample({num}) of an empty buffer; add transitions first")
        return table.sample(num, timeout_s=self._timeout_s)

    def update_priorities(self, keys: NDArray[np.int64], priorities: NDArray[Any]) -> int:
        """Gives items new priorities. Returns how many of them still exist."""
        return self.handle.update_priorities(keys, priorities)

    def reset(self) -> None:
        """Empties the table."""
        self._saved = None
        if self._table is None and self._address is None:
            return
        table = self.handle
        self.flush()
        assert self._client is not None  # the handle has one
        self._client.reset(table.name)

    def close(self) -> None:
        """Makes items of what is none yet, and ends the writer; a private table ends, too. Idempotent.

        Raises:
            RateLimitTimeout: the rate limiter did not admit these items within 10 s; they are lost.
        """
        writer, rows, client, server = self._writer, self._rows, self._client, self._server
        try:
            if writer is not None and rows is not None and self._address is not None:
                rows.flush(CLOSE_TIMEOUT_S)
                writer.close()
        finally:
            self._forget()
            if client is not None:
                client.close()
            if server is not None:
                server.close()

    def saved(self) -> SavedRows | None:
        """The rows of a private table, each once."""
        if self._table is None:
            return self._saved
        self.flush()
        return SavedRows.of(self._table, self.layout)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state.update(dict.fromkeys(OF_THIS_PROCESS))
        if self._address is None:
            state["_saved"] = self.saved()
        return state

    def __deepcopy__(self, memo: dict[int, Any]) -> TransitionTable:
        copied = copy.copy(self)  # by the call above; rows are not changed once they are saved
        memo[id(self)] = copied
        return copied

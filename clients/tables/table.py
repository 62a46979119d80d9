"""TableHandle: what actors and learners do with a table. Its calls work on shared memory, without the daemon."""

from __future__ import annotations

from shmreplay.clients.tables.table_changes import TableChanges
from shmreplay.clients.tables.table_control import TableControl
from shmreplay.clients.tables.table_inserts import TableInserts
from shmreplay.clients.tables.table_reads import TableReads


class TableHandle(TableInserts, TableReads, TableChanges, TableControl):
    """A table. Made by `Client.table`. Safe to use from threads, after a fork and, pickled, in other processes.

    Each process attaches by itself, and draws by random numbers of its own. A handle that came out of a pickle attaches
    with its first call, which may raise what `Client.table` raises.

    Every method raises ShmReplayError after `client.close()`, TableClosed once the table was dropped, and SegmentFailed
    if its memory is damaged. A `timeout_s` of None waits for ever, 0 never waits, and Ctrl-C ends every wait.

    `insert`, `insert_batch`, `extend`, `writer` and `vector_writer` put items in; `sample`, `sampler`, `view`, `get`
    and `keys` read them; `update_priorities`, `update_data` and `delete` change them; the other calls are about the
    table as a whole.
    """

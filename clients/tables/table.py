"""TableHandle: a table as actors and learners use it. Its calls work on shared memory, without the daemon."""

from __future__ import annotations

from shmreplay.clients.tables.table_changes import TableChanges
from shmreplay.clients.tables.table_control import TableControl
from shmreplay.clients.tables.table_inserts import TableInserts
from shmreplay.clients.tables.table_reads import TableReads


class TableHandle(TableInserts, TableReads, TableChanges, TableControl):
    """Made by `Client.table`. Safe to use from threads; a forked child attaches anew by itself.

    Every method raises ShmReplayError after `client.close()`, TableClosed once the table was dropped, SegmentFailed if
    its memory was damaged. Where there is a `timeout_s`, None waits for ever, 0 never waits, and Ctrl-C ends the wait.

    `insert`, `insert_batch`, `extend`, `writer` and `vector_writer` put items in; `sample`, `sampler`, `view`, `get`
    and `keys` read them; `update_priorities`, `update_data` and `delete` change them; the other calls are about the
    table as a whole.
    """

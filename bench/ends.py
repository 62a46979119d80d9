"""Our ends of a table, for scenes."""

from bench.scenes import Ends, Insert, Learn, Take
from shmreplay.clients.client import Client
from shmreplay.clients.tables.table import TableHandle

BATCH = 256


def ends_of(table: TableHandle, updates: bool = False) -> Ends:
    """Of one table for all; who learns sends the priorities back as they were, if `updates`."""
    return Ends(lambda at: table.insert, lambda at: learns(table, updates), lambda at: takes(table))


def ends_of_their_own(client: Client, updates: bool = False) -> Ends:
    """A table for each writer, called after its number, and one for who learns, "learner"."""

    def insert(at: int) -> Insert:
        return client.table(f"own{at}").insert

    return Ends(insert, lambda at: learns(client.table("learner"), updates))


def learns(table: TableHandle, updates: bool) -> Learn:
    def learn() -> int:
        batch = table.sample(BATCH)
        if updates:
            table.update_priorities(batch.keys, batch.priorities)
        return BATCH

    return learn


def takes(table: TableHandle) -> Take:
    def take() -> int:
        return int(table.sample(1).data["action"][0])

    return take

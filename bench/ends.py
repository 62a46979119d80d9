"""Our ends of a table, for scenes."""

from bench.scenes import Ends, Insert, Learn, Take
from shmreplay.clients.client import Client
from shmreplay.clients.tables.table import TableHandle

BATCH = 256


def ends_of(table: TableHandle, updates: bool = False) -> Ends:
    """Ends of one table for all processes. With `updates`, the learner sends the priorities back as they were."""
    return Ends(lambda at: table.insert, lambda at: learns(table, updates), lambda at: takes(table))


def ends_of_their_own(client: Client, updates: bool = False) -> Ends:
    """Ends of one table for each writer, named by its number, and of the table "learner" for the learner."""

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
